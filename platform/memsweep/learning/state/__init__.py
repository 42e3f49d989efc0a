"""The state of training as bytes: checkpoints of packs, and warm starts of single trials.

A checkpoint is written whole or not at all, and only the same pack continues from it.
"""
