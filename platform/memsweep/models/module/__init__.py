"""Models that a user wrote as plain torch modules: found by their import path, and run as they are.

Two things compute the same in another way: torch's recurrent layers (``torch_layers``, to rounding), and loops over the
steps of a sequence where a gradient is taken (``memsweep.models.steps_once``, to the bit).
"""
