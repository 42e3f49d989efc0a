"""Compares cells seed by seed: signed-rank tests with Holm's correction, and selection bias."""
