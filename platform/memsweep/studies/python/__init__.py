"""The names of ``import memsweep``: studies, and single models, as DataFrames, figures and modules."""
