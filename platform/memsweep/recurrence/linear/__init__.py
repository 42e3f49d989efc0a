"""Impulse responses of linear recurrences, and their loss as a quadratic form (``gram``).

A linear model is its impulse response. Its minibatch loss is a quadratic form of the kernel error, the same number as
running the recurrence over the batch, and its expected loss is exact.
"""
