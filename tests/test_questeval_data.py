"""What Token QuestEval learns from and is judged on: readers, masked examples, parts, training, the study."""

import gzip
import json

import numpy as np
import pytest

from lib import training
from lib.data.examples import Example
from lib.data.judgements import load_ranked, load_summeval, matched, pairs_path
from lib.models import load_seq2seq
from lib.token_questeval import MASK, SEPARATOR, Filler, TokenQuestEval, learning, prepare, study
from lib.token_questeval.examples import masked_examples, read_examples, write_parts
from lib.token_questeval.pairs import read_parabank1, read_parabank2, read_tsv, read_wmt

PAIRS = [("the cat leaped .", "it jumps"), ("a fox slept", "a fox was asleep"), ("", "nothing")]


# Readers


def test_tsv_is_read_packed_or_not_and_a_wrong_line_is_named(tmp_path):
    text = "a b\tc\n d \t e\u2028f \n"
    (tmp_path / "p.tsv").write_text(text, encoding="utf-8")
    with gzip.open(tmp_path / "p.tsv.gz", "wt", encoding="utf-8") as file:
        file.write(text)
    for name in ("p.tsv", "p.tsv.gz"):
        assert list(read_tsv(tmp_path / name)) == [("a b", "c"), ("d", "e\u2028f")]
    (tmp_path / "wrong.tsv").write_text("a\tb\nc\n")
    with pytest.raises(ValueError, match=r"wrong\.tsv, line 2: 1 fields"):
        list(read_tsv(tmp_path / "wrong.tsv"))


def test_parabank_1_takes_the_first_paraphrase_above_the_threshold_detokenised(tmp_path):
    lines = ["it is a cat .\tit is a cat .\tthat 's a cat .\ta cat it is .", "no .\tnope ."]
    scores = [[0.9, 0.69, 0.7], [0.2]]
    (tmp_path / "p.tsv").write_text("\n".join(lines) + "\n")
    meta = tmp_path / "p.meta"
    meta.write_text("".join(json.dumps({"paraphrases": [{"model_score": s} for s in row]}) + "\n" for row in scores))
    assert list(read_parabank1(tmp_path / "p.tsv", meta)) == [("a cat it is.", "it is a cat.")]
    assert next(read_parabank1(tmp_path / "p.tsv", meta, threshold=0.6)) == ("that's a cat.", "it is a cat.")
    meta.write_text(meta.read_text().splitlines()[0] + "\n")
    with pytest.raises(ValueError, match="not as many lines"):
        list(read_parabank1(tmp_path / "p.tsv", meta))
    meta.write_text('{"paraphrases": []}\n' * 2)
    with pytest.raises(ValueError, match="line 1: 3 paraphrases, but 0 scores"):
        list(read_parabank1(tmp_path / "p.tsv", meta))


def test_parabank_2_draws_one_paraphrase_by_seed_and_line(tmp_path):
    (tmp_path / "p.tsv").write_text("0.01\ta\tb\tc\td\n0.02\tonly\n" * 50)
    drawn = list(read_parabank2(tmp_path / "p.tsv"))
    assert len(drawn) == 50
    assert {first for first, _ in drawn} == {"b", "c", "d"}
    assert {second for _, second in drawn} == {"a"}
    assert drawn == list(read_parabank2(tmp_path / "p.tsv")) != list(read_parabank2(tmp_path / "p.tsv", seed=1))


@pytest.mark.parametrize(("year", "reference"), [(14, "newstest2014-ref.cs-en"), (17, "newstest2017-csen-ref.en")])
def test_wmt_is_read_by_system_and_language(tmp_path, year, reference):
    references, systems = tmp_path / "txt" / "references", tmp_path / "txt" / "system-outputs" / "cs-en"
    for folder in (references, systems):
        folder.mkdir(parents=True)
    (references / reference).write_text("one\ntwo\n")
    (references / f"newstest20{year}-encs-ref.cs").write_text("jedna\n")
    for system in ("A", "B.1"):
        (systems / f"newstest20{year}.{system}.cs-en").write_text(f"{system} 1\n{system} 2\n")
    assert list(read_wmt(tmp_path, year)) == [("A 1", "one"), ("A 2", "two"), ("B.1 1", "one"), ("B.1 2", "two")]
    (systems / f"newstest20{year}.A.cs-en").write_text("short\n")
    with pytest.raises(ValueError, match=r"newstest20\d\d\.A\.cs-en and .* not as many lines"):
        list(read_wmt(tmp_path, year))
    with pytest.raises(ValueError, match="holds no newstest2018"):
        list(read_wmt(tmp_path, 18))


