import shutil

import nbformat
import numpy as np
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from lib import runs
from lib.paths import PARAMS

PROFILES = sorted({path.parent.name for path in PARAMS.glob("*/common.yaml")} - {"rehearsal"})  # that one is made


@pytest.mark.parametrize("profile", PROFILES)
def test_every_parameter_of_every_file_is_declared_and_has_its_type(profile):
    planned = runs.plan(profile)
    assert {run.notebook for run in planned} <= set(runs.notebook_names())
    for run in planned:
        for name, parameter in runs.declared(run.notebook).items():
            assert type(run.parameters[name]) is runs.TYPES[parameter.type], (run, name)
            assert parameter.help, (run, name)


def test_the_three_profiles_are_there():
    assert PROFILES == ["laptop", "paper", "smoke"]


def test_every_notebook_has_a_smoke_run_and_a_paper_run():
    for profile in ("smoke", "paper"):
        assert {run.notebook for run in runs.plan(profile)} == set(runs.notebook_names())


def test_notebook_defaults_are_the_values_of_a_smoke_run():
    smoke = {(run.notebook, run.run): run.parameters for run in runs.plan("smoke")}
    for notebook in runs.notebook_names():
        defaults = {name: parameter.default for name, parameter in runs.declared(notebook).items()}
        assert smoke[notebook, defaults["run"]] == defaults


