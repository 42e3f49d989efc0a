"""Sequences of symbols: texts, nested operations, labelled sequences."""
