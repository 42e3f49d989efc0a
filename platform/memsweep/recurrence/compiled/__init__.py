"""Layers in C++: compiled at first use, kept in a cache, and never required.

``layer.cpp`` and its headers hold the numerics, ``build`` makes a library of them for this processor, ``binding``
calls it. Where no compiler is found, the time loop of torch runs in its place, and a line says so.
"""

from memsweep.recurrence.compiled.binding import Compiled, compiled, refusal

__all__ = ["Compiled", "compiled", "refusal"]
