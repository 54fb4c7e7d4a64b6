import hashlib
import http.server
import json
import pickle
import subprocess
import sys
import threading
from functools import partial

import pytest

from lib import audit
from lib.data import (
    FILES,
    MultiChoice,
    NextStep,
    StateChange,
    convert,
    fetch,
    load_openpi,
    load_openpi_c,
    load_steps,
    registry,
)
from lib.data.lines import read_jsonl
from lib.data.procedures import count

URL = "www.example.org/Water-a-Fern"


def openpi_c(root, *rows, split="dev"):
    path = root / "openpi-c" / f"{split}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows), encoding="utf-8"
    )
    return root


def row(number, *answers, url=URL, **more):
    return {"id": [url, number], "query": f"Step {number}.", "answers": list(answers), **more}


GOOD = ["fern", "moisture", "dry", "damp"]


def test_openpi_c_rows_become_procedures_wherever_their_lines_stand(tmp_path):
    other = "www.example.org/Mend-a-Cat&#x27;s-Collar"
    root = openpi_c(tmp_path, row(1, GOOD), row(1, GOOD, url=other), row(2), row(2, GOOD, url=other))
    fern, collar = load_openpi_c("dev", root=root)
    assert (fern.id, fern.goal, [step.number for step in fern.steps]) == (URL, "Water a Fern", [1, 2])
    assert fern.steps[0].changes == (StateChange(*GOOD),)
    assert fern.steps[0].sentences == ["moisture of fern was dry before and damp afterwards"]
    assert collar.id == "www.example.org/Mend-a-Cat's-Collar"
    assert collar.goal == "Mend a Cat's Collar"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (['{"id": '], r"dev.jsonl, line 1: not JSON"),
        (["[1]"], r"line 1: a JSON list, expected an object"),
        ([row(1, GOOD), {"id": [URL, 2], "query": "x"}], r"line 2: no field 'answers'; it has id, query"),
        (
            [row(1, GOOD), row(2, GOOD[:3])],
            r"line 2: answers\[0\] has 3 parts, expected \(entity, attribute, before, after\)",
        ),
        ([row(1, [*GOOD[:3], ""])], r"line 1: answers\[0\] is \['fern'.*expected \(entity"),
        ([row(1, [*GOOD[:3], 5])], r"line 1: answers\[0\] is"),
        ([{**row(1), "id": "x||1"}], r"line 1: id is 'x\|\|1', expected list"),
        ([{**row(1), "id": [URL, "1"]}], r"line 1: id is .* expected \[url, step number from 1\]"),
        ([{**row(1), "query": " "}], r"line 1: query is empty"),
        ([row(1), row(1)], r"line 2: step www.example.org/Water-a-Fern\|\|1 stands there a second time"),
        ([row(1), row(3)], r"has 2 steps but no step 2"),
        ([], r"is empty \(0 bytes\)"),
    ],
)
def test_malformed_openpi_c_names_file_and_line(tmp_path, rows, message):
    with pytest.raises(ValueError, match=message):
        load_openpi_c("dev", root=openpi_c(tmp_path, *rows))


def test_malformed_answers_can_be_left_out_and_are_listed(tmp_path):
    root, rejected = openpi_c(tmp_path, row(1, GOOD), row(2, GOOD, GOOD[:3]), row(3, GOOD)), []
    (procedure,) = load_openpi_c("dev", root=root, rejected=rejected)
    assert [len(step.changes) for step in procedure.steps] == [1, 1, 1]
    (left_out,) = rejected
    assert left_out.line == 2
    assert "has 3 parts" in left_out.reason


def test_safe_preset_drops_exact_duplicates_and_released_keeps_them(tmp_path):
    root = openpi_c(tmp_path, row(1, GOOD, GOOD))
    assert len(load_openpi_c("dev", root=root)[0].steps[0].changes) == 2
    assert len(load_openpi_c("dev", "safe", root=root)[0].steps[0].changes) == 1


