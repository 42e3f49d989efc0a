"""A campaign of faults: sweeps of seconds, broken at random, again and again, each held against an undisturbed run.

``python -m tests.campaign`` (``make campaign``) draws rounds from a seed. A round is one study in one *scenario*: what
it computes, where its results lie, which MLflow it writes to, with Ray or without. Its commands are the real
``memsweep sweep`` and ``memsweep resume``, as processes; *faults* hit them while they run, or hit the study's files
between two of them. At the end the study must be complete, and its tables equal to the reference bit for bit.
"""

import sys

from tests.campaign import places

sys.path[:0] = [str(path) for path in places.MODULES if str(path) not in sys.path]
