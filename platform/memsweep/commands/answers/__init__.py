"""Answers of commands: a document of plain data, made once, and the same data printed for a person."""
