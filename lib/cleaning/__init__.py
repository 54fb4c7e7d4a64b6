"""Cleaning procedural data: votes to stage decisions to a cleaned data set, agreement, and what a release did.

`clean` applies the OpenPI-C paper's three stages to any data in the OpenPI format; `derive_decisions` reads off the
released OpenPI-C what became of every item. `lib.cleaning.screens` holds the annotation screens.
"""

from lib.cleaning.agreement import agreement
from lib.cleaning.export import to_openpi_c
from lib.cleaning.items import CHOICES, DROPPED, KEPT, STAGES, Dropped, change_id, item_ids, without_markup
from lib.cleaning.release import HOW, bounds, compare, derive_decisions, shares
from lib.cleaning.splits import (
    TITLES,
    all_bounds,
    all_reasons,
    as_decisions,
    as_records,
    clean_splits,
    comparison,
    decide,
    derive_splits,
    flow,
    release_of,
    remainders,
    save,
)
from lib.cleaning.stages import CleaningResult, Decisions, Rules, clean, sizes, to_judge

__all__ = [
    "CHOICES", "DROPPED", "HOW", "KEPT", "STAGES", "TITLES", "CleaningResult", "Decisions", "Dropped", "Rules",
    "agreement", "all_bounds", "all_reasons", "as_decisions", "as_records", "bounds", "change_id", "clean",
    "clean_splits", "compare", "comparison", "decide", "derive_decisions", "derive_splits", "flow", "item_ids",
    "release_of", "remainders", "save", "shares", "sizes", "to_judge", "to_openpi_c", "without_markup",
]  # fmt: skip
