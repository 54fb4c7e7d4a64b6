"""The workflow on a copy of the project: what runs, what does not, and what it says. Minutes: `make test-slow`."""

import os
import subprocess

import pytest

from lib.paths import ROOT
from tests.workflow import execute, snakemake, started

pytestmark = pytest.mark.slow


def test_1_a_fresh_copy_makes_every_smoke_run_and_then_nothing(project):
    status, output = snakemake(project, "smoke")
    assert status == 0, output
    assert {"01_data_audit/audit", "08_tables/tables"} <= set(started(output))
    status, output = snakemake(project, "smoke")
    assert (status, started(output)) == (0, []), output


def test_2_a_changed_parameter_runs_that_run_and_the_tables_again(project):
    path = project / "params" / "smoke" / "01_data_audit" / "audit.yaml"
    text = path.read_text()
    path.write_text(text + "seed: 1\n")
    status, output = snakemake(project, "smoke")
    assert status == 0, output
    assert started(output) == ["01_data_audit/audit", "08_tables/tables"]
    path.write_text(text)


def test_3_a_typo_stops_before_anything_runs(project):
    path = project / "params" / "smoke" / "01_data_audit" / "audit.yaml"
    text = path.read_text()
    path.write_text(text + "sede: 1\n")
    status, output = snakemake(project, "smoke")
    path.write_text(text)
    assert status != 0
    assert started(output) == []
    assert "audit.yaml, line 3" in output
    assert "did you mean 'seed'?" in output


def test_4_a_missing_profile_lists_what_there_is(project):
    status, output = snakemake(project, "smok")
    assert status != 0
    assert "PROFILE='smok' does not exist; params/ has laptop, paper, smoke" in output


def test_5_committed_results_are_not_computed_again_and_tables_need_no_data(project):
    status, output = snakemake(project, "laptop", "--forcerun", "tables")
    assert status == 0, output
    assert started(output) == ["08_tables/tables"]


def test_6_a_missing_data_file_is_a_clear_error_and_leaves_nothing_finished(project):
    (manifest,) = (project / "outputs" / "laptop" / "01_data_audit" / "audit").glob("manifest-*.json")
    manifest.unlink()
    status, output = execute(project, "laptop", "01_data_audit", "audit", OPENPI_DATA=str(project / "nowhere"))
    assert status == 1
    assert "does not exist and OPENPI_DATA is set, so nothing is downloaded" in output
    assert not manifest.exists()
    assert (manifest.parent / "failed.ipynb").exists()
    assert (manifest.parent / "metrics.json").exists()


def test_7_a_fresh_clone_with_nothing_but_python_reproduces(tmp_path):
    """The README's first command, word by word, with the set-up; about four minutes."""
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(tmp_path / "clone")], check=True)
    kept = ("PATH", "PIP_CERT", "PIP_FIND_LINKS", "SSL_CERT_FILE", "http_proxy", "https_proxy")
    environment = {key: os.environ[key] for key in kept if key in os.environ} | {"HOME": str(tmp_path)}
    environment["PATH"] = ":".join(part for part in environment["PATH"].split(":") if ".venv" not in part)
    done = subprocess.run(
        ["make", "reproduce"], cwd=tmp_path / "clone", env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert (tmp_path / "clone" / "outputs" / "smoke" / "tables" / "summary.md").exists()
