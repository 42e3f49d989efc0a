"""Capacity: how many numbers a model keeps of its past, as far as later outputs show them.

Of a linear model this is known in closed form, from its Hankel singular values. Of any other it is the numerical rank
of a block of its derivatives, at some inputs.
"""
