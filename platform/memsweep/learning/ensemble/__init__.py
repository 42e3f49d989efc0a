"""Replicas of one model with stacked weights, at fixed shapes.

Replicas are padded to 64 (or 16) slots and widths to a power of two, so a trial has the same bits alone, in a pack and
in any order.
"""
