"""A user's torch layer as a unit of deep models, found by its import path as a user's model is.

It stands above both: deep models know no modules, and modules no stacks.
"""
