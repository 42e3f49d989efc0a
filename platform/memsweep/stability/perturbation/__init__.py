"""The perturbation error: the largest loss of a model whose weights move by at most a radius.

Three balls say which weights move: ``recurrent``, ``weights`` (all but the biases) and ``all``. A linear model is
brought to the balanced gauge before its encoder and readout move. Biases are apart, because a slow mode sums up a push
on its bias under any parameterization.
"""
