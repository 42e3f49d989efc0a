"""What a module promises to whoever calls it: shapes, equal calls, causality, its states and its masks."""
