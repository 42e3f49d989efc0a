"""memsweep: how well, and how stably, can a recurrent sequence model hold a long memory?"""

__version__ = "0.1.0"
