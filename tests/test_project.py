import ast
import json
import re
import subprocess
import sys
import tomllib

import pytest
import yaml

from lib import __version__, tables
from lib.data import FILES, fetch
from lib.data.lines import read_jsonl
from lib.paths import OUTPUTS, ROOT, SAMPLE
from lib.results import REPORT

TEXT = {
    ".py",
    ".ipynb",
    ".json",
    ".jsonl",
    ".md",
    ".html",
    ".csv",
    ".tex",
    ".txt",
    ".yaml",
    ".yml",
    ".tsv",
    ".cff",
    ".toml",
}
WORDS = 8


def tracked() -> list:
    """Return the files under version control, and those that would be."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout: nothing tells which files are published")
    return [ROOT / name for name in names if (ROOT / name).is_file()]


def words(text: str) -> list[str]:
    """Return lower-case words without punctuation."""
    return re.findall(r"\w+", text.lower().replace("'", "").replace("’", ""))


def shingles(text: str) -> set[tuple[str, ...]]:
    """Return every run of eight consecutive words."""
    found = words(text)
    return {tuple(found[i : i + WORDS]) for i in range(len(found) - WORDS + 1)}


def strings(value, without=()) -> list[str]:
    """Return every string in a JSON value, but for the values of some keys."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        value = [item for key, item in value.items() if key not in without]
    return [text for item in value for text in strings(item, without)] if isinstance(value, list) else []


def data_shingles() -> set[tuple[str, ...]]:
    """Return the shingles of every step and answer of the data cache."""
    found = set()
    for name in FILES:
        text = fetch(name).read_text(encoding="utf-8")
        if name.startswith("openpi-c/") and name.endswith(".jsonl"):
            for row in map(json.loads, text.splitlines()):
                found |= shingles(row["query"])
                for entity, attribute, before, after in row["answers"]:
                    found |= shingles(f"{attribute} of {entity} was {before} before and {after} afterwards")
        elif name.endswith((".jsonl", ".clustered")):
            # Results are published under the procedures' ids, which are urls with the title inside.
            parts = (
                part for line in text.splitlines() for part in strings(json.loads(line), {"id", "url", "image_url"})
            )
            found |= {shingle for part in parts for shingle in shingles(part)}
        elif name.endswith((".txt", ".tsv")):
            found |= {s for line in text.splitlines() for part in line.split("\t") for s in shingles(part)}
    return found


def published_text(path) -> list[str]:
    """Return the texts of a file, one by one, so that a run of words never joins two of them."""
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix in {".json", ".ipynb"}:
        return strings(json.loads(text))
    if path.suffix == ".jsonl":
        return [part for line in text.splitlines() for part in strings(json.loads(line))]
    return [text]


@pytest.mark.real_data
def test_no_tracked_file_shares_eight_words_with_the_public_data():
    known = data_shingles()
    assert len(known) > 100_000
    hits = []
    # A model may well write a sentence that an annotator wrote too: its predictions are published by id, and what it
    # wrote about our own sample is shown in notebooks.
    predictions = set(OUTPUTS.glob("*/*/*/*predictions.jsonl"))
    on_sample = OUTPUTS.glob("laptop/*/*/*sample_predictions.jsonl")
    written = {found for path in on_sample for text in published_text(path) for found in shingles(text)}
    for path in tracked():
        if path in predictions or (path.suffix not in TEXT and path.suffix != ""):
            continue
        allowed = written if path.suffix == ".ipynb" else set()
        for text in published_text(path):
            hits += [f"{path.relative_to(ROOT)}: {' '.join(found)}" for found in (shingles(text) & known) - allowed]
    assert hits == []


@pytest.mark.real_data
def test_the_eight_word_test_can_fail():
    rows = read_jsonl(fetch("openpi-c/dev.jsonl"))
    query = next(row["query"] for _, row in rows if len(words(row["query"])) > 9)
    assert shingles(f"Read this: {query.upper()}") & data_shingles()


def test_importing_lib_loads_nothing_heavy_and_works_in_an_empty_home(tmp_path):
    modules = "lib, lib.data, lib.metrics, lib.results, lib.runs, lib.audit, lib.tables, lib.text"
    heavy = ("torch", "spacy", "transformers", "sentence_transformers")
    code = f"import sys, {modules}; print([name for name in {heavy} if name in sys.modules])"
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert list(tmp_path.iterdir()) == []


