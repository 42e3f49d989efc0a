"""The plan of a sweep: identities, results to reuse, and packs of the remaining trials.

Programs are divided and joined by estimated seconds, so that a worker's job lasts 3 to 30 s.
"""
