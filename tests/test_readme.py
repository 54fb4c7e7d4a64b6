"""The README's Python does what it says: every block is run, in a folder that holds the files that it names."""

import json
import re

import pytest

from lib.models import load_seq2seq
from lib.paths import ROOT
from lib.token_questeval import prepare

BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.S)
CHANGE = "heat of wok was lukewarm before and scorching afterwards"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Enter a folder with predictions, references, a model that fills masks, and sentences with paraphrases."""
    for name in ("predictions", "references"):
        lines = (json.dumps({"id": f"{place}||1", "answers": [CHANGE]}) for place in "ab")
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    model, tokenizer = load_seq2seq("tiny", dropout=0.0)
    prepare(model, tokenizer)
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "outputs" / "models" / "fill_mask")
    (tmp_path / "parabank2.tsv").write_text("1.0\tThe wok is hot.\tThe pan is very hot.\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("block", BLOCKS, ids=[block.split("\n", 1)[0] for block in BLOCKS])
def test_a_block_of_the_readme_runs(block, folder, capsys):
    names = {}
    exec(block, names)  # noqa: S102 - our own file
    for line in capsys.readouterr().out.splitlines():
        assert all(0 <= float(number) <= 1 for number in line.split())
    if "write_parts" in block:
        assert list((folder / "data" / "parabank2-parts").iterdir())


def test_the_example_of_a_metric_gives_what_it_is_for(folder, capsys):
    """A prediction in other words than its reference: no exact match, and most of its tokens."""
    (block,) = [block for block in BLOCKS if "token_set" in block]
    exec(block, {})  # noqa: S102
    original, clustered = (float(number) for number in capsys.readouterr().out.split())
    assert 0.5 < original == clustered < 1
