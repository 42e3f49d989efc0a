"""The numerics of recurrences: impulse responses and the quadratic form of the loss of a linear model."""
