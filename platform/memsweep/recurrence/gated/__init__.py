"""Gated recurrences, driven gate by gate: GRU and LSTM, with gradients written by hand."""
