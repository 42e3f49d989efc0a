"""Packs on Ray: a session, Tune's trials, and groups of workers for one pack.

Ray reads its settings when it is imported, so ``session.import_ray`` comes before any other import of it.
"""
