"""Names in the table of comparisons."""

from __future__ import annotations

ALL = "all"
"""In the place of a layer: all weights, those that belong to no layer, such as encoder and readout, among them."""
MEASURES = ("cosine", "norm_ratio")
