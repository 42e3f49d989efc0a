"""Recurrences in C++: built into a wheel or compiled at first use and kept in a cache, and never required.

``cpp`` holds the numerics, ``compiler`` says how they are compiled and for which instructions, ``build`` finds what
fits this processor or compiles it, ``library`` loads it and says how its functions are called. Where nothing fits and
no compiler is installed, torch's loop over time runs instead, and a log line says so.
"""
