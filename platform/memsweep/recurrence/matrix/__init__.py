"""Recurrences whose state is a matrix that holds values by their keys."""
