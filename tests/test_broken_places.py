"""Places that are full, read-only or cut off: what a run says there, and that nothing is lost. About two minutes."""

import shutil

import pytest

from tests.workflow import command, execute, say

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def mounted(project):
    """Return a function that says what a run does on a file system of its own; about ten seconds for the set-up.

    The mount is seen by that run alone and goes with it; permission bits would not bind an administrator.
    """
    run = project / "params" / "smoke" / "03_baselines" / "bart.yaml"
    run.write_text(run.read_text().replace("outputs/smoke/02_cleaning/cleaning", "sample"))
    (project / "outputs" / "smoke").mkdir(parents=True)

    def run_in(options, *words, after="true"):
        script = f'mount -t tmpfs -o {options} none outputs/smoke || exit 99; "$@"; status=$?; {after}; exit $status'
        return say(project, "unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", *words)

    if not shutil.which("unshare") or run_in("size=1m", "true")[0] != 0:
        pytest.skip("this system lets nobody mount a small file system for one process")
    return run_in


def run_words(*names):
    """Return the command that makes one run."""
    return [*command("smoke")[:2], "lib.runs", "execute", "smoke", *names]


# 100 kB: not even the notebook; 3 MB: half a checkpoint; 8 MB: two of three checkpoints.
@pytest.mark.parametrize("size", ["100k", "3m", "8m"])
def test_a_full_disk_is_named_with_what_it_has_left(mounted, tmp_path, size):
    """About fifteen seconds each; nothing that looks finished is left behind."""
    status, output = mounted(
        f"size={size}", *run_words("03_baselines", "bart"), after=f"cp -r outputs/smoke {tmp_path}/left"
    )
    assert status == 1
    assert "cannot write outputs/smoke/03_baselines/bart" in output
    assert "its disk has 0." in output
    assert "MB left. Free space" in output
    assert not list((tmp_path / "left").rglob("manifest-*.json"))


def test_read_only_outputs_stop_before_anything_runs(mounted):
    """Seconds."""
    status, output = mounted("ro", *command("smoke"))
    assert status == 1
    assert "PROFILE=smoke: [Errno 30] cannot write outputs/smoke/.locks: Read-only file system" in output
    assert "make the folder writable" in output
    assert ": started" not in output
    status, output = mounted("ro", *run_words("03_baselines", "bart"))
    assert status == 1
    assert "cannot write outputs/smoke/03_baselines" in output
    assert "Read-only file system" in output


def test_without_network_public_data_are_an_error_that_says_where_to_put_them(project, tmp_path):
    """The proxy is one that nobody answers at; about fifteen seconds."""
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    home = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    before = {path: path.read_bytes() for path in (project / "outputs" / "laptop" / "tables").glob("*")}
    status, output = execute(project, "laptop", "01_data_audit", "audit", **nowhere, **home)
    assert status == 1
    assert "could not be downloaded from https://" in output
    assert "With no network, set OPENPI_DATA to a folder" in output
    assert before
    assert before == {path: path.read_bytes() for path in (project / "outputs" / "laptop" / "tables").glob("*")}
