"""Text pairs to masked examples, streamed: `masked_examples`, `write_parts`, `read_examples`.

The file format is the released one: a JSON line has an `id`, a `context` (empty: the question holds both texts around
`<sep>`) and `qas` with `question` and `answer`.
"""

import itertools
import json
import random
from collections.abc import Iterable, Iterator
from pathlib import Path

from lib.data.examples import Example
from lib.data.lines import read_jsonl, require
from lib.results import atomic
from lib.token_questeval.masking import MASK, SEPARATOR, Masked, Masker, plain

MAX_WORDS = 100
CHUNK = 512  # pairs tokenized together
FORMS = ("words", "segments")


def masked_examples(
    pairs: Iterable[tuple[str, str]],
    form: str = "words",
    seed: int = 0,
    masks: int = 1,
    max_words: int = MAX_WORDS,
    masker: Masker | None = None,
) -> Iterator[Example]:
    """Yield examples from (hypothesis, reference) pairs, in both orders; some hundred pairs are in memory at a time.

    Parameters
    ----------
    pairs : iterable of (str, str)
        Pairs with an empty text, or one of more than `max_words` words, are passed over.
    form : str
        `words`: the released way, a random word of the two texts joined by `<sep>` is masked, by white space.
        `segments`: as the metric will ask, a random token of the first text is masked by `masker` and the second text
        follows `<sep>`; punctuation is a token of its own there, as in the metric, and unlike in `words`.
    seed : int
        A pair's masks depend on it and on the pair's place alone.
    masks : int
        Examples an order; each masks another token.
    masker : Masker, optional
        For `segments`; default `Masker("safe", limit_sent=0)`.

    Raises
    ------
    ValueError
        If the form is unknown.
    """
    if form not in FORMS:
        raise ValueError(f"form={form!r}: expected one of {', '.join(FORMS)}")
    kept = (
        (index, *pair) for index, pair in enumerate(pairs) if all(0 < len(text.split()) <= max_words for text in pair)
    )
    masker = masker or Masker("safe", limit_sent=0) if form == "segments" else None
    while chunk := list(itertools.islice(kept, CHUNK)):
        texts = [text for _, *pair in chunk for text in pair]
        tokens = masker.mask(texts) if masker else [[]] * len(texts)
        for place, (index, *pair) in enumerate(chunk):
            for order, (first, second) in enumerate((pair, pair[::-1])):
                draw = random.Random(f"{seed}:{index}:{order}")
                if masker is None:
                    made = _words(first, second, draw, masks)
                else:
                    made = _segments(tokens[2 * place + order], second, draw, masks, masker.preset)
                for number, (question, answer) in enumerate(made):
                    yield Example(f"{index}:{order}:{number}", question, answer)


def write_parts(examples: Iterable[Example], stem: Path, size: int) -> list[Path]:
    """Write examples to `STEM.part-0`, `STEM.part-1`, ... of `size` lines, each renamed when it is whole.

    Returns
    -------
    list of Path
        In order; a part that an earlier call left beyond the last is removed.
    """
    if size < 1:
        raise ValueError(f"size={size}: expected at least one example a part")
    stem, written = Path(stem), []
    examples = iter(examples)
    for number in itertools.count():
        first = next(examples, None)
        if first is None:
            break
        path = stem.with_name(f"{stem.name}.part-{number}")
        with atomic(path) as temporary, open(temporary, "w", encoding="utf-8", newline="\n") as file:
            for example in itertools.chain([first], itertools.islice(examples, size - 1)):
                qas = [{"question": example.prompt, "answer": example.target}]
                file.write(json.dumps({"id": example.id, "context": "", "qas": qas}, ensure_ascii=False) + "\n")
        written.append(path)
    left_over = len(written)
    while (path := stem.with_name(f"{stem.name}.part-{left_over}")).exists():
        path.unlink()
        left_over += 1
    return written


def read_examples(path: Path) -> list[Example]:
    """Return the examples of one part, in the released format: files of the released scripts are read too.

    Raises
    ------
    ValueError
        If a line is no such object, naming file and line.
    """
    examples = []
    for line, row in read_jsonl(path):
        context = require(path, line, row, "context", str)
        for number, asked in enumerate(require(path, line, row, "qas", list)):
            question, answer = (require(path, line, asked, key, str) for key in ("question", "answer"))
            if MASK not in question:
                raise ValueError(f"{path}, line {line}: qas[{number}] has no {MASK}: {question[:60]!r}")
            prompt = f"{question} {SEPARATOR} {context}" if context else question
            examples.append(Example(f"{row.get('id')}:{number}", prompt, answer))
    return examples


def _words(first: str, second: str, draw: random.Random, masks: int) -> Iterator[tuple[str, str]]:
    """Yield the joined texts with a random word masked, and that word."""
    words = [*first.split(), SEPARATOR, *second.split()]
    places = [index for index, word in enumerate(words) if word != SEPARATOR]
    for index in draw.sample(places, min(masks, len(places))):
        # An empty side leaves a space, as in the metric's released segments.
        yield f"{' '.join(words[:index])} {MASK} {' '.join(words[index + 1 :])}", words[index]


def _segments(
    tokens: list[Masked], second: str, draw: random.Random, masks: int, preset: str
) -> Iterator[tuple[str, str]]:
    """Yield segments of the first text, from its masked tokens, with the second text after them, and the token."""
    other = plain(second) if preset == "safe" else second
    for token in draw.sample(tokens, min(masks, len(tokens))):
        yield f"{token.segment} {SEPARATOR} {other}", token.text