def test_modules_import_only_from_those_above_them_in_the_readme():
    readme = (ROOT / "README.md").read_text(encoding="utf-8").split("| module of `lib`")[1].split("\n\n")[0]
    order = [name for line in readme.splitlines() for name in re.findall(r"`(\w+)`", line.split("|")[1])]
    assert len(order) > 40
    for path in (ROOT / "lib").rglob("*.py"):
        own = path.relative_to(ROOT / "lib").parts[0].removesuffix(".py")
        if own == "__init__":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            names += [f"lib.{alias.name}" for alias in getattr(node, "names", []) if names == ["lib"]]
            for name in names:
                if name.startswith("lib.") and (other := name.split(".")[1]) in order and other != own:
                    assert order.index(other) < order.index(own), f"{path.name} imports lib.{other}"


def test_no_debugger_call_and_no_fixed_device():
    pattern = re.compile(r"\bbreakpoint\(|\bpdb\b|\.cuda\(|/home/|/root/")
    for path in [*(ROOT / "lib").rglob("*.py"), *(ROOT / "notebooks").glob("*.ipynb")]:
        assert not pattern.search(path.read_text(encoding="utf-8")), path


def test_versions_agree_everywhere():
    assert f'version = "{__version__}"' in (ROOT / "pyproject.toml").read_text()
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == __version__
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_every_dependency_is_pinned():
    text = (ROOT / "pyproject.toml").read_text()
    listed = re.findall(r'^    "([^"]+)",$', text.split("[tool.", 1)[0], flags=re.M)
    assert len(listed) > 25
    assert all(re.fullmatch(r"[\w-]+==[\w.]+", entry) for entry in listed)


def test_the_package_lists_every_folder_with_code():
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    folders = {".".join(path.parent.relative_to(ROOT).parts) for path in (ROOT / "lib").rglob("__init__.py")}
    assert set(listed) == folders


def test_the_readme_shows_the_committed_results():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    block = readme.split(tables.README_START)[1].split(tables.README_END)[0]
    assert block.strip() == tables.readme_block().strip()


def numbers_in(path) -> set[float]:
    """Return every number of a file, also as a share of 100 and in percent; scores by step are left out."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        text = json.dumps({key: value for key, value in json.loads(text).items() if key != "per_step"})
    found = {abs(float(number)) for number in re.findall(r"\d+(?:\.\d+)?(?:e-?\d+)?", text)}
    return found | {100 * number for number in found} | {number / 100 for number in found}


def untraced(text: str) -> list[str]:
    """Return the numbers with decimals in running text that no file named in their paragraph holds."""
    missing = []
    for paragraph in re.sub(r"```.*?```", "", text, flags=re.DOTALL).split("\n\n"):
        named = [ROOT / name.rstrip("/") for name in re.findall(r"`((?:outputs|params)/[\w./-]+)`", paragraph)]
        files = [path / "metrics.json" if path.is_dir() else path for path in named]
        known = {number for path in files if path.exists() for number in numbers_in(path)}
        for number in re.findall(r"(?<![\w.-])\d+\.\d+(?!\w|\.\d)", re.sub("Python 3.11", "", paragraph)):
            digits = len(number.split(".")[1])
            if not any(abs(value - float(number)) <= 0.5001 * 10**-digits for value in known):
                missing.append(number)
    return missing


def test_every_number_of_the_readme_is_in_a_file_that_its_paragraph_names():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    head, rest = readme.split(tables.README_START)
    assert untraced(head + rest.split(tables.README_END)[1]) == []


def test_a_number_without_a_file_is_found():
    text = "BART has 31.57 (`outputs/laptop/tables/table2.csv`), not 31.56.\n\nAnd 31.57."
    assert untraced(text) == ["31.56", "31.57"]


def test_the_readme_names_every_make_target_and_module():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    targets = re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), flags=re.M)
    assert [target for target in targets if f"make {target}" not in readme] == []
    modules = {path.relative_to(ROOT / "lib").parts[0].removesuffix(".py") for path in (ROOT / "lib").rglob("*.py")}
    assert [name for name in sorted(modules - {"__init__"}) if f"`{name}`" not in readme] == []


@pytest.mark.parametrize("path", sorted(OUTPUTS.glob("laptop/*/*/manifest-*.json")), ids=lambda path: path.parent.name)
def test_committed_results_are_what_their_runs_wrote(path):
    from lib import runs
    from lib.provenance import sha256

    planned = {(run.notebook, run.run): run for run in runs.plan("laptop")}
    content = json.loads(path.read_text())
    assert planned[content["notebook"], path.parent.name].manifest == path, "a parameter changed: run it again"
    for name, expected in content["files"].items():
        if name == REPORT:  # made again from the others, not kept
            continue
        base = OUTPUTS / "laptop" if name.startswith(("tables/", "figures/")) else path.parent
        assert sha256(base / name) == expected, name


def test_the_sample_is_packaged_with_the_library():
    assert SAMPLE.is_relative_to(ROOT)
    assert (SAMPLE / "openpi-c" / "train.jsonl").exists()
