"""The promises of a module to whoever calls it: shapes, equal calls, causality, its states and its masks."""
