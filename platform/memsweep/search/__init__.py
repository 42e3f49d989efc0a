"""Searching settings: suggestions, early stopping, population-based training, and the confirmation of winners.

A search goes in rounds. In each, the driver hears what the rows of the last one found, in their order, decides who
trains on, asks the sampler for more, and writes all that down before any of it runs. So the table that comes out does
not depend on which worker was the first, and a search that was cut off goes on as if it had not been.
"""