# Masked examples


def test_words_are_masked_over_both_texts_in_both_orders_one_each():
    examples = list(masked_examples(PAIRS))
    assert [example.id for example in examples] == ["0:0:0", "0:1:0", "1:0:0", "1:1:0"]
    for example, text in zip(
        examples, ["the cat leaped . <sep> it jumps", "it jumps <sep> the cat leaped ."], strict=False
    ):
        assert example.prompt.count(MASK) == 1
        assert " ".join(example.prompt.replace(MASK, example.target).split()) == text
    many = list(masked_examples(PAIRS[:1] * 60))
    assert {e.target for e in many if e.id.split(":")[1] == "0"} == {"the", "cat", "leaped", ".", "it", "jumps"}


def test_segments_are_masked_as_the_metric_masks_and_the_other_text_follows():
    examples = list(masked_examples(PAIRS, form="segments", masks=2))
    assert len(examples) == 8
    for example in examples:
        segment, _, other = example.prompt.partition(f" {SEPARATOR} ")
        first, second = PAIRS[int(example.id[0])][:: -1 if example.id[2] == "1" else 1]
        assert other == second
        assert segment.replace(MASK, example.target) == first
    assert examples[0].target != examples[1].target


def test_masks_depend_on_the_seed_and_the_place_alone_and_long_pairs_are_passed_over():
    assert list(masked_examples(PAIRS)) == list(masked_examples(iter(PAIRS)))
    fifty = [PAIRS[0]] * 50
    assert list(masked_examples(fifty)) != list(masked_examples(fifty, seed=1))
    assert list(masked_examples(fifty))[:20] == list(masked_examples(fifty[:10]))
    assert list(masked_examples([("a " * 101, "b"), ("", "b")])) == []
    assert len(list(masked_examples([("a " * 100, "b")]))) == 2
    with pytest.raises(ValueError, match="form='tokens'"):
        list(masked_examples(PAIRS, form="tokens"))


def test_pairs_are_streamed():
    taken = []
    pairs = (taken.append(n) or ("a b", "c d") for n in range(10**7))
    examples = masked_examples(pairs)
    for _ in range(10):
        next(examples)
    assert len(taken) < 2000


def test_parts_are_written_in_the_released_format_and_read_again(tmp_path):
    examples = [Example(f"{n}:0:0", f"a {MASK} {SEPARATOR} {n}", "é") for n in range(5)]
    written = write_parts(iter(examples), tmp_path / "x.masked-examples.jsonl", 2)
    assert [path.name for path in written] == [f"x.masked-examples.jsonl.part-{n}" for n in range(3)]
    first = json.loads(written[0].read_text().splitlines()[0])
    assert first == {"id": "0:0:0", "context": "", "qas": [{"question": f"a {MASK} {SEPARATOR} 0", "answer": "é"}]}
    read = [example for path in written for example in read_examples(path)]
    assert [(e.prompt, e.target) for e in read] == [(e.prompt, e.target) for e in examples]
    assert len(write_parts(iter(examples[:2]), tmp_path / "x.masked-examples.jsonl", 2)) == 1
    assert len(list(tmp_path.iterdir())) == 1  # parts of the longer call are gone, nothing temporary stays
    with pytest.raises(ValueError, match="size=0"):
        write_parts(iter(examples), tmp_path / "x", 0)


