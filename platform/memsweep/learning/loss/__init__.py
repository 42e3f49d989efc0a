"""The loss of an ensemble on a task: exact by the impulse response, or over sampled sequences."""
