"""Reads and checks the sections ``search`` and ``confirm``."""
