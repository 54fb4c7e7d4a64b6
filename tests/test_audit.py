import pytest

from lib import audit, plots, published, results, tables
from lib.rows import (
    model_names,
    models_frame,
    other_data,
    outputs_cells,
    seed_deviations,
    strategy_cells,
    trained_cells,
    trained_rows,
)


@pytest.fixture(scope="module")
def procedures():
    return audit.load("sample")


def test_counts_of_the_sample(procedures):
    counts = audit.counts(procedures)
    assert counts.loc["openpi/train"].tolist() == [16, 73, 244]
    assert counts.loc["openpi-c/test"].tolist() == [6, 27, 111]


def test_the_papers_rates_of_issues_stand_beside_what_the_release_bounds(procedures):
    issues = audit.issues(procedures)
    assert issues["paper"].tolist() == ["15", "7.4", "32"]
    # Planted: 3 of 28 texts, and one procedure that is too short afterwards.
    assert issues.loc["procedure", "all, at most"] == pytest.approx(100 * 4 / 28)
    assert (issues.filter(like="at least").to_numpy() <= issues.filter(like="at most").to_numpy()).all()


@pytest.mark.real_data
def test_the_release_bounds_the_third_stage_closely():
    issues = audit.issues(audit.load("public"))
    assert issues.loc["change", "all, at least"] == pytest.approx(31.5, abs=0.05)
    assert issues.loc["change", "all, at most"] == pytest.approx(34.7, abs=0.05)


def test_planted_oddities_are_counted(procedures):
    problems = audit.field_problems(procedures)
    assert problems.loc["openpi/train"].tolist() == [2, 2, 0, 3, 1, 0]
    assert audit.round_trip("train", data="sample") == audit.RoundTrip(244, 1)  # `level of heat`


def test_a_perfect_model_is_below_100_where_changes_hold_commas(procedures, clusterer):
    ceilings = audit.ceilings(procedures, clusterer)
    released, safe = ceilings.loc["openpi-c/test, released"], ceilings.loc["openpi-c/test, safe"]
    assert released["with a comma"] == pytest.approx(100 / 111)  # one of 111 changes
    assert released["lost"] == pytest.approx(100 / 111)
    assert 90 < released["original exact"] < 100
    assert released["cluster exact"] < 100
    assert safe.tolist()[1:] == pytest.approx([0, 100, 100, 100, 100])


def test_unknown_data_is_refused_and_never_replaced_by_the_sample(cache):
    with pytest.raises(ValueError, match="data='real': expected public, sample, or a folder"):
        audit.load("real")
    with pytest.raises(FileNotFoundError, match="OPENPI_DATA is set"):
        audit.load("public")


def test_figure_shows_the_histograms_that_it_was_given(procedures):
    histograms = audit.histograms(procedures)
    assert sum(histograms["steps per procedure"]["OpenPI"]) == 28
    assert sum(histograms["state changes per step"]["OpenPI-C"]) == 108
    assert audit.histogram([0, 1, 1, 9], 3).tolist() == [1, 2, 0, 1]
    figure = plots.distributions(histograms)
    for axis, by_name in zip(figure.axes, histograms.values(), strict=True):
        shares = [100 * n / sum(counts) for counts in by_name.values() for n in counts]
        assert [bar.get_height() for bar in axis.patches] == pytest.approx(shares)


def test_comparison_says_not_run_for_what_is_absent_and_gives_notes_beside_numbers():
    cells = {("openpi/train", "state changes"): 23681, ("openpi/train", "steps"): 3216}
    frame = tables.comparison("table1", cells).set_index(["row", "column"])
    assert frame.loc[("openpi/train", "state changes"), ["paper", "verdict"]].tolist() == ["23.9k", "differs"]
    assert "23,681" in frame.loc[("openpi/train", "state changes"), "note"]
    assert frame.loc[("openpi/train", "steps"), ["difference", "verdict"]].tolist() == [0, "match"]
    assert frame.loc[("openpi/dev", "steps"), "verdict"] == published.NOT_RUN
    with pytest.raises(KeyError, match="table1 has no cell"):
        tables.comparison("table1", {("openpi/valid", "steps"): 1})


