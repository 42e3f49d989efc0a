"""From radii to a verdict: slopes of log radius against log horizon and log width.

Theil-Sen slopes, a cluster bootstrap over seeds, censored radii as half-lines. A verdict is never forced.
"""
