"""Learning rules: how the gradient of a recurrent layer is computed, apart from the loop that uses it.

In every rule the error of a state is what reaches it *at its own step* through the layers above: spatial
backpropagation. A rule says how that error reaches the past. ``batched`` computes a whole sequence at once.
Source: arXiv 2305.15947; docs/rules.md.
"""
