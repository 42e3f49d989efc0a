"""A residual stack without an encoder: the unit of its first layer reads the inputs of the task.

Around that unit is neither norm nor residual, which would need as many features as inputs. What is here counts in the
identities of trials of such stacks alone.
"""
