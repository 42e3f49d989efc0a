"""The answer of a study in sentences: what was found, over which sizes, with which interval, and how near a limit is.

Page, terminal, ``--json``, Python and MLflow show the same answer. Whatever is not resolved is said to be so.
"""
