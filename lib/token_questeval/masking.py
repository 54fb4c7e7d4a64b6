"""A text to its masked segments: one a token, each with what was masked and its part of speech.

Facts of the released code: a text is trimmed to its first sentences, joined by spaces and tokenized again; every token
is masked, white space too; a segment is the tokens around the mask, joined by spaces. `safe` cuts segments out of the
text as it stands, masks no white space, and keeps a literal `<mask>` or `<sep>` from being read as one.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lib.text import check_preset
from lib.wheels import load_spacy

MASK, SEPARATOR, UNANSWERABLE = "<mask>", "<sep>", "<unanswerable>"
TOKENIZERS = ("spacy", "whitespace")


@dataclass(frozen=True)
class Masked:
    """One masked token.

    Attributes
    ----------
    segment : str
        What the model sees of the masked text: up to a window of tokens on either side of `<mask>`.
    text : str
        The token that was masked: the ground truth.
    pos_tag : str
        Its universal part of speech; empty without a tagger.
    start : int
        Offset of the token in the trimmed text.
    """

    segment: str
    text: str
    pos_tag: str
    start: int


class Masker:
    """Masks texts.

    Parameters
    ----------
    preset : str
        `released` or `safe`, see the module.
    window : int
        Tokens kept on either side of the mask.
    limit_sent : int
        Sentences that are kept; 0 for all.
    tokenizer : str
        `spacy` (English) or `whitespace` (any language, no parts of speech, sentences by punctuation).

    Examples
    --------
    >>> [masked.segment for masked in Masker(window=1, tokenizer="whitespace").mask(["Do n't stop"])[0]]
    [" <mask> n't", 'Do <mask> stop', "n't <mask> "]
    >>> [masked.segment for masked in Masker("safe", 1, tokenizer="whitespace").mask(["Do n't stop"])[0]]
    ["<mask> n't", 'Do <mask> stop', "n't <mask>"]
    """

    def __init__(self, preset: str = "released", window: int = 24, limit_sent: int = 5, tokenizer: str = "spacy"):
        check_preset(preset)
        if tokenizer not in TOKENIZERS:
            raise ValueError(f"tokenizer={tokenizer!r}: expected one of {', '.join(TOKENIZERS)}")
        if window < 1 or limit_sent < 0:
            raise ValueError(f"window={window}, limit_sent={limit_sent}: expected at least 1 and at least 0")
        self.preset, self.window, self.limit_sent = preset, window, limit_sent
        self.spacy = _spacy(tokenizer, sentences=limit_sent > 0)
        meta = self.spacy.meta
        self.tokenizer = tokenizer if tokenizer == "whitespace" else f"{meta['lang']}_{meta['name']}-{meta['version']}"

    def mask(self, texts: Sequence[str]) -> list[list[Masked]]:
        """Return the masked tokens of each text, in order; none for a text without tokens."""
        trimmed = list(map(self._trim, self.spacy.pipe(texts))) if self.limit_sent else list(texts)
        return [self._masked(text, tokens) for text, tokens in zip(trimmed, self._tokens(trimmed), strict=True)]

    def _trim(self, document) -> str:
        """Return the first sentences."""
        sentences = [sentence for _, sentence in zip(range(self.limit_sent), document.sents, strict=False)]
        if self.preset == "released":
            return " ".join(sentence.text for sentence in sentences)
        return document.text[: sentences[-1].end_char] if sentences else ""

    def _tokens(self, texts: Sequence[str]) -> Iterator[list[tuple[int, int, str]]]:
        """Yield each text's tokens: start, end and part of speech."""
        if self.tokenizer == "whitespace":
            for text in texts:
                yield [(match.start(), match.end(), "") for match in re.finditer(r"\S+", text)]
            return
        for document in self.spacy.pipe(texts):
            yield [
                (token.idx, token.idx + len(token.text), token.pos_)
                for token in document
                if self.preset == "released" or not token.is_space
            ]

    def _masked(self, text: str, tokens: list[tuple[int, int, str]]) -> list[Masked]:
        """Return one `Masked` a token."""
        rows = []
        for index, (start, end, tag) in enumerate(tokens):
            before, after = tokens[max(0, index - self.window) : index], tokens[index + 1 : index + 1 + self.window]
            if self.preset == "released":
                left, right = (" ".join(text[s:e] for s, e, _ in side) for side in (before, after))
                segment = f"{left} {MASK} {right}"
            else:
                left = text[before[0][0] : start] if before else ""
                right = text[end : after[-1][1]] if after else ""
                segment = f"{plain(left)}{MASK}{plain(right)}"
            rows.append(Masked(segment, text[start:end], tag, start))
        return rows


def plain(text: str) -> str:
    """Return a text whose literal special tokens are broken up by a space, so that no tokenizer takes them for its own.

    Examples
    --------
    >>> plain("write <mask> or <sep>")
    'write < mask> or < sep>'
    """
    return re.sub(f"<(?={'|'.join(token[1:] for token in (MASK, SEPARATOR, UNANSWERABLE))})", "< ", text)


def _spacy(tokenizer: str, sentences: bool):
    """Return a pipeline that finds sentences, where they are asked for, and, for `spacy`, tags."""
    if tokenizer == "spacy":
        pipeline = load_spacy()
        unused = ("ner", "lemmatizer") if sentences else ("ner", "lemmatizer", "parser")
        pipeline.select_pipes(disable=[name for name in unused if name in pipeline.pipe_names])
        return pipeline
    import spacy

    pipeline = spacy.blank("xx")
    pipeline.add_pipe("sentencizer")
    return pipeline
