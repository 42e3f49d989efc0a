"""Reads a study: its YAML file by Hydra, and the overrides of a command line."""
