"""Training: streams of data, objectives, ensembles of replicas, the optimizer and the loop."""
