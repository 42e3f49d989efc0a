"""Recurrences in C++: compiled at first use, kept in a cache, and never required.

``cpp`` holds the numerics, ``build`` compiles them for this processor, ``library`` loads the result and says how its
functions are called. Each of the ``*_calls`` modules calls one function. Where no compiler is installed, torch's loop
over time runs instead, and a log line says so.
"""