def test_differences_between_runs_are_told_apart_by_name():
    found = runs.differences("smoke", "03_baselines")
    assert found["model"] == {"bart": "tiny", "bart_concat": "tiny", "bart_openpi": "tiny", "gpt2": "tiny-causal"}
    assert "run" not in found
    assert "seed" not in found


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Return a project of one notebook whose last cell the test gives."""
    for name in ("notebooks", "params/smoke/01_tiny", "outputs"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setattr(runs, "NOTEBOOKS", tmp_path / "notebooks")
    monkeypatch.setattr(runs, "PARAMS", tmp_path / "params")
    monkeypatch.setattr("lib.paths.OUTPUTS", tmp_path / "outputs")

    def write(last="", common="seed: 1\n", run="epochs: 3\n", tag=True):
        first = new_code_cell(
            'profile: str = "smoke"  # p\nrun: str = "one"  # r\nseed: int = 0  # s\n'
            'epochs: int = 1  # e\nrate: float = 0.1  # l\nname: str = "x"  # n\nsafe: bool = False  # b'
        )
        first.metadata["tags"] = ["parameters"] if tag else []
        cells = [first, new_code_cell(_SETUP.format(root=str(tmp_path))), new_code_cell(last or "this_run.finish()")]
        notebook = new_notebook(cells=cells)
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "x", "language": "python"}
        nbformat.write(notebook, tmp_path / "notebooks" / "01_tiny.ipynb")
        (tmp_path / "params" / "smoke" / "common.yaml").write_text(common)
        (tmp_path / "params" / "smoke" / "01_tiny" / "one.yaml").write_text(run)
        return tmp_path / "outputs" / "smoke" / "01_tiny" / "one"

    return write


_SETUP = """
from pathlib import Path
from lib import paths, runs
paths.OUTPUTS, runs.NOTEBOOKS = Path({root!r}) / "outputs", Path({root!r}) / "notebooks"
this_run = runs.start("01_tiny", globals())
this_run.save_metrics({{"epochs": epochs, "seed": seed}})
"""


def test_a_run_gets_its_parameters_and_leaves_notebook_metrics_and_manifest(project):
    folder = project()
    folder.mkdir(parents=True)
    (folder / "failed.ipynb").write_text("of an earlier attempt")
    manifest = runs.execute("smoke", "01_tiny", "one")
    assert manifest.parent == folder
    assert sorted(path.name for path in folder.iterdir()) == sorted([manifest.name, "metrics.json", "notebook.ipynb"])
    assert runs.results.load("smoke", "01_tiny", "one")["scores"] == {"epochs": 3, "seed": 1}


@pytest.mark.parametrize(
    ("last", "message"),
    [
        ("raise ValueError('no such thing')", r"cell 4 failed: ValueError: no such thing"),
        ("import sys; sys.exit(0)", "SystemExit|did not run|no manifest"),
        ("x = 1", r"ended without run.finish\(\)"),
        ("%nosuchmagic\nthis_run.finish()", "failed|no manifest"),
    ],
)
def test_a_failed_or_half_run_notebook_never_looks_finished(project, last, message):
    folder = project(last)
    folder.mkdir(parents=True)
    for left_over in (runs.plan("smoke")[0].manifest, folder / "notebook.ipynb"):
        left_over.write_text("{}")
    with pytest.raises(RuntimeError, match=message):
        runs.execute("smoke", "01_tiny", "one")
    assert list(folder.glob("manifest-*.json")) == []
    assert (folder / "notebook.ipynb").read_text() == "{}"  # of the run before: lost only to a better one
    assert (folder / "failed.ipynb").exists()
    assert sorted(path.name for path in folder.glob(".*")) == []


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"run": "a: 1\nepcohs: 3\n"}, r"one.yaml, line 1: .* declares no parameter 'a'"),
        ({"run": "epcohs: 3\n"}, r"line 1: .* no parameter 'epcohs'; did you mean 'epochs'\?"),
        ({"run": "seed: 1\nrate: 5e-5\n"}, r"line 2: rate is '5e-5' \(str\), expected float; YAML reads 5e-5 as text"),
        ({"run": "epochs: 3.0\n"}, r"epochs is 3.0 \(float\), expected int"),
        ({"run": "epochs: true\n"}, r"epochs is True \(bool\), expected int"),
        ({"run": 'safe: "true"\n'}, r"safe is 'true' \(str\), expected bool"),
        ({"run": "name: null\n"}, r"name is None \(NoneType\), expected str"),
        ({"run": "name: [a]\n"}, r"line 1: 'name' is no scalar"),
        ({"run": "epochs: 1\nepochs: 2\n"}, r"line 2: 'epochs' stands twice, first in line 1"),
        ({"run": "- a\n"}, r"expected lines `name: value`"),
        ({"run": "a: b: c\n"}, r"is no YAML"),
        ({"run": "profile: x\n"}, r"line 1: profile is 'x', but the file's place says 'smoke'"),
        ({"common": "sede: 1\n"}, r"common.yaml, line 1: .* did you mean 'seed'\?"),
        ({"tag": False}, "no cell tagged `parameters`"),
    ],
)
def test_wrong_parameter_files_are_named_before_anything_runs(project, files, message):
    folder = project(**files)
    with pytest.raises(ValueError, match=message):
        runs.plan("smoke")
    assert not folder.exists()


def test_a_missing_profile_lists_what_there_is(project):
    project()
    with pytest.raises(ValueError, match=r"PROFILE='smok' does not exist; params/ has smoke"):
        runs.plan("smok")


def test_values_set_by_hand_in_a_notebook_are_checked_too(project, tmp_path):
    project()
    namespace = dict(profile="smoke", run="one", seed=np.int64(2), epochs=1, rate=1, name=tmp_path, safe=np.bool_(True))
    started = runs.start("01_tiny", namespace)
    assert started.parameters == dict(
        profile="smoke", run="one", seed=2, epochs=1, rate=1.0, name=str(tmp_path), safe=True
    )
    with pytest.raises(ValueError, match=r"epochs is '3' \(str\), expected int"):
        runs.start("01_tiny", namespace | {"epochs": "3"})
    with pytest.raises(ValueError, match="run the parameters cell first: seed not set"):
        runs.start("01_tiny", {key: value for key, value in namespace.items() if key != "seed"})


def test_command_line_exits_with_an_error(project, capsys):
    project(run="epcohs: 3\n")
    assert runs.main(["execute", "smoke", "01_tiny", "one"]) == 1
    assert "did you mean 'epochs'?" in capsys.readouterr().err


def test_a_changed_parameter_or_default_is_another_manifest(project):
    project()
    before = runs.plan("smoke")[0].manifest
    project(run="epochs: 4\n")
    assert runs.plan("smoke")[0].manifest != before
    project()
    assert runs.plan("smoke")[0].manifest == before
    shutil.rmtree(before.parent, ignore_errors=True)


def test_a_run_that_reads_another_runs_folder_waits_for_it():
    reads = {(run.notebook, run.run): run.reads for run in runs.plan("smoke")}
    assert reads["03_baselines", "bart"] == [("02_cleaning", "cleaning")]
    assert reads["01_data_audit", "audit"] == []


@pytest.mark.parametrize("name", ["outputs/smoke/01_other/one", "outputs/smoke/01_tiny/one"])
def test_a_folder_that_no_lower_run_writes_is_refused(project, name):
    project(run=f"name: {name}\n")
    with pytest.raises(ValueError, match="one.yaml reads .*, which no run of a lower notebook writes"):
        runs.plan("smoke")
