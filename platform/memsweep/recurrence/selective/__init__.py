"""Whole layers whose decay is a function of the input, each in one compiled call from the input to the answer.

``state_space`` has channels of several states, ``gated`` one state for each unit. Each kernel stands in a file of its
own, which counts in the identity of the trials that call it. Elsewhere torch's operations compute the same layers
(``memsweep.models.deep``), around the scan of ``memsweep.recurrence.varying``.
"""
