"""How long a module remembers, and how much."""
