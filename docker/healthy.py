"""``healthy.py URL``: whether an HTTP server answers with success; for health checks in an image without curl."""

from __future__ import annotations

import sys
import urllib.request

try:
    with urllib.request.urlopen(sys.argv[1], timeout=5) as answer:
        answer.read()
except OSError as error:
    sys.exit(f"{sys.argv[1]}: {error}")
