"""Tasks and their sequences. ``api`` holds everything that a task of a workspace or a plugin needs.

Batch n of a stream is a function of (seed, stream, n) in Philox. So streams cannot overlap, and a checkpoint needs no
generator state.
"""
