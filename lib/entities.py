"""Which entities a step speaks of: `entities_of` reads them out of sentences, `entity_scores` compares two sets."""

from collections.abc import Sequence

import numpy as np

from lib.text import PRESETS, parse_sentences

DETERMINERS = {
    "a", "an", "the", "this", "that", "these", "those", "some",
    "my", "your", "his", "her", "its", "our", "their",
}  # fmt: skip


def entities_of(sentences: Sequence[str], preset: str = "released") -> list[str]:
    """Return the entities of a step's sentences, sorted, each once.

    Parameters
    ----------
    sentences : sequence of str
        Those that cannot be parsed name no entity.
    preset : {"released", "safe"}
        `released`: exact strings. `safe`: entities that differ in case, white space or a determiner alone (`the oil`,
        `oil`) are one, under its shortest name.
    """
    names = {change.entity for change in parse_sentences(sentences, preset)}
    if preset == "released":
        return sorted(names)
    merged: dict[str, str] = {}
    for name in sorted(names, key=lambda name: (len(name), name)):
        merged.setdefault(normalised(name), name)
    return sorted(merged.values())


def normalised(entity: str) -> str:
    """Return an entity in lower case without determiners at its beginning; as it is where nothing would be left.

    Examples
    --------
    >>> normalised("The  hot oil"), normalised("oil"), normalised("this")
    ('hot oil', 'oil', 'this')
    """
    words = entity.lower().split()
    kept = list(words)
    while kept and kept[0] in DETERMINERS:
        kept.pop(0)
    return " ".join(kept or words)


def entity_scores(
    predicted: Sequence[Sequence[str]], gold: Sequence[Sequence[str]], preset: str = "released"
) -> dict[str, float]:
    """Return precision, recall and F1 of finding a step's entities, means over steps as in the original metric.

    Parameters
    ----------
    predicted, gold : sequences of sequences of str
        Entities, one sequence a step.
    preset : {"released", "safe"}
        Whether names must be equal or equal after `normalised`.

    Returns
    -------
    dict
        In [0, 1]. A step without predictions has precision 1, one without gold recall 1: nothing wrong was said, and
        nothing was missed. F1 is of the two means.
    """
    if preset not in PRESETS:
        raise ValueError(f"preset={preset!r}: expected one of {', '.join(PRESETS)}")
    if len(predicted) != len(gold) or not len(gold):
        raise ValueError(f"{len(predicted)} predicted and {len(gold)} gold steps: give one list a step, at least one")
    rows = []
    for ours, theirs in zip(predicted, gold, strict=True):
        said, true = ({normalised(e) if preset == "safe" else e for e in some} for some in (ours, theirs))
        both = len(said & true)
        rows.append((both / len(said) if said else 1.0, both / len(true) if true else 1.0))
    precision, recall = np.mean(rows, axis=0)
    total = precision + recall
    return {
        "precision": float(precision),
        "recall": float(recall),
        "f1": float(2 * precision * recall / total) if total else 0.0,
    }
