"""Optional measures of trained models, one package each: configuration, measurement, table, and what a report says.

A package registers its class (``memsweep.stability.optional.Measure``) when it is imported, and imports the rest of
itself when it is used. Nothing outside of it names it, and no measure imports another one.
"""
