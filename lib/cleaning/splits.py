"""All splits of a data set at once.

`clean_splits` cleans them; `derive_splits`, `comparison` and `remainders` hold them against a release.
"""

import json
from collections.abc import Mapping, Sequence

import pandas as pd

from lib.cleaning.export import to_openpi_c
from lib.cleaning.items import CHOICES, DROPPED, KEPT, RULES, STAGES, item_ids
from lib.cleaning.release import BOUNDS, HOW, DerivedDecisions, bounds, compare, derive_decisions
from lib.cleaning.stages import CleaningResult, Decisions, Rules, clean
from lib.data import Procedure, load_splits
from lib.data.procedures import root_of
from lib.paths import ROOT, SAMPLE
from lib.results import Run
from lib.votes import Vote, read_votes

Splits = Mapping[str, Sequence[Procedure]]
#: What the flow chart says of each row, by where the decisions come from.
TITLES = {
    "votes": {
        "procedure": "Stage 1: no procedure",
        "step": "Stage 2: invalid steps",
        "change": "Stage 3: uncertain or impossible",
        "rules": "Rules: empty steps, short procedures",
    },
    "release": {
        "procedure": "Procedures missing from the release",
        "step": "Steps missing from its procedures",
        "change": "Changes missing from its steps",
        "rules": "Rules: empty steps, short procedures",
    },
}
TEXTS = ("identical", "markup removed", "edited")


def clean_splits(
    raw: Splits,
    votes: Sequence[Vote] | None = None,
    decisions: Mapping[str, Decisions] | None = None,
    rules: Rules | None = None,
) -> dict[str, CleaningResult]:
    """Return the cleaned splits; votes of all splits may stand in one file, decisions come a split.

    Raises
    ------
    ValueError
        As `clean`.
    """
    place = {procedure.id: split for split, procedures in raw.items() for procedure in procedures}
    by_split: dict[str, list[Vote]] = {split: [] for split in raw}
    for vote in votes or ():
        if (url := vote.item.split("||")[0]) not in place:
            raise ValueError(f"votes: {vote.stage} {vote.item!r} is in none of {', '.join(raw)}")
        by_split[place[url]].append(vote)
    return {
        split: clean(
            procedures,
            votes=None if votes is None else by_split[split],
            decisions=decisions[split] if decisions is not None else None,
            rules=rules,
        )
        for split, procedures in raw.items()
    }


def decide(raw: Splits, decisions: str, votes: str, data: str) -> tuple[dict[str, CleaningResult], list[Vote]]:
    """Return the cleaned splits, and the votes where votes decided.

    Parameters
    ----------
    raw : mapping
        Split -> procedures.
    decisions : {"votes", "release"}
        Clean by votes, or by what the released OpenPI-C of the same data shows.
    votes : str
        The votes file; empty for the sample's.
    data : str
        See `lib.data.procedures.root_of`.
    """
    if decisions not in TITLES:
        raise ValueError(f"decisions={decisions!r}: expected one of {', '.join(TITLES)}")
    if decisions == "release":
        if not (released := release_of(data)):
            raise ValueError(f"decisions='release': there is no openpi-c/ in data={data!r} to read them off")
        if missing := raw.keys() - released.keys():
            raise ValueError(f"decisions='release': data={data!r} has no openpi-c/{sorted(missing)[0]}.jsonl")
        return clean_splits(raw, decisions=derive_splits(raw, released)), []
    if not votes and data != "sample":
        raise ValueError(f"votes is empty: only the sample brings votes; name the votes file for data={data!r}")
    everything = [procedure for procedures in raw.values() for procedure in procedures]
    given = read_votes(ROOT / votes if votes else SAMPLE / "votes.jsonl", CHOICES, item_ids(everything))
    return clean_splits(raw, votes=given), given


