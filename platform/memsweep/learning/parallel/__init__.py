"""One pack on several workers: replicas or data are divided, and sums keep the order of the parts."""
