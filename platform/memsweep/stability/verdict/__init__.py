"""From radii to a verdict: limit slopes of log radius in log horizon and log width, with intervals over seeds.

The rule, its reasons and its measured error rates are in docs/verdict.md. A verdict is never forced.
"""
