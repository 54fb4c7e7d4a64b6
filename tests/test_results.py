import json
import subprocess

import numpy as np
import pandas as pd
import pytest

from lib import provenance, published, results
from lib.intervals import bootstrap_interval
from lib.published import Published, verdict
from lib.results import Run, load


@pytest.fixture
def outputs(tmp_path, monkeypatch):
    """Send outputs into a temporary folder."""
    monkeypatch.setattr("lib.paths.OUTPUTS", tmp_path)
    return tmp_path


PARAMETERS = {"profile": "smoke", "run": "one", "seed": 0}


def finished(seed=0):
    run = Run("01_data_audit", PARAMETERS | {"seed": seed})
    run.save_metrics({"f1": np.float64(0.1) + 0.2, "absent": float("nan")})
    return run, run.finish()


def test_a_run_is_finished_when_its_manifest_is_there_and_not_before(outputs):
    run = Run("01_data_audit", PARAMETERS)
    run.save_metrics({"f1": 0.5})
    assert load("smoke", "01_data_audit", "one") is None
    manifest = run.finish()
    assert load("smoke", "01_data_audit", "one")["scores"] == {"f1": 0.5}
    assert manifest.name == results.manifest_name(PARAMETERS)
    Run("01_data_audit", PARAMETERS)  # starting again
    assert load("smoke", "01_data_audit", "one") is None
    assert results.finished_runs("smoke", "01_data_audit") == []


def test_other_parameters_have_another_manifest_and_replace_the_old_one(outputs):
    _, first = finished()
    _, second = finished(seed=1)
    assert second != first
    assert not first.exists()
    assert results.finished_runs("smoke", "01_data_audit") == ["one"]


def test_metrics_keep_floats_in_full_and_say_where_they_come_from(outputs):
    run, _ = finished()
    content = json.loads((run.folder / "metrics.json").read_text())
    assert content["scores"] == {"f1": 0.30000000000000004, "absent": None}
    assert content["parameters"] == PARAMETERS
    assert {"code", "versions", "machine", "wall_time_seconds"} <= content.keys()


def test_metrics_that_were_changed_damaged_or_removed_are_refused_with_a_remedy(outputs):
    run, _ = finished()
    path = run.folder / "metrics.json"
    for damage, message in (('{"scores": ', "is not the file that its run wrote"), (None, "is missing although")):
        path.unlink()
        if damage:
            path.write_text(damage)
        with pytest.raises(ValueError, match=f"{message}.*make reproduce PROFILE=smoke"):
            load("smoke", "01_data_audit", "one")


def test_an_interrupted_write_replaces_nothing_and_leaves_nothing(tmp_path):
    path = tmp_path / "metrics.json"
    path.write_text("old")

    def broken():
        with results.atomic(path) as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken()
    assert path.read_text() == "old"
    assert [found.name for found in tmp_path.iterdir()] == ["metrics.json"]


def test_a_write_that_fails_names_the_file_and_what_to_do(tmp_path):
    (tmp_path / "folder").write_text("a file, not a folder")
    message = r"cannot write .*folder/metrics.json.*make the folder writable"
    with pytest.raises(OSError, match=message), results.atomic(tmp_path / "folder" / "metrics.json") as temporary:
        temporary.write_text("x")


def test_run_names_cannot_leave_the_outputs_folder(outputs):
    for name in ("..", "", "a/b"):
        with pytest.raises(ValueError, match="not a plain folder name"):
            Run("01_data_audit", PARAMETERS | {"run": name})


def test_verdicts():
    paper = Published("4.3", 4.3, 0.05, "rounding")
    assert verdict(4.28, paper) == verdict(4.35, paper) == verdict(4.25, paper) == "match"
    assert verdict(4.24, paper) == "differs"
    assert verdict(None, paper) == verdict(float("nan"), paper) == "not run"
    assert verdict(4.3, paper, "other model") == "other model"
    assert verdict(None, paper, "other model") == "not run"
    assert verdict(4.3, None) == "no paper value"


def test_published_numbers_are_parsed_as_printed():
    assert published.number("table1", "openpi/train", "state changes").value == 23900
    assert published.number("table1", "openpi/train", "state changes").tolerance == 50
    assert published.number("table1", "openpi/train", "steps").tolerance == 0
    assert published.number("table3", "GPT-2 (Tandon et al., 2020)", "cluster_bleu") is None
    assert published.number("table2", "BART", "original_exact").printed == "4.88"
    with pytest.raises(KeyError, match="table2 / T5 / original_exact: 'T5' is missing"):
        published.number("table2", "T5", "original_exact")


def test_every_published_number_has_a_source_and_a_tolerance_with_its_reason():
    cells = 0
    for name, entry in published.paper_numbers().items():
        assert {"source", "unit", "tolerance", "tolerance_reason", "rows"} <= entry.keys(), name
        assert not entry.get("tolerances") or entry["tolerances_reason"], name
        for row, columns in entry["rows"].items():
            for column in columns:
                published.number(name, row, column)
                cells += 1
        known = {f"{row} / {column}" for row, columns in entry["rows"].items() for column in columns}
        assert set(entry.get("notes", {})) <= known, name
    assert cells == 18 + 36 + 42 + 15 + 9 + 3 + 2 + 4 + 2 + 2 + 1 + 11 + 10 + 48


def test_interval_resamples_procedures_not_steps():
    values, groups = [0.0] * 20 + [1.0] * 20, ["a"] * 20 + ["b"] * 20
    assert bootstrap_interval(values, groups) == (0.0, 1.0)
    low, high = bootstrap_interval(values, [str(index) for index in range(40)])
    assert 0.3 < low < 0.4
    assert 0.6 < high < 0.7
    assert bootstrap_interval(values, groups, seed=1) == bootstrap_interval(values, groups, seed=1)
    with pytest.raises(ValueError, match="at least two"):
        bootstrap_interval([1.0], ["a"])
    with pytest.raises(ValueError, match="2 values for 1 groups"):
        bootstrap_interval([1.0, 2.0], ["a"])


def test_signature_puts_the_code_version_last_and_keeps_its_parts_apart():
    line = provenance.signature("f1", match="a|b c", threshold=0.75)
    assert line.startswith("f1|match:a/b_c|threshold:0.75|v:")
    assert provenance.extend(line, data="x").split("|")[-2:] == ["data:x", line.split("|")[-1]]


def test_code_version_is_dirty_with_new_files_but_not_with_outputs(tmp_path, monkeypatch):
    def git(*arguments):
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)

    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    assert provenance.code_version() == provenance.__version__
    git("init")
    git("commit", "--allow-empty", "-m", "x")
    assert not provenance.code_version().endswith("-dirty")
    (tmp_path / "outputs").mkdir()
    (tmp_path / "outputs" / "new").write_text("x")
    assert not provenance.code_version().endswith("-dirty")
    (tmp_path / "new").write_text("x")
    assert provenance.code_version().endswith("-dirty")


def test_a_table_in_latex_has_booktabs_rules_and_escapes():
    from lib.tables import to_latex

    text = to_latex(pd.DataFrame({"row_name": ["a & b", "c"], "F1 (%)": [1.234, float("nan")]}))
    assert r"\toprule" in text
    assert r"row\_name" in text
    assert r"a \& b & 1.23 \\" in text
    assert r"F1 (\%)" in text
    assert "nan" not in text