def test_a_run_on_other_data_is_never_compared():
    cells = {("openpi/train", "steps"): 3216}
    frame = tables.comparison("table1", cells, "other data").set_index(["row", "column"])
    row = frame.loc[("openpi/train", "steps")]
    assert row["verdict"] == "other data"
    assert row[["difference"]].isna().all()
    assert row["note"] == ""


def test_printed_tables_say_not_run_and_never_zero():
    frame = tables.comparison("table2", {})
    assert tables.wide(frame).loc["BART", "original_exact"] == "not run (4.88)"
    summary = tables.summary({"Table 2": frame})
    assert set(summary.ours) == {"not run"}
    assert "| not run" in tables.to_markdown(summary)


def test_table_1_without_an_audit_has_no_cells():
    assert tables.table1_cells(None) == {}
    assert len(tables.bcubed_frame(None)) == 1


def trained(f1, row="BART", study=()):
    """Return what 08_tables reads of a trained run."""
    scores = {
        f"{kind}_{match}": {"f1": f1, "interval": "1 to 2", "signature": "s"}
        for kind in ("original", "cluster") for match in ("exact", "bleu", "rouge_l")
    }  # fmt: skip
    return {row: {"scores": {"model": scores}, "study": {"strategies": list(study)}}}


def test_trained_rows_fill_their_tables_and_rows_of_our_own_follow_the_papers():
    rows = trained(0.25) | trained(0.5, "BART (released settings)")
    cells, intervals = trained_cells(rows)
    assert {value for (row, _), value in cells.items() if row == "BART"} == {25.0}
    assert intervals["BART", "cluster_bleu"] == "1 to 2"
    cells |= {(tables.TANDON, "original_exact"): 4.28}
    frame = tables.comparison("table3", cells, "other model", intervals, by_row={tables.TANDON: ""}, rows=rows)
    said = frame.set_index(["row", "column"])
    assert said.verdict["BART", "original_exact"] == "other model"
    assert said.verdict[tables.TANDON, "original_exact"] == "match"
    assert said.verdict["GPT-2", "original_exact"] == published.NOT_RUN
    assert said.ours["BART (released settings)", "original_exact"] == 50
    assert said.paper["BART (released settings)", "original_exact"] == "-"
    assert list(dict.fromkeys(frame.row))[-1] == "BART (released settings)"
    assert frame.ours.dtype == float
    with pytest.raises(KeyError, match="table3 has no cell"):
        tables.comparison("table3", cells)


def repeated(run, seed, f1, **changed):
    """Return the metrics of one run of a row; the first step always scores 0."""
    ids = ["a||1", "b||1"]
    per_step = {
        "model": {"ids": ids[::-1] if seed else ids, "original_exact": [[0, 0, f1], [0, 0, 0]][:: -1 if seed else 1]}
    }
    return {
        "notebook": "03_baselines",
        "parameters": {"run": run, "seed": seed, "model": "tiny", "keep": run} | changed,
        "scores": {"model": {"original_exact": {"f1": f1 / 2, "interval": "0 to 1"}}},
        "decoding": {"outputs_per_step": f1, "distinct_per_step": f1},
        "data": "openpi-c/test",
        "study": {"strategies": [{"way": "beam 4", "cluster_bleu_f1": f1}]},
        "per_step": per_step,
        "dataset": "openpi-c",
        "row": "BART",
        "parameters_of_model": 1_000_000,
        "training": {"updates": 7, "tokens": 9, "wall_time_seconds": 60},
    }


@pytest.fixture
def two_seeds(monkeypatch):
    """Let two finished runs fill one row, and return them by name."""
    runs = {"again": repeated("again", 1, 0.4), "bart": repeated("bart", 0, 0.2)}
    monkeypatch.setattr(results, "finished_runs", lambda profile, notebook: sorted(runs))
    monkeypatch.setattr(results, "load", lambda profile, notebook, run: runs[run])
    return runs


