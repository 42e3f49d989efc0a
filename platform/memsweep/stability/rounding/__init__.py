"""Rounding: the perturbation that deployment makes for certain.

A rounding to b bits moves a number by at most 2^-b of a known size, so an error against bits is an error against the
radius 2^-b, and is read, judged and drawn as the perturbation error is. It is measured for roundings to nearest: the
error of one model, no bound of others.
"""
