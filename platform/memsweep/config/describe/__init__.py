"""The text of ``memsweep describe`` and ``memsweep list``."""
