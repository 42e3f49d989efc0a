"""``python -m memsweep`` is the ``memsweep`` command."""

from memsweep.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
