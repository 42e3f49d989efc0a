"""Searching settings: suggestions, early stopping, population-based training, and the confirmation of winners.

A search goes in rounds. In each, the driver reads the objectives of the last round's trials, in their order, decides
which suggestions train on, asks the sampler for more, and writes all of this down before any trial runs. So the results
do not depend on which worker was first, and an interrupted search continues to the same results.
"""
