"""Reads the section ``claims``: a published table, or comparisons of cells.

Claims stand beside our verdicts in the report. They decide nothing, and no identity contains them.
"""
