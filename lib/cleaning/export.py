"""A cleaned data set in the released format: `to_openpi_c`."""

import json
from collections.abc import Sequence

from lib.data import Procedure, step_id


def to_openpi_c(procedures: Sequence[Procedure]) -> tuple[str, list[str]]:
    """Return the text of a file in OpenPI-C's format, and what that format cannot hold.

    Returns
    -------
    text : str
        JSON lines, a step a line: `{"id": [url, n], "query": text, "answers": [[entity, attribute, before, after]]}`.
    left_out : list of str
        `url||n: sentence` of every sentence that states no change which could be cut into four parts.
    """
    lines, left_out = [], []
    for procedure in procedures:
        for step in procedure.steps:
            answers = [list(vars(change).values()) for change in step.changes]
            row = {"id": [procedure.id, step.number], "query": step.text, "answers": answers}
            lines.append(json.dumps(row, ensure_ascii=False) + "\n")
            left_out += [f"{step_id(procedure.id, step.number)}: {sentence}" for sentence in step.unparsed]
    return "".join(lines), left_out
