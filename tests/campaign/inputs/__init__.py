"""Sorts of hostile inputs that are more than a value in a file: each tries one, and raises when the answer is wrong."""
