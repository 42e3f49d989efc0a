"""Hands a study to the job server of a cluster."""
