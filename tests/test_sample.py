from collections import Counter

import pytest

from lib.data import load_openpi, load_openpi_c, read_scored
from lib.data.lines import read_jsonl
from lib.data.procedures import count
from lib.metrics import bcubed
from lib.sample.build import build
from lib.text import to_sentence

SPLITS = ("train", "dev", "test")


def test_the_files_are_what_the_builder_makes_of_the_hand_written_source(sample, tmp_path):
    for path in build(tmp_path):
        assert path.read_bytes() == (sample / path.relative_to(tmp_path)).read_bytes(), path.name


def test_it_has_the_size_that_it_promises(sample):
    procedures = [procedure for split in SPLITS for procedure in load_openpi(split, root=sample)]
    assert len(procedures) >= 24
    for procedure in procedures:
        assert 3 <= len(procedure.steps) <= 7, procedure.id
        assert all(len(step.sentences) in {0, 2, 3, 4, 5, 6} for step in procedure.steps), procedure.id


def test_every_kind_of_problem_is_planted(sample):
    kinds = Counter(row["kind"] for _, row in read_jsonl(sample / "problems.jsonl"))
    assert set(kinds) == {"not_procedure", "out_of_order", "not_executable", "no_change", "uncertain", "impossible"}
    assert kinds["uncertain"] + kinds["impossible"] >= 20
    changes = [c for s in SPLITS for p in load_openpi(s, root=sample) for step in p.steps for c in step.changes]
    rows = [row["id"] for split in SPLITS for _, row in read_jsonl(sample / f"openpi/gold/{split}/id_answers.jsonl")]
    assert any("&#x27;" in identifier for identifier in rows)
    assert any("," in change.entity for change in changes)
    assert any(" of " in change.entity for change in changes)
    assert any(not to_sentence(change).isascii() for change in changes)


@pytest.mark.parametrize("split", SPLITS)
def test_the_cleaned_format_holds_raw_steps_without_the_planted_problems(sample, split):
    raw = {(p.id, step.text): step for p in load_openpi(split, root=sample) for step in p.steps}
    cleaned = load_openpi_c(split, root=sample)
    assert 0 < count(cleaned)[2] < sum(len(step.sentences) for step in raw.values())
    planted = {row.get("answer") for _, row in read_jsonl(sample / "problems.jsonl")}
    for procedure in cleaned:
        assert len(procedure.steps) >= 3
        for step in procedure.steps:
            original = raw[procedure.id, step.text]
            left = Counter(original.sentences) - Counter(step.sentences)
            assert step.sentences
            assert not Counter(step.sentences) - Counter(original.sentences)
            assert set(left) <= planted


def test_twenty_steps_were_clustered_by_hand_and_the_clusterer_agrees_with_most(sample, clusterer):
    gold = read_scored(sample / "clusters.jsonl")
    assert len(gold.sentences) == 20
    raw = {
        f"{p.id}||{s.number}": set(s.sentences)
        for split in SPLITS
        for p in load_openpi(split, root=sample)
        for s in p.steps
    }
    for name, sentences in gold.sentences.items():
        assert set(sentences) == raw[name]
        assert sentences == sorted(sentences)
    labels = list(gold.clusters.values())
    merging = sum(len(set(step)) < len(step) for step in labels)
    assert 0 < merging < 20  # some steps merge, some do not: neither trivial answer is right
    ours = bcubed([clusterer(step) for step in gold.sentences.values()], labels).f1
    alone = bcubed([list(range(len(step))) for step in labels], labels).f1
    together = bcubed([[0] * len(step) for step in labels], labels).f1
    assert ours > max(alone, together)
