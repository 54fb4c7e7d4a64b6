"""What a committed notebook must be like; `problems` lists what is wrong with one."""

import ast
import json
import re

from nbformat import NotebookNode

MAX_BYTES = 1_000_000
MAX_CELLS = 16
MAX_LINES = 14


def problems(notebook: NotebookNode) -> list[str]:
    """Return every rule that a notebook breaks."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [*_shape(notebook, code), *_parameters(code), *_cells(code), *_outputs(notebook, code)]


def _shape(notebook, code):
    if notebook.metadata.get("kernelspec", {}).get("name") != "python3":
        yield "its kernel is not python3"
    if len(json.dumps(notebook)) > MAX_BYTES:
        yield "it is larger than 1 MB"
    if sum(cell.cell_type == "markdown" for cell in notebook.cells) == 0 or notebook.cells[0].cell_type != "markdown":
        yield "it does not start with a text that says what it reproduces"
    if len(code) > MAX_CELLS:
        yield f"it has {len(code)} code cells, more than {MAX_CELLS}"
    if not any("NBVAL_CHECK_OUTPUT" in cell.source for cell in code):
        yield "no cell's output is checked (NBVAL_CHECK_OUTPUT)"


def _parameters(code):
    tagged = [cell for cell in code if "parameters" in cell.metadata.get("tags", [])]
    if len(tagged) != 1:
        yield f"{len(tagged)} cells are tagged parameters, expected 1"
    for cell in tagged:
        for line in cell.source.splitlines():
            if not re.fullmatch(r"\w+: (str|int|float|bool) = [^=|#]+  # \S[^=]*", line):
                yield f"parameter without type, plain value and help: {line}"
                continue
            value = line.split(" = ", 1)[1].split("  # ")[0]
            try:
                ast.literal_eval(value)
            except (ValueError, SyntaxError):
                yield f"parameter that is no plain literal: {line}"


def _cells(code):
    for cell in code:
        lines = cell.source.splitlines()
        if len(lines) > MAX_LINES and "parameters" not in cell.metadata.get("tags", []):
            yield f"a cell of {len(lines)} lines: {lines[0]}"
        if magic := [line for line in lines if line.lstrip().startswith(("%", "!"))]:
            yield f"a magic or shell line: {magic[0]}"
            continue
        for node in ast.walk(ast.parse(cell.source)):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Lambda | ast.While):
                yield f"a definition or loop that belongs in lib: {ast.unparse(node).splitlines()[0]}"


def _outputs(notebook, code):
    if [cell.execution_count for cell in code] != list(range(1, len(code) + 1)):
        yield "it was not run from top to bottom in one go (make notebooks)"
    if not any(cell.outputs for cell in code):
        yield "it has no stored outputs (make notebooks)"
    text = json.dumps([cell.outputs for cell in code])
    for mark, what in (
        (r"\\r", "a progress bar's carriage return"),
        ("it/s", "a progress bar"),
        ("widget-view", "a widget"),
    ):
        if mark in text:
            yield f"{what} is stored in its outputs"
    if any(output.output_type == "error" or output.get("name") == "stderr" for cell in code for output in cell.outputs):
        yield "an error or a warning is stored in its outputs"
    if re.search(r"(/home/|/root/|/Users/|/work/|/tmp/)", text):
        yield "a path of somebody's machine is stored in its outputs"
