"""Audits any recurrent module in about a minute, without training it.

A check is a function of a ``Subject`` (the module, its inputs, its copies in several precisions) and of the seconds
that it may take, and gives one ``Finding``: what was measured, in numbers, pass, note or fault, and a sentence. The
checks are in ``run.CHECKS``. float64 is the reference of every comparison. A check that looks at long sequences goes
from short ones to the horizon for as long as its time lasts, and says at which lengths it looked.

What a module may declare is in ``declared``: ``decay`` and a step form.
"""
