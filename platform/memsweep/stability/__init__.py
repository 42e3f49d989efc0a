"""Stability: perturbation error, memory function, stability radius, verdict."""
