"""Public data by name and hash, and its procedures as frozen dataclasses, checked on reading.

`load_openpi_c` and `load_openpi` return the same `Procedure`; `fetch` returns a file of the cache.
Real data and the bundled sample never stand in for one another: the sample is `root=lib.paths.SAMPLE`.
"""

from lib.data.procedures import Procedure, Rejected, Step, load, load_openpi, load_openpi_c, load_splits, step_id
from lib.data.registry import FILES, fetch, missing_files
from lib.data.scoring import ScoredFile, align, from_procedures, read_scored
from lib.data.steps import MultiChoice, NextStep, load_steps
from lib.text import StateChange

__all__ = [
    "FILES", "MultiChoice", "NextStep", "Procedure", "Rejected", "ScoredFile", "StateChange", "Step", "align", "fetch",
    "from_procedures", "load", "load_openpi", "load_openpi_c", "load_splits", "load_steps", "missing_files",
    "read_scored", "step_id",
]  # fmt: skip
