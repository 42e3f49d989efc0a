"""The parts of a module that training sees: its weights, and the derivatives of its outputs."""
