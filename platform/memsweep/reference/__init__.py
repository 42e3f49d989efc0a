"""Everything that a study may say, for people and editors: ``memsweep describe``, ``list`` and ``schema``.

It is read off the configuration dataclasses and the registry, so a new part is described without an edit here.
"""
