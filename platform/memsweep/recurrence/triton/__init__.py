"""Recurrences on a GPU, as Triton kernels. Importing a module with ``kernels`` in its name imports Triton."""
