"""Studies of the learning rate: curves, ceilings, and how the best rate follows from width and horizon."""