def test_unknown_split_missing_file_and_wrong_encoding_are_named(tmp_path):
    with pytest.raises(ValueError, match="split='valid'"):
        load_openpi_c("valid", root=tmp_path)
    with pytest.raises(FileNotFoundError, match=r"dev.jsonl does not exist"):
        load_openpi_c("dev", root=tmp_path)
    (openpi_c(tmp_path, row(1)) / "openpi-c" / "dev.jsonl").write_bytes(b'{"id": "\xff"}\n')
    with pytest.raises(ValueError, match="is not UTF-8"):
        load_openpi_c("dev", root=tmp_path)


def openpi(root, **files):
    folder = root / "openpi" / "gold" / "dev"
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in files.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return root


def raw(sentence, identifier="www.example.org/It&#x27;s||1"):
    return dict(
        id_question=[{"id": identifier, "question": " Stir &quot;it&quot;. Now, what happens?"}],
        id_question_metadata=[{"id": identifier, "question_metadata": {"topic": "unknown", "image_url": "unknown"}}],
        id_answers=[{"id": identifier, "answers": [sentence]}],
    )


def test_openpi_gives_the_same_procedures_and_keeps_what_it_cannot_parse(tmp_path):
    root = openpi(tmp_path, **raw("heat of wok wasted before and kept afterwards"))
    (procedure,) = load_openpi("dev", root=root)
    (step,) = procedure.steps
    assert (procedure.id, step.text) == ("www.example.org/It's", 'Stir "it".')
    assert (step.changes, step.unparsed) == ((), ("heat of wok wasted before and kept afterwards",))
    assert step.sentences == ["heat of wok wasted before and kept afterwards"]


def test_an_id_of_another_form_is_refused_with_its_place(tmp_path):
    for identifier in ("www.example.org/It's", "a||0", "a||b", "||1", "a||1||2"):
        with pytest.raises(ValueError, match=r"id_question.jsonl, line 1: id .* is not `url\|\|n`"):
            load_openpi("dev", root=openpi(tmp_path, **raw("x", identifier)))


def test_steps_files_are_read_literally(tmp_path):
    folder = tmp_path / "steps"
    for name in ("next_step", "multi-choice"):
        (folder / name).mkdir(parents=True)
    (folder / "multi-choice" / "test.txt").write_text('mix . \t"stir it .\tNA\nbake . \tnull\tserve "hot\n')
    (folder / "next_step" / "test.txt").write_text('mix .\t"stir .\tYes\nmix .\tNA\tNo\n')
    rows = load_steps("multi_choice", root=tmp_path)
    assert rows == [
        MultiChoice("mix .", ('"stir it .', "NA"), 0, 1),
        MultiChoice("bake .", ("null", 'serve "hot'), 0, 2),
    ]
    assert load_steps("next_step", root=tmp_path) == [
        NextStep("mix .", '"stir .', True, 1),
        NextStep("mix .", "NA", False, 2),
    ]
    (folder / "next_step" / "test.txt").write_text("a\tb\tYes\na\tb\n")
    with pytest.raises(ValueError, match=r"test.txt, line 2: 2 fields"):
        load_steps("next_step", root=tmp_path)
    (folder / "next_step" / "test.txt").write_text("a\tb\tyes\n")
    with pytest.raises(ValueError, match="label 'yes', expected Yes or No"):
        load_steps("next_step", root=tmp_path)


# The cache.


def test_a_changed_byte_fails_with_both_hashes_and_an_empty_file_with_its_size(cache):
    path = cache / "openpi-c" / "dev.jsonl"
    path.parent.mkdir()
    path.write_text("changed\n")
    expected = FILES["openpi-c/dev.jsonl"][1]
    actual = hashlib.sha256(b"changed\n").hexdigest()
    with pytest.raises(ValueError, match=f"expected SHA-256 {expected}, got {actual}"):
        fetch("openpi-c/dev.jsonl")
    path.write_text("")
    with pytest.raises(ValueError, match=r"dev.jsonl is empty \(0 bytes\)"):
        fetch("openpi-c/dev.jsonl")


