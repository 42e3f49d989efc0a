"""Export of studies to Trackio; ``export`` does it."""
