"""The state-space model of StableSSM (arXiv 2311.14495): S4D-like layers."""