def test_a_context_of_its_own_is_put_behind_the_separator_and_a_maskless_line_is_named(tmp_path):
    path = tmp_path / "part"
    path.write_text(json.dumps({"id": 1, "context": "C c", "qas": [{"question": f"{MASK} b", "answer": "a"}]}) + "\n")
    assert read_examples(path)[0].prompt == f"{MASK} b {SEPARATOR} C c"
    path.write_text(json.dumps({"id": 1, "context": "", "qas": [{"question": "b", "answer": "a"}]}) + "\n")
    with pytest.raises(ValueError, match=r"part, line 1: qas\[0\] has no <mask>"):
        read_examples(path)


def test_what_is_held_out_shares_no_reference_with_what_is_learned_from():
    pairs = [(f"h{n}", f"r{n // 3}") for n in range(60)]
    learned, kept = learning.split_pairs(pairs, 7)
    assert len(kept) == 9
    assert len(learned) + len(kept) == 60
    assert not {r for _, r in learned} & {r for _, r in kept}
    assert (learned, kept) == learning.split_pairs(pairs, 7)
    with pytest.raises(ValueError, match="nothing is left"):
        learning.split_pairs(pairs, 60)


# Learning


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts")
    pairs = read_tsv(pairs_path("wmt19/xx-en", "sample"))
    return folder, write_parts(masked_examples(pairs, masks=2), folder / "x.jsonl", 40)


def test_a_model_learns_from_streamed_parts_and_resumes(parts, tmp_path):
    folder, written = parts
    files, kept = learning.material_of_parts(folder, 10)
    assert (len(files), len(kept)) == (len(written) - 1, min(10, len(read_examples(written[-1]))))
    assert learning.updates_for(files, 2, 8) == 2 * sum(len(read_examples(path)) for path in files) // 8
    model, tokenizer = load_seq2seq("tiny-t5", dropout=0.0)
    prepare(model, tokenizer)
    settings = training.Settings(learning_rate=5e-3, batch_size=8, updates=12, evaluate_every=6)
    dev = learning.rows(tokenizer, kept)
    report = training.fit(model, tokenizer, learning.streamed(tokenizer, files), dev, tmp_path, settings)
    assert report.updates == 12
    assert report.train_loss < 7
    with pytest.raises(ValueError, match="holds 0 files"):
        learning.material_of_parts(tmp_path, 10)


def test_a_trained_model_fills_what_it_learned_and_the_blanked_text_is_another_question(tmp_path):
    """Eight answers that only the other text tells apart: right with it, at most one in eight without."""
    words = ["salt", "pan", "oil", "bowl", "oven", "pot", "knife", "towel"]
    examples = [Example(f"{n}:0:0", f"Take the {MASK} . {SEPARATOR} {word}", word) for n, word in enumerate(words)]
    model, tokenizer = load_seq2seq("tiny-t5", dropout=0.0)
    prepare(model, tokenizer)
    settings = training.Settings(learning_rate=5e-3, batch_size=8, updates=300, evaluate_every=150, precision="fp32")
    rows = learning.rows(tokenizer, examples)
    training.fit(
        model, tokenizer, rows, rows, tmp_path, settings, score=learning.accuracy_scorer(tokenizer, examples, 8)
    )
    accuracy = learning.fill_accuracy(Filler(model, tokenizer), examples, examples)
    assert accuracy.exact == accuracy.content == 1
    assert accuracy.blanked <= 1 / 8
    assert accuracy.majority_content == 1 / 8
    assert learning.blanked(examples[0]).prompt == f"Take the {MASK} . {SEPARATOR} "
    assert learning.blanked(Example("0", f"a b {SEPARATOR} c {MASK}", "d")).prompt == f" {SEPARATOR} c {MASK}"


# Judgements and the study


