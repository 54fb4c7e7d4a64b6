"""JSON lines with errors that name file and line."""

import json
from collections.abc import Iterator
from pathlib import Path


def read_jsonl(path: Path) -> Iterator[tuple[int, dict]]:
    """Yield (line number from 1, object) of a JSON-lines file; blank lines are passed over.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is empty, or a line is no JSON object: names file, line and what was found.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: check the name, or the folder in OPENPI_DATA")
    if path.stat().st_size == 0:
        raise ValueError(f"{path} is empty (0 bytes): a download or an export broke off; make it again")
    with open(path, encoding="utf-8") as file:
        try:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, _object(path, number, line)
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} is not UTF-8 text ({error}): save it as UTF-8") from error


def require(path: Path, number: int, row: dict, key: str, kind: type) -> object:
    """Return `row[key]`, or say that it is missing or of another type."""
    if key not in row:
        raise ValueError(f"{path}, line {number}: no field {key!r}; it has {', '.join(sorted(row)) or 'none'}")
    value = row[key]
    if not isinstance(value, kind):
        raise ValueError(f"{path}, line {number}: {key} is {value!r:.80}, expected {kind.__name__}")
    return value


def _object(path: Path, number: int, line: str) -> dict:
    """Parse one line."""
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{path}, line {number}: not JSON ({error.msg} at column {error.colno}): {line.strip()[:60]!r}; "
            "correct the line or export the file again"
        ) from error
    if not isinstance(row, dict):
        raise ValueError(f"{path}, line {number}: a JSON {type(row).__name__}, expected an object")
    return row
