"""Estimates hours, memory and disk of a study before it runs. It moves no bit of a result."""
