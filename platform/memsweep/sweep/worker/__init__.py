"""One pack in a worker process: run it, store it, and turn every way to fail into a record."""
