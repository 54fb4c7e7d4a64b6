import pytest
import torch

from lib import plots, strategies
from lib.data import ScoredFile, load, scoring
from lib.generation import Decoding, generate
from lib.models import load_seq2seq
from lib.repetition import NoRepeatedChange, pieces

WET = "moisture of teacup was parched before and drenched afterwards"
COLD = "heat of teacup was tepid before and icy afterwards"


def forbidden(tokenizer, texts, start=0):
    """Return, for each row, which tokens the rule forbids next, as text."""
    rule = NoRepeatedChange(tokenizer, start)
    rows = [tokenizer(text, add_special_tokens=False).input_ids for text in texts]
    found = []
    for ids in rows:
        scores = rule(torch.tensor([ids]), torch.zeros(1, len(tokenizer)))
        found.append(
            {tokenizer.decode([token]).strip() for token in torch.isinf(scores[0]).nonzero().flatten().tolist()}
        )
    return found


@pytest.mark.parametrize("name", ["warm:minilm", "tiny"])
def test_only_the_token_that_completes_a_repetition_is_forbidden(name):
    _, tokenizer = load_seq2seq(name)
    unfinished = WET.removesuffix(" afterwards")
    last = tokenizer(" afterwards", add_special_tokens=False).input_ids
    once, other, twice = forbidden(
        tokenizer, [unfinished, f"{WET}, {COLD.removesuffix(' afterwards')}", f"{WET}, {unfinished}"]
    )
    assert once == other == set()
    if len(last) == 1:
        assert twice == {"afterwards"}
    pair = f"{WET}, {WET}"
    ids = tokenizer(pair, add_special_tokens=False).input_ids
    scores = NoRepeatedChange(tokenizer, 0)(torch.tensor([ids[:-1]]), torch.zeros(1, len(tokenizer)))
    assert torch.isinf(scores[0, ids[-1]])  # whatever the last piece of the word is


def test_a_change_may_share_all_but_its_end_with_another():
    _, tokenizer = load_seq2seq("warm:minilm")
    longer = WET.removesuffix(" afterwards") + " and soapy"
    assert forbidden(tokenizer, [f"{WET}, {longer}"]) == [set()]
    # A comma inside a state ends no change.
    inside = "place of cup was on the shelf, top before and on the table afterwards"
    assert forbidden(tokenizer, [f"{inside}, {inside.removesuffix(' afterwards')}"]) == [{"afterwards"}]


def test_rows_keep_their_own_histories_and_the_cache_changes_nothing():
    _, tokenizer = load_seq2seq("warm:minilm")
    first = tokenizer(f"{WET}, {WET}", add_special_tokens=False).input_ids
    second = tokenizer(f"{COLD}, {WET}", add_special_tokens=False).input_ids
    rule = NoRepeatedChange(tokenizer, 1)
    for length in range(1, len(first)):
        rows = torch.tensor([[9, *first[: length - 1]], [9, *second[: length - 1]]])
        rows = rows if length % 2 else rows.flip(0)  # beams change places
        scores = rule(rows, torch.zeros(2, len(tokenizer)))
        fresh = NoRepeatedChange(tokenizer, 1)(rows, torch.zeros(2, len(tokenizer)))
        assert torch.equal(scores, fresh)
    hits = torch.isinf(rule(torch.tensor([[9, *first[:-1]], [9, *second[:-1]]]), torch.zeros(2, len(tokenizer)))).any(1)
    assert hits.tolist() == [True, False]


def test_tokens_are_read_with_the_spaces_that_they_add():
    for name in ("warm:minilm", "tiny"):
        _, tokenizer = load_seq2seq(name)
        known = pieces(tokenizer)
        ids = tokenizer(f"{WET}, {COLD}", add_special_tokens=False).input_ids
        assert "".join(known[token] for token in ids).strip() == f"{WET}, {COLD}"


@pytest.fixture(scope="module")
def decoder():
    model, tokenizer = load_seq2seq("tiny")
    return strategies.StepDecoder(model, tokenizer, load("openpi-c", "test", "sample"), number=4)


HOW = Decoding(max_new_tokens=12, no_repeat_ngram_size=5)


