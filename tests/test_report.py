"""The report: what it shows comes from files, and each number leads to its run."""

import json
import re
from html.parser import HTMLParser

import pytest
from matplotlib.figure import Figure

from lib import results
from lib.data import load_openpi_c
from lib.data.scoring import from_procedures
from lib.metrics import cluster_f1, openpi_f1
from lib.paths import ROOT, SAMPLE
from lib.report import page
from lib.report.explorer import explored, said_files
from lib.text import is_no_change

PROFILE = "laptop"
ROW = "BART <b>of one's own</b>"
WORDS = "glow of kite was dim before and </script><b>bright afterwards"


def own_cluster(sentences):
    """Put every sentence into a cluster of its own, but those that begin alike."""
    starts = [sentence.split(" ")[0] for sentence in sentences]
    return [list(dict.fromkeys(starts)).index(start) for start in starts]


@pytest.fixture
def procedures():
    return load_openpi_c("test", root=SAMPLE)


@pytest.fixture
def outputs(tmp_path, monkeypatch, procedures):
    """Return the folder of a profile with one finished run whose model says gold, but for the first step."""
    monkeypatch.setattr("lib.paths.OUTPUTS", tmp_path)
    monkeypatch.setattr("lib.report.page.OUTPUTS", tmp_path)
    gold = from_procedures(procedures).sentences
    first = next(iter(gold))
    said = gold | {first: [WORDS, WORDS, *gold[first][:1]]}
    run = results.Run("03_baselines", {"profile": PROFILE, "run": "own", "data": "public", "model": "wheel:smollm2"})
    run.save("sample_predictions.jsonl", "".join(json.dumps({"id": k, "answers": v}) + "\n" for k, v in said.items()))
    run.save("predictions.jsonl", "")
    for name in ("own_figure", "loss_curve"):
        run.save_figure(name, Figure())
    score = {"precision": 0.5, "recall": 0.25, "f1": 0.0987654, "interval": "1 to 2", "signature": "openpi_f1|v:9"}
    facts = {"training": {"updates": 7, "tokens": 1234, "device": "cpu"}, "parameters_of_model": 134_515_008}
    run.save_metrics({"model": {"original_exact": score}}, row=ROW, dataset="openpi-c", data="x", **facts)
    run.finish()
    table = [
        "row,column,paper,ours,difference,95% interval,verdict,model,note",
        "BART,cluster_rouge_l,33.40,12.3456,,11 to 13,other model,ours,",
        "GPT-2,cluster_rouge_l,-,,,,not run,,\n",
    ]
    run.save("tables/table2.csv", "\n".join(table))
    run.save("tables/more.csv", "name,value\n<i>x</i>,0.5\n")
    run.save("tables/empty.csv", "\n")
    return tmp_path / PROFILE


class Text(HTMLParser):
    """The text that a reader sees, the addresses, and the ids."""

    def __init__(self, html):
        super().__init__()
        self.seen, self.addresses, self.ids, self.tags = [], [], [], []
        self._hidden = False
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self._hidden = tag in {"script", "style"}
        self.tags.append(tag)
        values = dict(attributes)
        self.addresses += [values[key] for key in ("href", "src") if key in values]
        self.ids += [values["id"]] if "id" in values else []

    def handle_endtag(self, tag):
        self._hidden = False

    def handle_data(self, data):
        if not self._hidden:
            self.seen.append(data)


def test_the_page_shows_what_the_files_say_and_changes_with_them(outputs):
    seen = " ".join(Text(page.render(PROFILE, own_cluster)).seen)
    for expected in (
        "12.35",
        "33.40",
        "other model",
        "11 to 13",
        "own_figure",
        "9.88",
        "1,234",
        "openpi_f1|v:9",
        ROW,
        "<i>x</i>",
    ):
        assert expected in seen
    assert "lib.metrics" in seen
    assert "openpi-c/test.jsonl.clustered" in seen
    table = outputs / "tables" / "table2.csv"
    table.write_text(table.read_text().replace("12.3456", "77.7"))
    again = " ".join(Text(page.render(PROFILE, own_cluster)).seen)
    assert "77.70" in again
    assert "12.35" not in again


