import numpy as np
import pytest

from lib import paired


def metrics(values, ids=None):
    ids = ids or [f"p{index // 4}||{index % 4}" for index in range(len(values))]
    return {"per_step": {"model": {"ids": ids, "original_exact": [[0, 0, value] for value in values]}}}


def test_a_constant_gain_is_found_and_noise_is_not():
    draw = np.random.default_rng(0)
    base = draw.uniform(size=80)
    rows = {
        "BART": metrics(base),
        "BART + EMem": metrics(base + 0.1),
        "BART + ECond": metrics(base + draw.normal(size=80)),
    }
    found = paired.frame(rows).set_index("row")
    assert found.loc["BART + EMem", "verdict"] == "better"
    assert found.loc["BART + EMem", ["difference", "low", "high"]].tolist() == pytest.approx([10, 10, 10])
    assert found.loc["BART + EMem", "detectable"] == pytest.approx(0, abs=1e-6)
    noisy = found.loc["BART + ECond"]
    assert noisy.verdict == "no difference shown"
    # 2.8 standard errors of the mean of 20 procedures' means of 4 steps each
    assert noisy.detectable == pytest.approx(2.8 * 100 / np.sqrt(80), rel=0.35)


def test_steps_are_joined_by_id_and_rows_of_one_run_are_told_apart():
    ids = ["a||1", "b||1", "b||2"]
    both = metrics([0.1, 0.2, 0.3], ids)["per_step"]["model"]
    several = {"per_step": {"BART + EMem + ECond": both, "majority template": {}}}
    rows = {"BART + EMem + ECond": several, "BART + EMem": metrics([0.3, 0.1, 0.2], ["b||2", "a||1", "b||1"])}
    found = paired.frame(rows)
    assert found.difference.tolist() == pytest.approx([0])
    assert found.against.tolist() == ["BART + EMem"]
    assert paired.frame({"BART": rows["BART + EMem"]}).empty
    rows["BART + EMem"] = metrics([0.3], ["c||1"])
    with pytest.raises(ValueError, match="not the same ones"):
        paired.frame(rows)


@pytest.mark.parametrize(
    ("row", "others"),
    [
        ("BART", []),
        ("BART + EMem + ECond", ["BART", "BART + EMem"]),
        ("GPT-2 + ECond", ["GPT-2"]),
        ("BART + ECond (released settings)", ["BART", "BART + ECond"]),
        ("GPT-2, no goal, top-p 0.9", []),
    ],
)
def test_a_row_stands_beside_those_that_its_name_adds_to(row, others):
    assert paired.baselines(row) == others
