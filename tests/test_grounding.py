"""Counting hallucinations, by a detector whose quality is measured and by hand."""

from dataclasses import replace

import numpy as np
import pytest

from lib import cleaning, grounding
from lib.data import StateChange, load_splits
from lib.decoding import with_predictions


@pytest.fixture(scope="module")
def raw():
    return load_splits("openpi", "sample")


@pytest.fixture(scope="module")
def fates(raw):
    results, _ = cleaning.decide(raw, "votes", "", "sample")
    return {split: cleaning.as_decisions(raw[split], results[split]) for split in raw}


@pytest.fixture(scope="module")
def detector(raw, fates):
    return grounding.fit(*((raw[split], fates[split]) for split in ("train", "test")))


@pytest.fixture(scope="module")
def checked(raw, detector):
    spaceship = StateChange("spaceship", "altitude", "on the launch pad", "in orbit around the moon")
    invented = [
        replace(p, steps=tuple(replace(step, changes=(*step.changes[:1], spaceship)) for step in p.steps))
        for p in raw["test"]
    ]
    return {"careful": grounding.check(detector, raw["test"]), "inventive": grounding.check(detector, invented)}


def test_the_detector_says_how_far_it_can_be_trusted(detector, raw, fates):
    quality = detector.quality
    kept = [d for d in fates["test"].of("change").values() if d != "unknown"]
    assert 0 < quality.loc["flagged", "items"] <= len(kept)
    for column in ("share dropped", "share flagged", "recall"):
        assert quality[column].between(0, 1).all()
    with pytest.raises(ValueError, match="0 dropped"):
        grounding.fit(([], fates["train"]), (raw["test"], fates["test"]))


def test_what_the_text_never_mentions_is_found(checked):
    frame = checked["inventive"]
    spaceships = frame.sentence.str.contains("spaceship")
    assert frame[spaceships]["entity not mentioned"].all()
    assert frame[spaceships].probability.mean() > frame[~spaceships].probability.mean()
    assert frame.id.is_unique


def test_rates_are_of_the_same_procedures_with_an_interval_over_them(checked):
    rates = grounding.rates(checked, number=3).set_index(["procedures", "measure", "model"]).sort_index()
    everything = rates.loc["all", "entity not mentioned"]
    assert everything.loc["inventive", "share"] >= 0.4 > everything.loc["careful", "share"]
    assert (everything.low <= everything.share).all()
    assert (everything.share <= everything.high).all()
    some = rates.loc["3 drawn", "flagged"]
    assert (some.texts == 3).all()
    assert (some.changes < rates.loc["all", "flagged"].changes).all()
    frame = checked["inventive"]
    assert everything.loc["inventive", "hallucinated"] == frame["entity not mentioned"].sum()


def test_a_model_that_says_nothing_has_no_rate(detector, raw, checked):
    silent = with_predictions(raw["test"], [[[] for _ in p.steps] for p in raw["test"]])
    empty = grounding.check(detector, silent)
    assert empty.empty
    rates = grounding.rates({"silent": empty, "careful": checked["careful"]})
    silent_rates = rates[rates.model == "silent"]
    assert (silent_rates.changes == 0).all()
    assert np.isnan(silent_rates.share).all()


def test_a_count_by_hand_does_not_tell_the_models_apart_and_asks_nothing_twice(raw):
    one = raw["test"]
    two = [replace(p, steps=tuple(replace(s, changes=s.changes[:1]) for s in p.steps)) for p in one]
    items, origin = grounding.to_count_by_hand({"one": one, "two": two}, number=2, seed=1)
    again, _ = grounding.to_count_by_hand({"two": two, "one": one}, number=2, seed=1)
    assert items == again
    assert len({item.id for item in items}) == len(items)
    assert len({(item.id.rsplit("||", 1)[0], item.statement) for item in items}) == len(items)
    assert len({item.id.split("||")[0] for item in items}) == 2
    assert any(models == ["one", "two"] for models in origin.values())
    votes = {item.id: "certain" for item in items[1:]} | {items[1].id: "impossible"}
    table = grounding.counted(votes, origin)
    assert table.loc["one", "changes"] == len(items)
    assert table.loc["one", "judged"] == len(items) - 1
    assert table.loc["one", "hallucinated"] == 1
