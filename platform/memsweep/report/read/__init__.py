"""Reads a study's records and tables. A damaged one is left out and named."""
