"""Audits any recurrent module in about a minute, without training it.

A check is a file of a sub-room with a ``CHECK``: a function of a ``Subject`` (the module, its inputs, its copies in
several precisions) and of the seconds that it may take. It gives one ``Finding``: what was measured, in numbers, how it
ended, and a sentence. ``part.checks`` finds the files, and nothing else names one. float64 is the reference of every
comparison. A check that looks at long sequences goes from short ones to the horizon for as long as its time lasts, and
says at which lengths it looked; what it left out makes it *not enough*.

What a module may declare is in ``declared``, and how it carries a state from piece to piece in ``carry``.
"""
