"""Training: ensembles of replicas, their loss, the optimizer, the loop, and the state that survives a crash.

The loop trains all replicas of a pack; a trial's bits depend neither on the others nor on threads.
"""
