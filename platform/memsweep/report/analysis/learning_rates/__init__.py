"""Studies of the learning rate: its curves, and how the best one follows from width and horizon."""
