"""One ensemble in training: optimizer, learning rates, penalties, and what is recorded on the way.

The fit is part of the measurement. The best state is chosen by the penalized objective, and modes without which the
objective is as good (within 0.1 %) become halves of the strongest mode. Otherwise rates of idle modes, left where the
initial weights put them, would decide the radius.
"""
