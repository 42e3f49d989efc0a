"""Plans, runs and reads studies: what the commands and Python call alike.

A function here takes values and gives values; it neither reads an ``argparse`` namespace nor ends the process. The
commands (``memsweep.commands``) put words of a command line into these calls and print what comes back. The names of
``import memsweep`` (``memsweep.__init__``) are those of ``studies.python``, which puts it into DataFrames and figures.
"""
