"""Rehearsals: what is replaced in a run, tiny models of every family, estimates; all runs of `paper` in `test-slow`."""

import os
import subprocess

import pytest
import yaml

from lib import estimates, rehearsal, runs
from lib.models import load_model
from lib.models.families import PUBLISHED, count_parameters, family, published_config, save_tiny
from lib.paths import ROOT
from tests.test_locks import HOLD, start

PAPER = runs.plan("paper")


@pytest.mark.parametrize(
    ("model", "millions"),
    [("bart-large", 406), ("gpt2", 124), ("gpt2-xl", 1558), ("opt-1.3b", 1316), ("opt-30b", 29975), ("bloom-3b", 3003),
     ("bloom-7b1", 7069), ("t5-base", 223), ("mt5-base", 582)],
)  # fmt: skip
def test_published_configs_have_the_published_sizes(model, millions):
    assert round(count_parameters(published_config(f"owner/{model}")) / 1e6) == millions


def test_a_model_of_no_known_family_is_named():
    with pytest.raises(ValueError, match=r"model 'me/llama' is none of the papers'.*add its sizes"):
        family("me/llama")


@pytest.mark.parametrize("name", sorted({kind.model_type for kind, _ in PUBLISHED.values()}))
def test_tiny_models_load_as_their_family_by_their_folder(name, tmp_path):
    save_tiny(name, tmp_path)
    model, tokenizer = load_model(str(tmp_path))
    assert model.config.model_type == name
    ids = tokenizer("Pour the milk.").input_ids
    assert max(ids) < model.config.vocab_size
    assert tokenizer.decode(ids, skip_special_tokens=True).strip() == "Pour the milk."
    assert (ids[-1] == tokenizer.eos_token_id) is (name in {"bart", "t5", "mt5"})
    assert (ids[0] == tokenizer.bos_token_id) is (name in {"bart", "opt"})


@pytest.mark.parametrize("run", PAPER, ids=lambda run: f"{run.notebook}/{run.run}")
def test_only_models_data_amounts_and_places_are_replaced(run):
    changed = rehearsal.replaced(run.parameters, "paper")
    places = {"data", "raw", "decisions", "keep", "parts", "ranked", "first", "memory_first", "beside", "openpi_run"}
    models = {"model", "model_revision", "embedder", "embedder_revision"}
    amounts = {*rehearsal.FEW, *rehearsal.FEW_OF_ALL, *rehearsal.OFF, "evaluate_every"}
    assert changed.keys() <= places | models | amounts | {"said"}
    assert not [value for value in changed.values() if str(value).startswith("outputs/paper/")]
    assert {"learning_rate", "beams", "batch_size", "precision", "memory_query"}.isdisjoint(changed)


def test_a_rehearsal_of_a_rehearsal_is_refused(capsys):
    assert rehearsal.main(["write", "rehearsal"]) == 1
    assert "name the profile to rehearse" in capsys.readouterr().err


def test_a_second_rehearsal_is_refused_and_touches_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(rehearsal, "OUTPUTS", tmp_path)
    kept = tmp_path / "rehearsal" / "report.md"
    first = start(HOLD, str(tmp_path / "rehearsal" / ".locks" / "workflow.lock"))
    kept.write_text("of the first")
    assert rehearsal.main(["write", "paper"]) == 1
    assert "in the hands of another process" in capsys.readouterr().err
    assert kept.read_text() == "of the first"
    first.kill()
    first.communicate()


def test_estimates_follow_size_and_rows():
    by_run = {run.run: estimates.estimate(run.notebook, run.parameters) for run in PAPER}
    assert float(by_run["bart"]["hours on a P100"]) < float(by_run["bart_openpi"]["hours on a P100"])
    assert float(by_run["gpt2_small"]["GPU memory (GB)"]) < float(by_run["gpt2_xl"]["GPU memory (GB)"])
    assert float(by_run["opt_30b"]["GPU memory (GB)"]) >= 2 * 30
    assert float(by_run["emem"]["parameters (M)"]) == 444  # as the paper counts it
    assert by_run["bart"]["paper"] == "4"
    assert by_run["audit"]["hours on a P100"] == by_run["parabank2"]["hours on a P100"] == "-"


@pytest.mark.slow
def test_every_run_of_the_paper_profile_works_on_a_cpu(tmp_path):
    """The README's command in a clone, with this environment; a quarter of an hour."""
    clone, environment = tmp_path / "clone", ROOT / ".venv"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    settings = {key: value for key, value in os.environ.items() if key != "OPENPI_DATA"} | {"PYTHONPATH": str(clone)}
    ready = environment / ".ready"
    done = subprocess.run(
        ["make", "-o", str(ready), "rehearse", "PROFILE=paper", f"ENVIRONMENT={environment}"],
        cwd=clone, env=settings, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert f"{len(PAPER)} of {len(PAPER)} runs work" in done.stdout
    bart = yaml.safe_load((clone / "params/rehearsal/03_baselines/bart.yaml").read_text(encoding="utf-8"))
    assert (bart["learning_rate"], bart["beams"], bart["epochs"]) == (5e-5, 4, 1.0)
