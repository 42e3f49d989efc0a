"""Residual stacks of recurrent units.

A deep model asks its ``recurrence`` for the states of each layer. A learning rule takes the place of that recurrence
while a training gradient is computed, and at no other time.
"""
