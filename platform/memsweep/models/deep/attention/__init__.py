"""Units that keep values by their keys: matrix states, which hold a fixed number of them, and softmax attention."""
