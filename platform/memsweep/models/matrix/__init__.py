"""Models whose recurrence is one dense matrix: free, orthogonal or non-normal, with gains in time."""
