"""The kernels of a wheel, compiled when it was made; a checkout has none.

A package, so that these files count in no identity: the sources do, from which they are made, and records name the
build. So a trial has one identity in a wheel and in a checkout.
"""
