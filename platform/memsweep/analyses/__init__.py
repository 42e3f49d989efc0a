"""Analyses of stored tables, one package each: what they find, and what a report says of it.

A package registers its class (``memsweep.report.values.analysis.Analysis``) when it is imported, and imports the rest
of itself when it is used. Nothing outside of it names it, and no analysis imports another one, or a measure.
"""
