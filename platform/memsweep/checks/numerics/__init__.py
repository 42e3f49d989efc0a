"""The effects of arithmetic on a module, and its cost."""
