"""Models whose recurrence is a set of independent modes with chosen rates."""
