"""Tasks of CogScale for memsweep; ``task`` registers them."""