def test_a_folder_of_judgements_is_checked(tmp_path):
    (tmp_path / "summeval").mkdir()
    row = {"id": "1", "text": "t", "systems": ["A", "B"], "machine_summaries": ["a", "b"], "human_summaries": ["h"]}
    row |= dict.fromkeys(("coherence", "consistency", "fluency"), [1, 2]) | {"relevance": [1]}
    (tmp_path / "summeval" / "summeval.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(ValueError, match="line 1: 1 relevance for 2 systems"):
        load_summeval(str(tmp_path))


def test_the_sample_has_the_public_formats():
    articles = load_summeval("sample")
    texts, sources = matched(articles)
    assert len(texts) == len(sources) == sum(len(article.systems) for article in articles)
    assert sources[0] == articles[0].text
    ranked = load_ranked("wmt19/yy-en", "sample")
    pairs = list(read_tsv(pairs_path("wmt19/yy-en", "sample")))
    assert len(pairs) == 2 * len(ranked)
    assert (ranked[0].better, ranked[0].reference) == pairs[0]


def test_other_metrics_know_a_copy_from_another_text():
    scores = study.lexical(["the cat leaped away", "salt"], [["it jumped", "the cat leaped away"], ["pepper"]])
    for name, (copy, other) in scores.items():
        assert copy == pytest.approx(1), name
        assert other < 0.5, name


def test_the_study_of_the_sample_has_every_row(tmp_path):
    model, tokenizer = load_seq2seq("tiny", dropout=0.0)
    prepare(model, tokenizer)
    articles = load_summeval("sample")
    metric = TokenQuestEval((model, tokenizer), log_dir=tmp_path)
    scores, report = study.score_both(metric, *matched(articles))
    assert report["pairs"] == 12
    names = list(scores)
    assert names[0] == study.OURS
    parts = np.array([scores[f"{study.OURS}, {score} alone"] for score in metric.list_scores])
    assert parts.mean(axis=0) == pytest.approx(scores[study.OURS])
    directions = np.array([scores[f"{study.OURS}, {name} alone"] for name in metric.doc_types])
    assert directions.mean(axis=0) == pytest.approx(scores[study.OURS])
    tables = {name: study.by_summary(values, articles) for name, values in scores.items()}
    found = study.summary_correlations(tables, articles, resamples=20)
    assert len(found) == len(names) * 2 * 4 * 3
    wide = study.correlation_table(found, "summary", "kendall")
    assert list(wide.index) == names
    frame = study.summary_frame(scores, articles)
    assert frame.columns[:2].tolist() == ["article", "system"]
    assert not frame.map(lambda value: isinstance(value, str) and " " in value).any().any()


def test_articles_with_other_systems_make_no_table():
    articles = load_summeval("sample")
    changed = [articles[0], type(articles[0])(**{**vars(articles[1]), "systems": ("X",) * 4})]
    with pytest.raises(ValueError, match="sample-otter has other systems"):
        study.by_summary(range(8), changed)


def test_better_or_worse_pairs_are_told_apart_by_rouge_and_grouped_by_part_of_speech(tmp_path):
    rows = load_ranked("wmt19/yy-en", "sample")
    texts, references = study.ranked_texts(rows)
    scores = study.lexical(texts, [[reference] for reference in references])
    table = study.ranked_agreement(scores, rows)
    assert (table.tau > 0).all()
    assert (table.n == len(rows)).all()
    frame = study.ranked_frame(scores, rows)
    assert len(frame) == len(rows)
    assert list(frame["ROUGE-1, worse"]) == scores["ROUGE-1"][len(rows) :]
    model, tokenizer = load_seq2seq("tiny", dropout=0.0)
    prepare(model, tokenizer)
    positions = TokenQuestEval((model, tokenizer), use_cache=False).positions(texts, references)
    tags = study.by_part_of_speech(positions, ("f1",), least=20)
    assert tags.tokens.sum() == len(positions)
    assert "other" in tags.index


@pytest.mark.real_data
def test_the_public_judgements_have_their_known_sizes():
    articles = load_summeval()
    assert len(articles) == 100
    assert {len(article.systems) for article in articles} == {16}
    assert {len(load_ranked(f"wmt19/{name}")) for name in ("gu-en", "kk-en", "lt-en")} == {4000}
    sizes = {name: sum(1 for _ in read_tsv(pairs_path(f"wmt19/{name}"))) for name in ("gu-en", "kk-en", "lt-en")}
    assert sizes == {"gu-en": 9034, "kk-en": 6260, "lt-en": 9778}
