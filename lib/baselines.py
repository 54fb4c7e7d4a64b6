"""Baselines without a trained model: the most frequent training changes, filled with the step's own nouns."""

from collections import Counter
from collections.abc import Callable, Sequence

from lib.data import Procedure, StateChange
from lib.text import to_sentence


def majority_template(
    train: Sequence[Procedure], procedures: Sequence[Procedure], nouns: Callable[[str], list[str]], templates: int = 1
) -> list[list[list[str]]]:
    """Return predictions that know nothing but frequencies: procedure, step, sentences.

    Parameters
    ----------
    train : sequence of Procedure
        Where (attribute, before, after) are counted.
    procedures : sequence of Procedure
        Whose steps are predicted.
    nouns : callable
        From a step's text to its nouns, see `noun_finder`.
    templates : int
        Every noun gets the most frequent `templates` changes.
    """
    counted = Counter(
        (change.attribute, change.before, change.after)
        for procedure in train
        for step in procedure.steps
        for change in step.changes
    )
    frequent = [parts for parts, _ in counted.most_common(templates)]
    return [
        [
            [to_sentence(StateChange(noun, *parts)) for noun in nouns(step.text) for parts in frequent]
            for step in p.steps
        ]
        for p in procedures
    ]


def noun_finder() -> Callable[[str], list[str]]:
    """Return a function from a text to its distinct nouns, lower case, in order, by spaCy's small English model."""
    from lib.wheels import load_spacy

    model = load_spacy()

    def nouns(text: str) -> list[str]:
        return list(dict.fromkeys(token.lower_ for token in model(text) if token.pos_ in {"NOUN", "PROPN"}))

    return nouns