def release_of(data: str) -> dict[str, list[Procedure]]:
    """Return the released OpenPI-C of some data; nothing for a folder that has none."""
    root = root_of(data)
    return load_splits("openpi-c", data) if root is None or (root / "openpi-c").is_dir() else {}


def derive_splits(raw: Splits, released: Splits) -> dict[str, DerivedDecisions]:
    """Return the decisions that a release implies, for every split that it has."""
    return {split: derive_decisions(raw[split], procedures) for split, procedures in released.items() if split in raw}


def flow(results: Mapping[str, CleaningResult]) -> pd.DataFrame:
    """Return procedures, steps and changes left after each stage, splits added."""
    return sum(result.flow for result in results.values())


def all_reasons(results: Mapping[str, CleaningResult]) -> pd.DataFrame:
    """Return how many items were dropped at each stage, for each kind and reason, splits added."""
    every = [item for result in results.values() for item in result.dropped]
    frame = pd.DataFrame([vars(item) for item in every], columns=["kind", "item", "stage", "reason"])
    order = {stage: place for place, stage in enumerate((*STAGES, RULES))}
    grouped = frame.groupby(["stage", "kind", "reason"], sort=False).size().rename("items").to_frame()
    return grouped.sort_index(level="stage", key=lambda stages: stages.map(order), kind="stable", sort_remaining=False)


def all_bounds(raw: Splits, derived: Mapping[str, Decisions]) -> pd.DataFrame:
    """Return what each stage can have dropped, see `bounds`, splits added; empty without decisions."""
    frames = [bounds(raw[split], decisions) for split, decisions in derived.items()]
    return sum(frames[1:], start=frames[0]) if frames else pd.DataFrame(columns=BOUNDS)


def as_decisions(procedures: Sequence[Procedure], result: CleaningResult) -> Decisions:
    """Return what became of every item, in the form that `derive_decisions` gives."""
    gone = {item.item for item in result.dropped}
    fates = {
        stage: {item: DROPPED if item in gone else KEPT for item in items}
        for stage, items in item_ids(procedures).items()
    }
    return Decisions(*(fates[stage] for stage in STAGES))


def comparison(results: Mapping[str, CleaningResult], released: Splits) -> pd.DataFrame:
    """Return how much of a release cleaning reproduces: `same` of `released`, by split and kind."""
    rows = [
        (split, kind, *pair)
        for split, result in results.items()
        if split in released
        for kind, pair in compare(result.procedures, released[split]).items()
    ]
    frame = pd.DataFrame(rows, columns=["split", "kind", "same", "released"]).set_index(["split", "kind"])
    return frame.assign(share=frame.same / frame.released)


def remainders(decisions: Mapping[str, DerivedDecisions]) -> pd.DataFrame:
    """Return how the released step texts and changes were found in the original, by split."""
    return pd.DataFrame(
        {
            split: {
                **{f"step text: {kind}": found.texts[kind] for kind in TEXTS},
                **{f"change: {kind}": found.found[kind] for kind in HOW},
            }
            for split, found in decisions.items()
        }
    )


def save(run: Run, results: Mapping[str, CleaningResult]) -> list[str]:
    """Write the cleaned splits, what was dropped and the votes on what remains; return what could not be written.

    `openpi-c/<split>.jsonl` can be read as data: give the run's folder to a loader or a later notebook.
    """
    left_out = []
    for split, result in results.items():
        text, lost = to_openpi_c(result.procedures)
        run.save(f"openpi-c/{split}.jsonl", text)
        left_out += lost
    for name, kind in (("dropped.jsonl", "dropped"), ("remaining_votes.jsonl", "votes")):
        rows = [vars(row) for result in results.values() for row in getattr(result, kind)]
        run.save(name, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return left_out


def as_records(frames: Mapping[str, pd.DataFrame]) -> dict[str, list[dict]]:
    """Return what `metrics.json` holds of tables: a list of rows a table."""
    return {name: frame.reset_index().to_dict("records") for name, frame in frames.items()}
