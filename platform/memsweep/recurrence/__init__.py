"""The numerics of recurrences.

``linear`` holds impulse responses and the quadratic form of a linear model's loss. ``layer_outputs``, ``scan``,
``gained``, ``gated`` and ``varying`` run recurrences over sequences, by compiled kernels (``compiled``, ``triton``) or
by torch's loop over time, which is the oracle of the kernels. ``selective`` runs whole layers in one compiled call.
"""