def test_openpi_data_without_the_file_is_an_error_and_never_a_download(cache):
    with pytest.raises(FileNotFoundError, match="OPENPI_DATA is set, so nothing is downloaded"):
        fetch("openpi-c/test.jsonl")
    with pytest.raises(KeyError, match="no public file is called 'nope'"):
        fetch("nope")
    assert list(cache.rglob("*")) == []


def test_every_file_has_an_address_with_a_commit_and_a_hash():
    for name, (address, known) in FILES.items():
        assert len(known) == 64, name
        assert any(len(part) in {7, 40} and set(part) <= set("0123456789abcdef") for part in address.split("/")), name


@pytest.fixture
def server(tmp_path, monkeypatch):
    """Serve a folder on this machine and make the registry's addresses point there."""
    folder = tmp_path / "served"
    folder.mkdir()
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    monkeypatch.setattr(http.server.SimpleHTTPRequestHandler, "log_message", lambda *arguments: None)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as httpd:
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        monkeypatch.delenv("OPENPI_DATA", raising=False)
        monkeypatch.setattr(registry, "data_cache", lambda: tmp_path / "cache")
        base = f"http://127.0.0.1:{httpd.server_port}/"

        def serve(name, content, known=None, source="file"):
            if content is not None:
                (folder / source).write_bytes(content)
            known = known or hashlib.sha256(content).hexdigest()
            monkeypatch.setitem(registry.FILES, name, (base + source, known))
            return tmp_path / "cache" / name

        yield serve
        httpd.shutdown()


def test_a_good_file_is_downloaded_once_and_kept(server):
    path = server("openpi-c/x.jsonl", b"good\n")
    assert fetch("openpi-c/x.jsonl") == path
    server("openpi-c/x.jsonl", b"good\n", source="gone-by-now")
    assert fetch("openpi-c/x.jsonl").read_bytes() == b"good\n"


def test_a_changed_or_absent_file_leaves_nothing_behind(server):
    path = server("openpi-c/x.jsonl", b"trunca", known="0" * 64)
    with pytest.raises(ValueError, match="hash of downloaded file .* does not match"):
        fetch("openpi-c/x.jsonl")
    server("openpi-c/x.jsonl", None, known="0" * 64, source="absent")
    with pytest.raises(ConnectionError, match="set OPENPI_DATA to a folder that holds openpi-c/x.jsonl"):
        fetch("openpi-c/x.jsonl")
    assert not path.exists()
    assert list(path.parent.glob("*")) == []


def test_two_processes_fetching_one_file_both_get_it(tmp_path, server):
    path = server("openpi-c/x.jsonl", b"good\n" * 100_000)
    address, known = registry.FILES["openpi-c/x.jsonl"]
    code = (
        "from pathlib import Path; from lib.data import registry as r\n"
        f"r.FILES['openpi-c/x.jsonl'] = ({address!r}, {known!r})\n"
        f"r.data_cache = lambda: Path({str(tmp_path / 'cache')!r})\n"
        "print(r.fetch('openpi-c/x.jsonl').stat().st_size)"
    )
    both = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate(timeout=120)[0].strip() for process in both] == ["500000", "500000"]
    assert [found.name for found in path.parent.glob("*")] == ["x.jsonl"]


def test_a_read_only_cache_that_has_the_file_works(server):
    path = server("openpi-c/x.jsonl", b"good\n")
    fetch("openpi-c/x.jsonl")
    path.parent.chmod(0o555)
    try:
        assert fetch("openpi-c/x.jsonl").read_bytes() == b"good\n"
    finally:
        path.parent.chmod(0o755)


# Derived files.

