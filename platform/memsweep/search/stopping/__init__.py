"""Decides which trials go on: Ray Tune's schedulers, and population-based training."""
