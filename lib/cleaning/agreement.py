"""How far annotators agree: the paper's share of unanimous items, Fleiss' kappa and Krippendorff's alpha beside it."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from lib.votes import Vote

COLUMNS = ("items", "annotators", "unanimous", "majority share", "fleiss_kappa", "krippendorff_alpha")


def agreement(votes: Sequence[Vote], choices: Mapping[str, Sequence[str]]) -> pd.DataFrame:
    """Return agreement by stage.

    Parameters
    ----------
    votes : sequence of Vote
    choices : mapping
        Stage -> possible answers.

    Returns
    -------
    DataFrame
        A row a stage that has an item with two votes or more. `unanimous`: share of such items on which all agree, in
        [0, 1], as the OpenPI-C paper defines agreement. `majority share`: share of the most frequent answer, which
        is what raw agreement rises with even if nobody looks at the items. `fleiss_kappa` and `krippendorff_alpha`
        (nominal) correct for that: 1 is perfect, 0 is chance, and they are NaN where all say the same of everything.
        Kappa needs equally many votes an item and leaves out items with fewer votes than most.
    """
    rows = {}
    for stage, answers in choices.items():
        by_item: dict[str, list[Vote]] = defaultdict(list)
        for vote in votes:
            if vote.stage == stage:
                by_item[vote.item].append(vote)
        several = {item: given for item, given in by_item.items() if len(given) > 1}
        if several:
            rows[stage] = _row(list(several.values()), list(answers))
    return pd.DataFrame.from_dict(rows, orient="index", columns=list(COLUMNS))


def _row(items: Sequence[Sequence[Vote]], answers: list[str]) -> tuple[float, ...]:
    """Return one stage's agreement."""
    import krippendorff
    from statsmodels.stats.inter_rater import fleiss_kappa

    counts = np.zeros((len(items), len(answers)), dtype=int)
    for row, votes in enumerate(items):
        for vote in votes:
            counts[row, answers.index(vote.vote)] += 1
    totals = counts.sum(axis=1)
    usual = counts[totals == np.bincount(totals).argmax()]
    varied = (counts.sum(axis=0) > 0).sum() > 1
    return (
        len(items),
        len({vote.annotator for votes in items for vote in votes}),
        float((counts.max(axis=1) == totals).mean()),
        float(counts.sum(axis=0).max() / counts.sum()),
        float(fleiss_kappa(usual)) if (usual.sum(axis=0) > 0).sum() > 1 else float("nan"),
        float(krippendorff.alpha(value_counts=counts, level_of_measurement="nominal")) if varied else float("nan"),
    )
