"""Recurrences in C++: compiled at first use, kept in a cache, and never required.

``kernels.cpp``, ``gained.cpp`` and the headers hold the numerics, ``build`` makes a library of them for this processor,
``library`` loads it, ``layer_calls``, ``series_calls`` and ``gained_calls`` call it. Where no compiler is found, the
time loop of torch runs in its place, and a line says so.
"""
