"""The first notebook's helpers, and what a step's scores are made of."""

import numpy as np
import pytest

from lib import first_look
from lib.data import load_openpi_c
from lib.metrics import cluster_f1, openpi_f1
from lib.metrics.explain import best_matches, cluster_matches
from lib.models import load_seq2seq

GOLD = [
    "location of kite was in attic before and over dunes afterwards",
    "heat of anvil was tepid before and glowing afterwards",
]
SAID = [
    GOLD[0],
    GOLD[0],
    "place of kite was in attic before and over dunes afterwards",
    "mood of kite was dull before and merry afterwards",
]


def by_place(sentences):
    """Cluster by the state after."""
    ends = [sentence.split(" and ")[1] for sentence in sentences]
    return [list(dict.fromkeys(ends)).index(end) for end in ends]


def test_the_means_of_the_matches_are_the_steps_precision_and_recall():
    found = best_matches(SAID, GOLD)
    scores = openpi_f1([SAID], [GOLD])
    means = found.groupby("side").match.mean()
    assert (means["predicted"], means["gold"]) == pytest.approx((scores.precision, scores.recall))
    assert found.loc[0, "best match"] == GOLD[0]
    assert len(found) == 5
    nothing = best_matches([], GOLD, "exact")
    assert (nothing.match == 0).all()
    assert (nothing["best match"] == "").all()


@pytest.mark.parametrize(("said", "gold"), [(SAID, GOLD), (SAID, []), ([], GOLD), (GOLD, GOLD[:1])])
def test_the_sum_of_cluster_matches_gives_the_cluster_based_score(said, gold):
    found = cluster_matches(said, gold, clusterer=by_place)
    sides = {side: int((found[side] != "").sum()) for side in ("predicted", "gold")}
    assert sides["predicted"] == len(set(by_place(sorted(set(said)))))
    if said and gold:
        scores = cluster_f1([said], [gold], clusterer=by_place)
        expected = found.match.sum() / np.array([sides["predicted"], sides["gold"]])
        assert expected == pytest.approx([scores.precision, scores.recall])


def test_a_procedure_becomes_a_table_and_own_steps_a_procedure(sample):
    procedure = load_openpi_c("test", root=sample)[0]
    table = first_look.changes_table(procedure)
    assert len(table) == sum(len(step.changes) for step in procedure.steps)
    own = first_look.own_procedure("Rest", " Sit.; Sleep. ;")
    assert [(step.number, step.text) for step in own.steps] == [(1, "Sit."), (2, "Sleep.")]
    with pytest.raises(ValueError, match="holds no step"):
        first_look.own_procedure("Rest", " ; ")


def test_a_model_folder_speaks_and_a_missing_one_names_the_command(tmp_path, monkeypatch):
    monkeypatch.setattr(first_look, "ROOT", tmp_path)
    monkeypatch.setattr(first_look, "HOW", first_look.Decoding(max_new_tokens=8))
    own = first_look.own_procedure("Rest", "Sit.; Sleep.")
    with pytest.raises(FileNotFoundError, match="python -m lib.runs execute laptop 03_baselines bart"):
        first_look.say("models/bart", own)
    for part in load_seq2seq("tiny"):
        part.save_pretrained(tmp_path / "models" / "bart")
    said = first_look.say("models/bart", own)
    assert list(said.columns) == ["step", "text", "predicted change"]
