"""The workflow on a copy of the project: what runs, what does not, and what it says. Minutes: `make test-slow`."""

import os
import shutil
import subprocess
import sys

import pytest

from lib.paths import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Return a copy of the project as a fresh clone would have it, without environment or data."""
    return copy_project(tmp_path_factory.mktemp("project"))


def copy_project(folder):
    """Copy the files that are, or would be, under version control, and return the folder."""
    names = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    for name in names:
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def snakemake(project, profile, *options, where=("--cores", "2"), **variables):
    """Run the workflow on the copy with this environment's packages; no data, no network."""
    environment = {key: value for key, value in os.environ.items() if key != "OPENPI_DATA"}
    environment |= {"PYTHONPATH": str(project), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    environment |= variables
    quiet = ("--quiet", "host", "progress", "rules", "reason")
    command = [sys.executable, "-m", "snakemake", *where, "--rerun-incomplete", "--keep-going", *quiet]
    done = subprocess.run(
        [*command, "--config", f"profile={profile}", *options],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


def started(output):
    """Return the runs that were started."""
    return [line.split("] ")[1].split(":")[0] for line in output.splitlines() if line.endswith(": started")]


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
    environment = os.environ | {"OPENPI_DATA": str(project / "nowhere"), "PYTHONPATH": str(project)}
    command = [sys.executable, "-m", "lib.runs", "execute", "laptop", "01_data_audit", "audit"]
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert "does not exist and OPENPI_DATA is set, so nothing is downloaded" in done.stderr
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
