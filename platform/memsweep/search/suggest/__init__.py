"""Suggests settings: Optuna's samplers as a pure function of the observations so far."""
