"""What training would see: the weights of a module, and the derivatives of its outputs."""