DARR = {
    0: {
        "src": "s", "ref": "r\tr", "better": {"sys": "b", "sys_name": "B", "scores": {}},
        "worse": {"sys": "w", "sys_name": "W", "scores": {}},
    },
    1: {
        "src": "s", "ref": "r\tr", "better": {"sys": "b", "sys_name": "B", "scores": {}},
        "worse": {"sys": "v", "sys_name": "V", "scores": {}},
    },
}  # fmt: skip


def test_wmt19_is_converted_from_its_pickle(server):
    server("wmt19/gu-en.hyp-ref.tsv", pickle.dumps(DARR), known=hashlib.sha256(b"b\tr r\nw\tr r\nv\tr r\n").hexdigest())
    assert fetch("wmt19/gu-en.hyp-ref.tsv").read_text() == "b\tr r\nw\tr r\nv\tr r\n"


def test_a_conversion_that_gives_other_bytes_is_refused(server):
    path = server("wmt19/gu-en.darr.jsonl", pickle.dumps(DARR), known="0" * 64)
    with pytest.raises(ValueError, match="does not match"):
        fetch("wmt19/gu-en.darr.jsonl")
    assert list(path.parent.glob("*")) == []


def test_summeval_is_converted_with_its_judgements(tmp_path):
    scores = {"coherence": 4.0, "consistency": 5, "fluency": 3.0, "relevance": 2.0, "rouge": 0.1}
    document = {
        "src": "text",
        "ref_summ": "a",
        "ref_summs": ["a", "é"],
        "sys_summs": {"M1": {"sys_summ": "s", "scores": scores}},
    }
    (tmp_path / "data.pkl").write_bytes(pickle.dumps({"doc-1": document}))
    convert.summeval("summeval/summeval.jsonl", tmp_path / "data.pkl", tmp_path / "out.jsonl")
    assert json.loads((tmp_path / "out.jsonl").read_text(encoding="utf-8")) == {
        "id": "doc-1", "text": "text", "systems": ["M1"], "machine_summaries": ["s"], "human_summaries": ["a", "é"],
        "coherence": [4.0], "consistency": [5.0], "fluency": [3.0], "relevance": [2.0],
    }  # fmt: skip


class Evil:
    def __reduce__(self):
        return print, ("this must not be printed",)


def test_a_pickle_that_asks_for_code_is_refused(tmp_path, capsys):
    (tmp_path / "data.pkl").write_bytes(pickle.dumps({"a": Evil()}))
    with pytest.raises(ValueError, match=r"asks for builtins.print: refused"):
        convert.wmt19("wmt19/gu-en.darr.jsonl", tmp_path / "data.pkl", tmp_path / "out")
    assert capsys.readouterr().out == ""
    (tmp_path / "data.pkl").write_bytes(b"\x80\x04")
    with pytest.raises(ValueError, match="cannot be read as a pickle"):
        convert.wmt19("wmt19/gu-en.darr.jsonl", tmp_path / "data.pkl", tmp_path / "out")


# Real data: the counts that others printed and what was measured on the files.


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("split", "original", "cleaned", "empty", "unparsed"),
    [
        ("train", (644, 3216, 23681), (539, 2403, 13843), 130, 8),
        ("dev", (55, 274, 1744), (50, 219, 1154), 12, 0),
        ("test", (111, 560, 4240), (74, 345, 2030), 21, 2),
    ],
)
def test_counts_of_the_public_data(split, original, cleaned, empty, unparsed):
    openpi_split, openpi_c_split = load_openpi(split), load_openpi_c(split)
    assert count(openpi_split) == original
    assert count(openpi_c_split) == cleaned
    steps = [step for procedure in openpi_split for step in procedure.steps]
    assert sum(not step.sentences for step in steps) == empty
    assert sum(len(step.unparsed) for step in steps) == unparsed
    assert min(len(step.changes) for procedure in openpi_c_split for step in procedure.steps) == 1
    assert min(len(procedure.steps) for procedure in openpi_c_split) == 3


