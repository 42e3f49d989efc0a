"""Several drivers on one study.

One of them leads and does all that a single driver does. The others run packs and write results, and nothing else. So
plan, journal, report and MLflow keep their one writer, and nothing of them has to be merged.
"""
