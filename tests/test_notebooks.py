import json
import shutil
import subprocess
import sys

import nbformat
import pytest

from lib.paths import NOTEBOOKS, OUTPUTS, PARAMS, ROOT
from lib.runs import notebook_names
from tests.notebook_gate import problems

COMMITTED = [NOTEBOOKS / f"{name}.ipynb" for name in notebook_names()]


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.stem)
def test_committed_notebook_keeps_the_rules(path):
    assert problems(nbformat.read(path, as_version=4)) == []


@pytest.fixture
def notebook():
    return nbformat.read(COMMITTED[0], as_version=4)


def parameters_cell(notebook):
    return next(cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", []))


def spoil_tag(notebook):
    parameters_cell(notebook).metadata["tags"] = []


def spoil_literal(notebook):
    parameters_cell(notebook).source += "\nn: int = seed * 10  # derived"


def spoil_help(notebook):
    parameters_cell(notebook).source += "\nn: int = 10"


def spoil_kernel(notebook):
    notebook.metadata["kernelspec"]["name"] = "my-env-39"


def spoil_outputs(notebook):
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None


def spoil_order(notebook):
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    code[1].execution_count, code[2].execution_count = code[2].execution_count, code[1].execution_count


def spoil_magic(notebook):
    notebook.cells.append(nbformat.v4.new_code_cell("%nosuchmagic\nraise ValueError", execution_count=99))


def spoil_definition(notebook):
    notebook.cells.append(nbformat.v4.new_code_cell("def f():\n    return 1", execution_count=99))


def spoil_progress(notebook):
    stream = nbformat.v4.new_output("stream", name="stdout", text="50%\r100% 3.2it/s")
    notebook.cells[-1].outputs.append(stream)


def spoil_path(notebook):
    notebook.cells[-1].outputs.append(nbformat.v4.new_output("stream", name="stdout", text="/home/me/x"))


def spoil_size(notebook):
    notebook.cells[-1].outputs.append(nbformat.v4.new_output("stream", name="stdout", text="x" * 2_000_000))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (spoil_tag, "0 cells are tagged parameters"),
        (spoil_literal, "no plain literal"),
        (spoil_help, "without type, plain value and help"),
        (spoil_kernel, "kernel is not python3"),
        (spoil_outputs, "no stored outputs"),
        (spoil_order, "not run from top to bottom"),
        (spoil_magic, "a magic or shell line: %nosuchmagic"),
        (spoil_definition, "belongs in lib: def f():"),
        (spoil_progress, "a progress bar"),
        (spoil_path, "a path of somebody's machine"),
        (spoil_size, "larger than 1 MB"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_the_gate_fails_a_spoilt_notebook(notebook, spoil, message):
    assert not [found for found in problems(notebook) if message in found]
    spoil(notebook)
    assert [found for found in problems(notebook) if message in found]


def test_a_notebook_gives_the_same_results_from_any_folder(tmp_path):
    """Run by hand with papermill, as the README says, from the project, from its own folder and from elsewhere."""
    source = NOTEBOOKS / "01_data_audit.ipynb"
    scores = []
    for index, folder in enumerate((ROOT, NOTEBOOKS, tmp_path)):
        command = [sys.executable, "-m", "papermill", str(source), str(tmp_path / "out.ipynb"), "--no-progress-bar"]
        parameters = ["-f", str(PARAMS / "smoke" / "common.yaml"), "-p", "run", f"test-{index}"]
        try:
            subprocess.run([*command, *parameters], cwd=folder, check=True, capture_output=True, timeout=300)
            made = OUTPUTS / "smoke" / "01_data_audit" / f"test-{index}"
            assert len(list(made.glob("manifest-*.json"))) == 1
            scores.append(json.loads((made / "metrics.json").read_text())["scores"])
        finally:
            shutil.rmtree(OUTPUTS / "smoke" / "01_data_audit" / f"test-{index}", ignore_errors=True)
    assert scores[0] == scores[1] == scores[2]
