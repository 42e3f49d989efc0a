"""Recurrent models and their parameterizations. Each module here registers what it defines.

Whether a model is linear depends on its config (``Model.traits``): the same class with an activation inside the
recurrence runs over sequences. A running statistic is a weight (``Part.STATISTIC``), so that checkpoints hold it; no
gradient, decay, penalty or ball moves it.
"""