def test_figures_of_the_papers_come_first_and_one_without_a_caption_is_not_lost(outputs):
    found = [(figure["caption"], figure["file"].rsplit("/", 1)[1]) for figure in page._figures(PROFILE)]
    assert found == [(page.CAPTIONS["loss_curve"], "loss_curve.png"), ("own_figure", "own_figure.png")]
    next((outputs / "03_baselines" / "own").glob("manifest-*.json")).unlink()
    assert list(page._figures(PROFILE)) == []


def test_the_page_needs_no_network_and_its_links_lead_somewhere(outputs):
    html = page.render(PROFILE, own_cluster)
    text = Text(html)
    assert "iframe" not in text.tags
    assert all(address.startswith(("#", "data:", "https://")) for address in text.addresses)
    assert [a for a in text.addresses if a.startswith("#") and a[1:] not in text.ids] == []
    assert len(set(text.ids)) == len(text.ids)
    assert not re.search(r"(src|@import|url\()\W*https?:", html)


def test_template_style_and_script_hold_no_results(procedures):
    """A number with decimals or a sentence in them would be one that no run wrote."""
    sentences = {sentence for p in procedures for step in p.steps for sentence in [step.text, *step.sentences]}
    for name in ("page.html", "page.js"):
        source = (ROOT / "lib" / "report" / name).read_text()
        # Comments, the style's numbers and formats aside.
        assert re.findall(r"(?<![\w#%.])\d+\.\d+(?![\w%.])", re.sub(r"137\.5", "", source)) == []
        assert [sentence for sentence in sentences if sentence in source and not is_no_change(sentence)] == []


def test_the_explorer_has_the_words_of_the_files_and_the_scores_of_the_metrics(outputs, procedures):
    said = said_files(PROFILE)
    assert list(said) == [ROW]
    data = explored(procedures, said, own_cluster)
    step = data["procedures"][0]["steps"][0]
    (own,) = step["models"]
    assert own["said"] == [WORDS, step["gold"][0]]
    assert own["repeated"] == 1
    for match in ("exact", "bleu", "rouge_l"):
        answers = [WORDS, WORDS, step["gold"][0]]
        best = own["best"][match]
        original = openpi_f1([answers], [step["gold"]], match)
        assert own["scores"][f"original_{match}"] == pytest.approx(original.per_step[0])
        for side, value in (("predicted", original.precision), ("gold", original.recall)):
            assert sum(score for _, score in best[side]) / len(best[side]) == pytest.approx(value)
        clusters = own["clusters"][match]
        based = cluster_f1([answers], [step["gold"]], match, clusterer=own_cluster)
        assert own["scores"][f"cluster_{match}"] == pytest.approx(based.per_step[0])
        assert sum(score for *_, score in clusters) / sum(bool(ours) for ours, *_ in clusters) == pytest.approx(
            based.precision
        )
    assert own["best"]["exact"]["predicted"] == [(None, 0.0), (0, 1.0)]
    assert data["models"][0]["behind"] == "SmolLM2-135M for GPT-2 medium, 135M, 7 updates"
    assert data["models"][0]["signatures"]["cluster_exact"].startswith("cluster_f1|match:exact")


def test_what_models_say_cannot_break_out_of_the_page(outputs):
    html = page.render(PROFILE, own_cluster)
    assert WORDS not in html
    holder = re.search(r'<script type="application/json" id="explored">(.*?)</script>', html, re.DOTALL)
    assert json.loads(holder[1])["procedures"][0]["steps"][0]["models"][0]["said"][0] == WORDS


def test_a_file_that_lacks_steps_is_refused_by_name(outputs):
    path = outputs / "03_baselines" / "own" / "sample_predictions.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))
    with pytest.raises(ValueError, match="1 of the references' steps are not predicted"):
        page.render(PROFILE, own_cluster)


def test_a_profile_without_runs_has_a_page_that_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("lib.paths.OUTPUTS", tmp_path)
    monkeypatch.setattr("lib.report.page.OUTPUTS", tmp_path)
    assert "has said anything about the sample yet" in page.render("paper", own_cluster)