@pytest.mark.real_data
def test_field_problems_of_the_public_data():
    problems = audit.field_problems(audit.load("public"))
    cleaned = problems.loc[["openpi-c/train", "openpi-c/dev", "openpi-c/test"]]
    assert cleaned["comma"].tolist() == [54, 3, 8]
    assert cleaned["of in entity or attribute"].tolist() == [163, 15, 22]
    assert cleaned["was"].tolist() == [4, 1, 0]
    assert cleaned["not ASCII"].tolist()[::2] == [13, 1]
    assert cleaned["duplicates"].tolist() == [10, 0, 0]


@pytest.mark.real_data
@pytest.mark.parametrize(("split", "sentences", "disagree"), [("dev", 1842, 368), ("test", 4470, 754)])
def test_round_trip_of_the_public_data(split, sentences, disagree):
    released, safe = audit.round_trip(split), audit.round_trip(split, "safe")
    assert (released.sentences, released.disagree) == (sentences, disagree)
    assert safe.disagree < disagree


@pytest.mark.real_data
@pytest.mark.parametrize(("split", "share"), [("train", 0.972), ("dev", 0.920), ("test", 0.985)])
def test_the_two_data_sets_join_by_url_and_step_text(split, share):
    original = {(p.id, step.text): set(step.sentences) for p in load_openpi(split) for step in p.steps}
    found = [
        sentence in original.get((p.id, step.text), ())
        for p in load_openpi_c(split)
        for step in p.steps
        for sentence in step.sentences
    ]
    assert sum(found) / len(found) == pytest.approx(share, abs=0.001)


@pytest.mark.real_data
def test_steps_files_have_their_rows():
    next_steps, choices = load_steps("next_step"), load_steps("multi_choice")
    assert (len(next_steps), sum(row.label for row in next_steps), len(choices)) == (1000, 500, 1000)


@pytest.mark.real_data
def test_every_file_of_the_cache_is_the_pinned_one():
    for name in FILES:
        fetch(name)


@pytest.mark.real_data
def test_conversion_inverts_to_the_derived_bytes(tmp_path):
    rows = [row for _, row in read_jsonl(fetch("wmt19/kk-en.darr.jsonl"))]
    source = {
        index: {
            "ref": row["reference"],
            "better": {"sys": row["better"], "sys_name": row["better_system"]},
            "worse": {"sys": row["worse"], "sys_name": row["worse_system"]},
        }
        for index, row in enumerate(rows)
    }
    (tmp_path / "data.pkl").write_bytes(pickle.dumps(source))
    convert.wmt19("wmt19/kk-en.darr.jsonl", tmp_path / "data.pkl", tmp_path / "darr")
    assert (tmp_path / "darr").read_bytes() == fetch("wmt19/kk-en.darr.jsonl").read_bytes()
    convert.wmt19("wmt19/kk-en.hyp-ref.tsv", tmp_path / "data.pkl", tmp_path / "pairs")
    assert fetch("wmt19/kk-en.hyp-ref.tsv").read_bytes().startswith((tmp_path / "pairs").read_bytes())
    documents = [row for _, row in read_jsonl(fetch("summeval/summeval.jsonl"))]
    source = {
        document["id"]: {
            "src": document["text"],
            "ref_summs": document["human_summaries"],
            "sys_summs": {
                name: {
                    "sys_summ": document["machine_summaries"][index],
                    "scores": {key: document[key][index] for key in convert.DIMENSIONS},
                }
                for index, name in enumerate(document["systems"])
            },
        }
        for document in documents
    }
    (tmp_path / "data.pkl").write_bytes(pickle.dumps(source))
    convert.summeval("summeval/summeval.jsonl", tmp_path / "data.pkl", tmp_path / "summeval")
    assert (tmp_path / "summeval").read_bytes() == fetch("summeval/summeval.jsonl").read_bytes()
