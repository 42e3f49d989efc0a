"""Effective state sizes, from stored singular values."""
