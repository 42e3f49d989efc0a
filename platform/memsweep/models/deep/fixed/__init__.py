"""Units whose recurrence is given, not trained: windows of the past in polynomials, and random reservoirs."""
