"""Commands that give stored results out, or rewrite them."""
