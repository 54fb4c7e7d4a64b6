"""The first notebook's helpers: a procedure as a table, steps of one's own, and what a trained model says to them."""

import pandas as pd

from lib.data import Procedure, Step
from lib.decoding import predict
from lib.generation import Decoding
from lib.models import load_model
from lib.paths import ROOT

# As the laptop's runs decode: beam 4, no 8 tokens twice; no step of the public data has a longer answer.
HOW = Decoding(no_repeat_ngram_size=8, max_new_tokens=300)


def changes_table(procedure: Procedure) -> pd.DataFrame:
    """Return a procedure's state changes, a row each, with the step that makes them."""
    rows = [
        (step.number, step.text, change.entity, change.attribute, change.before, change.after)
        for step in procedure.steps
        for change in step.changes
    ]
    return pd.DataFrame(rows, columns=["step", "text", "entity", "attribute", "before", "after"])


def own_procedure(goal: str, steps: str) -> Procedure:
    """Return a procedure without changes from a goal and steps separated by semicolons.

    Raises
    ------
    ValueError
        If there is no step.
    """
    texts = [text.strip() for text in steps.split(";") if text.strip()]
    if not texts:
        raise ValueError(f"steps={steps!r} holds no step: write them with ; between them")
    return Procedure("own", goal, tuple(Step(number, text, ()) for number, text in enumerate(texts, start=1)))


def say(model: str, procedure: Procedure) -> pd.DataFrame:
    """Return what a trained model predicts for each step of a procedure.

    Parameters
    ----------
    model : str
        A folder, relative to the project, that a run's `keep` left.

    Raises
    ------
    FileNotFoundError
        If there is none, with the command that makes one.
    """
    if not (ROOT / model / "config.json").exists():
        raise FileNotFoundError(
            f"{model} holds no trained model. This trains one and keeps it there, in about an hour on one "
            "core: .venv/bin/python -m lib.runs execute laptop 03_baselines bart"
        )
    net, tokenizer = load_model(str(ROOT / model))
    tokenizer.truncation_side = "left"
    ((*said,),) = predict(net, tokenizer, [procedure], HOW, progress=False)
    rows = [
        (step.number, step.text, sentence) for step, own in zip(procedure.steps, said, strict=True) for sentence in own
    ]
    return pd.DataFrame(rows, columns=["step", "text", "predicted change"])