def test_runs_of_a_row_that_differ_in_their_seed_become_mean_and_deviation(two_seeds):
    rows = trained_rows("laptop", ["03_baselines"], "openpi-c")
    cells, intervals = trained_cells(rows)
    assert cells == {("BART", "original_exact"): pytest.approx(15)}
    assert intervals == {("BART", "original_exact"): "0.0 to 30.0"}  # of the mean over seeds, two procedures
    spread = seed_deviations(rows)
    assert spread == {("BART", "original_exact"): pytest.approx(10 / 2**0.5)}
    assert model_names(rows) == {"BART": "random BART, 1M, 7 updates, mean of 2 seeds"}
    frame = tables.comparison("table2", cells, "other model", intervals, deviations=spread)
    assert frame.set_index(["row", "column"]).loc[("BART", "original_exact"), "sd over seeds"] == pytest.approx(
        7.0711, abs=1e-4
    )
    for run in (rows["BART"], *rows["BART"]["repeats"]):
        for who in ("model", "majority_template"):
            run["scores"].setdefault(who, {})["original_rouge_l"] = {"f1": run["decoding"]["outputs_per_step"]}
    assert outputs_cells(rows) == {("BART", "outputs"): pytest.approx((0.2 + 0.4) / 2)}
    assert strategy_cells(rows) == {("BART", "beam 4"): pytest.approx(30)}
    assert models_frame(rows)["ROUGE-L F1"].tolist() == pytest.approx([20, 40])  # a line a run
    del two_seeds["again"]
    del two_seeds["bart"]["scores"]["model"]["original_rouge_l"]
    alone = trained_rows("laptop", ["03_baselines"], "openpi-c")
    assert seed_deviations(alone) == {}
    assert "sd over seeds" not in tables.comparison("table2", trained_cells(alone)[0], deviations={})


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (repeated("again", 0, 0.4), "have the same seed"),
        (repeated("again", 1, 0.4, model="warm:minilm"), "differ in model"),
    ],
)
def test_runs_of_a_row_that_are_no_repeats_are_refused(two_seeds, other, why):
    two_seeds["again"] = other
    with pytest.raises(ValueError, match=f"both fill the row 'BART' and {why}: give one of them another row"):
        trained_rows("laptop", ["03_baselines"], "openpi-c")


def test_a_row_on_data_of_ones_own_is_never_held_against_the_paper():
    rows = {"BART": {"data": "openpi-c/test", "dataset": "openpi-c"}}
    rows |= {"GPT-2": {"data": "mine/openpi-c/test", "dataset": "openpi-c"}}
    assert other_data(rows) == {"GPT-2": "other data"}
    frame = tables.comparison("table2", {("GPT-2", "original_exact"): 3.92}, by_row=other_data(rows))
    assert "match" not in set(frame.verdict)


def test_a_small_model_stands_beside_its_number():
    rows = trained(0.25)
    rows["BART"] |= {"parameters": {"model": "warm:minilm"}, "parameters_of_model": 29_861_376}
    rows["BART"] |= {"training": {"updates": 2709}}
    names = model_names(rows)
    assert names == {"BART": "BART from MiniLM for BART-large, 30M, 2,709 updates"}
    frame = tables.comparison("table2", trained_cells(rows)[0], "other model", models=names)
    assert set(frame[frame.row == "BART"].model) == set(names.values())
    assert set(frame[frame.row == "GPT-2"].model) == {""}
    summary = tables.summary({"Table 2": frame}).set_index("row")
    assert summary.loc["BART", "our model"] == names["BART"]
    assert summary.loc["GPT-2", "our model"] == ""


def test_table_4_has_means_over_seeds():
    study = [{"way": "top-p 0.9", "cluster_bleu_f1": value} for value in (0.1, 0.2)]
    study += [{"way": "beam 4", "cluster_bleu_f1": 0.3}, {"way": "as chosen on dev", "cluster_bleu_f1": 0.9}]
    cells = strategy_cells(trained(0.2, study=study))
    assert cells == {("BART", "top-p 0.9"): pytest.approx(15), ("BART", "beam 4"): pytest.approx(30)}
    assert strategy_cells({}) == strategy_cells(trained(0.2)) == {}
