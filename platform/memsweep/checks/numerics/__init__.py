"""What arithmetic does to a module, and what it costs."""
