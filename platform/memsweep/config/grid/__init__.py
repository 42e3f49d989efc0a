"""Expands the axes of a grid to trials.

A grid is a product of axes. One axis may be a list of whole rows (``rows``), because tables of hyperparameters are no
products; its values set fields of several sections under all other axes. A chained trial's config names the values of
the axis before its own, so that its identity says everything that decides it.
"""