def test_the_same_steps_are_decoded_in_every_way(decoder, clusterer):
    ids = [example.id for example in decoder.examples]
    again = strategies.StepDecoder(decoder.model, decoder.tokenizer, load("openpi-c", "test", "sample"), number=4)
    assert [example.id for example in again.examples] == ids
    references = scoring.references("openpi-c", "test", "sample")
    assert list(decoder.of(references).sentences) == ids
    compared = strategies.compare(decoder, strategies.strategies(HOW), references, "sample/test", clusterer, seeds=2)
    assert compared.groupby("way", sort=False).size().to_dict() == {
        "top-p 0.9": 2, "top-p 0.5": 2, "top-k 10": 2, "top-k 5": 2, "beam 4": 1, "as chosen on dev": 1,
    }  # fmt: skip
    table = strategies.summary(compared, ["cluster_bleu_f1", "outputs_per_step"])
    assert ["±" in cell for cell in table["cluster_bleu_f1"]] == [True] * 4 + [False] * 2
    beam = compared[compared.way == "beam 4"].iloc[0]
    assert table.loc["beam 4", "cluster_bleu_f1"] == f"{100 * beam.cluster_bleu_f1:.1f}"
    assert table.loc["beam 4", "outputs_per_step"] == f"{beam.outputs_per_step:.1f}"
    assert compared["tokens_per_step"].between(1, 12).all()
    drawn = plots.outputs_and_scores(compared).axes[1].lines[0]
    assert sorted(drawn.get_ydata()) == pytest.approx(sorted(100 * compared["cluster_rouge_l_precision"]))


def test_ways_of_decoding_are_what_they_say():
    ways = strategies.strategies(HOW)
    assert all(ways[name].no_repeat_ngram_size == 0 for name in strategies.STRATEGIES)
    assert ways["as chosen on dev"] == HOW
    assert [way.length_penalty for way in strategies.length_penalties(HOW, "0.2,1.0, 2.0").values()] == [0.2, 1.0, 2.0]
    none, ngram, ours = strategies.repetition_rules(HOW).values()
    assert (none.no_repeat_ngram_size, ngram.no_repeat_ngram_size, ours.no_repeat_ngram_size) == (0, 5, 0)
    assert (none.no_repeated_change, ngram.no_repeated_change, ours.no_repeated_change) == (False, False, True)


def test_the_rule_is_off_by_default_and_reaches_generation(decoder):
    seen = []

    class Spy(NoRepeatedChange):
        def __call__(self, input_ids, scores):
            seen.append(tuple(input_ids.shape))
            return super().__call__(input_ids, scores)

    prompts = [example.prompt for example in decoder.examples]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lib.generation.NoRepeatedChange", Spy)
        plain = generate(decoder.model, decoder.tokenizer, prompts, Decoding(max_new_tokens=6))
        assert seen == []
        ruled = generate(decoder.model, decoder.tokenizer, prompts, Decoding(max_new_tokens=6, no_repeated_change=True))
    assert seen[0] == (16, 1)  # four steps, four beams, the start token
    assert ruled == plain  # nothing was finished, so nothing was forbidden


def test_repetition_moves_the_original_score_and_not_the_cluster_based_one(clusterer):
    from lib.metrics import cluster_f1, openpi_f1

    gold = [[WET, COLD, "place of cloth was on the hook before and in the hand afterwards"]]
    predicted = ScoredFile({"u||1": [WET, "age of sink was young before and old afterwards"]})
    best = strategies.duplicated(predicted, 4, chosen={"u||1": [WET]})
    assert len(best.sentences["u||1"]) == 2 + 3
    assert len(set(best.sentences["u||1"])) == 5
    original = [openpi_f1([file.sentences["u||1"]], gold).precision for file in (predicted, best)]
    clustered = [
        cluster_f1([file.sentences["u||1"]], gold, clusterer=clusterer).precision for file in (predicted, best)
    ]
    assert original[1] > original[0] + 0.2
    assert clustered[1] <= clustered[0] + 1e-9
    assert strategies.duplicated(predicted, 1) == predicted
    with pytest.raises(ValueError, match="times=9: expected 1 to 8"):
        strategies.duplicated(predicted, 9)


def test_the_repetition_curve_starts_where_the_predictions_are(clusterer):
    gold = ScoredFile({"u||1": [WET, COLD], "u||2": []})
    predicted = ScoredFile({"u||1": [WET, "age of sink was young before and old afterwards"], "u||2": []})
    curve = strategies.repetition_curve(predicted, gold, "x/test", clusterer, largest=3)
    assert curve.groupby("repeated").size().to_dict() == {"every prediction": 3, "the best one": 3}
    start = curve[curve.times == 1]
    assert start.original.nunique() == start.cluster.nunique() == 1
    best = curve[curve.repeated == "the best one"]
    assert best.original.is_monotonic_increasing
    assert best.original.iloc[-1] > best.original.iloc[0]
    assert best.cluster.max() <= best.cluster.iloc[0] + 1e-9
    figure = plots.repetition(curve)
    for axis, (_, rows) in zip(figure.axes, curve.groupby("repeated", sort=False), strict=True):
        drawn = {line.get_label(): line.get_ydata().tolist() for line in axis.lines}
        assert drawn == {"original": (100 * rows.original).tolist(), "cluster-based": (100 * rows.cluster).tolist()}
        low, high = axis.get_ylim()
        assert low == 0
        assert high > 100 * curve[["original", "cluster"]].to_numpy().max()
