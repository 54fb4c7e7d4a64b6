"""What in a text tells whether it is a procedure, a step can be done, a change is carried by it: numbers, no judgement.

`Reader` parses and embeds every text once; `lib.heuristics` and `lib.grounding` learn from the features.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from lib.data import Procedure, StateChange
from lib.metrics.clusters import load_embedder
from lib.text import to_sentence
from lib.wheels import load_spacy

# Words that order events, and words that make a step a remark instead of an action.
TEMPORAL = {"after", "before", "finally", "first", "next", "now", "once", "then", "until", "when", "while"}
HEDGES = {"can", "could", "if", "may", "might", "or", "should", "sometimes", "usually", "would"}
PEOPLE = {"hand", "hands", "i", "me", "people", "person", "you", "your", "yourself"}
NOUNS = {"NOUN", "PROPN"}


def procedure_features(procedure: Procedure, reader: "Reader") -> dict[str, float]:
    """Return what makes a text look like a procedure: commands, in an order, about the same things."""
    steps = [reader.text(step.text) for step in procedure.steps]
    vectors = np.stack([reader.vector(step.text) for step in procedure.steps])
    alike = vectors @ vectors.T
    near = [alike[i, i + 1] for i in range(len(steps) - 1)]
    far = [alike[i, j] for i in range(len(steps)) for j in range(i + 2, len(steps))]
    shared = [len(a.nouns & b.nouns) > 0 for a, b in zip(steps, steps[1:], strict=False)]
    return {
        "imperative steps": _mean(step.imperative for step in steps),
        "temporal words": _mean(len(step.words & TEMPORAL) for step in steps),
        "hedges": _mean(len(step.words & HEDGES) for step in steps),
        "neighbours share a noun": _mean(shared),
        "neighbours alike": _mean(near),
        # In an order, neighbours are closer than others; in a list of tips they are not.
        "neighbours closer than others": _mean(near) - _mean(far),
        "nouns taken up again": _mean(_taken_up(steps)),
        "close to the goal": float((vectors @ reader.vector(procedure.goal)).mean()),
        "words a step": _mean(step.length for step in steps),
        "steps": len(steps),
    }


def step_features(procedure: Procedure, index: int, reader: "Reader") -> dict[str, float]:
    """Return what makes a step executable where it stands."""
    step = reader.text(procedure.steps[index].text)
    vectors = [reader.vector(other.text) for other in procedure.steps]
    before = set().union(*(reader.text(other.text).nouns for other in procedure.steps[:index]))
    return {
        "imperative": float(step.imperative),
        "starts with a verb": float(step.starts_with_verb),
        "states something": float(step.copula),
        "negated": float(step.negated),
        "hedges": len(step.words & HEDGES),
        "temporal words": len(step.words & TEMPORAL),
        "nouns met before": len(step.nouns & before) / max(len(step.nouns), 1),
        "like the step before": float(vectors[index] @ vectors[index - 1]) if index else 0.0,
        "like the rest": _mean(vectors[index] @ v for i, v in enumerate(vectors) if i != index),
        "close to the goal": float(vectors[index] @ reader.vector(procedure.goal)),
        "words": step.length,
        "position": index / max(len(procedure.steps) - 1, 1),
    }


def change_features(procedure: Procedure, index: int, change: StateChange, reader: "Reader") -> dict[str, float]:
    """Return what ties a state change to the text so far: its entity by lemma and by embedding, its states."""
    step = procedure.steps[index]
    here = reader.text(step.text)
    past = [reader.text(text) for text in (procedure.goal, *(s.text for s in procedure.steps[:index]))]
    said = set().union(*(text.lemmas for text in past))
    entity, states = reader.text(change.entity), reader.text(f"{change.before} , {change.after}")
    chunks = {chunk for text in (here, *past) for chunk in text.chunks}
    vector = reader.vector(change.entity)
    changed = {other.entity for s in procedure.steps[:index] for other in s.changes}
    return {
        "entity in the step": _share(entity.lemmas, here.lemmas),
        "entity in the text so far": _share(entity.lemmas, said | here.lemmas),
        "entity like a noun phrase": max((float(vector @ reader.vector(chunk)) for chunk in chunks), default=0.0),
        "entity like the step": float(vector @ reader.vector(step.text)),
        "entity changed before": float(change.entity in changed),
        "entity is a person": float(bool(entity.words & PEOPLE)),
        "states in the step": _share(states.lemmas, here.lemmas),
        "change like the step": float(reader.vector(to_sentence(change)) @ reader.vector(step.text)),
        "words of the states": states.length,
        "changes of the step": len(step.sentences),
    }


@dataclass(frozen=True)
class _Text:
    """What spaCy sees in a text."""

    words: frozenset[str]
    lemmas: frozenset[str]
    nouns: frozenset[str]
    chunks: tuple[str, ...]
    length: int
    imperative: bool
    starts_with_verb: bool
    copula: bool
    negated: bool


class Reader:
    """Parses and embeds every text of some procedures once: what the features are made from."""

    def __init__(self, procedures: Sequence[Procedure], embedder: str, revision: str):
        texts, embedded = set(), set()
        for procedure in procedures:
            texts.add(procedure.goal)
            for step in procedure.steps:
                texts.add(step.text)
                for change in step.changes:
                    texts |= {change.entity, f"{change.before} , {change.after}"}
                    embedded |= {change.entity, to_sentence(change)}
        ordered = sorted(texts)
        self._texts = dict(zip(ordered, map(_read, _nlp().pipe(ordered, batch_size=256)), strict=True))
        chunks = {chunk for text in self._texts.values() for chunk in text.chunks}
        known = sorted(embedded | chunks | {p.goal for p in procedures} | {s.text for p in procedures for s in p.steps})
        vectors = load_embedder(embedder, revision).encode(
            known, batch_size=64, normalize_embeddings=True, show_progress_bar=False
        )
        self._vectors = dict(zip(known, np.asarray(vectors, dtype=np.float32), strict=True))

    def text(self, text: str) -> _Text:
        """Return the analysis of a text."""
        return self._texts[text]

    def vector(self, text: str) -> np.ndarray:
        """Return the unit embedding of a text, (width,)."""
        return self._vectors[text]


@cache
def _nlp():
    """Return spaCy's small English model."""
    return load_spacy()


def _read(doc) -> _Text:
    """Return what is kept of a parsed text."""
    content = [token for token in doc if not token.is_punct and not token.is_space]
    roots = [token for token in doc if token.dep_ == "ROOT"]
    first = content[0] if content else None
    return _Text(
        words=frozenset(token.lower_ for token in content),
        lemmas=frozenset(token.lemma_.lower() for token in content if not token.is_stop),
        nouns=frozenset(token.lemma_.lower() for token in content if token.pos_ in NOUNS),
        chunks=tuple(chunk.text for chunk in doc.noun_chunks),
        length=len(content),
        imperative=any(map(_is_command, roots)),
        starts_with_verb=first is not None and first.pos_ == "VERB",
        copula=any(root.lemma_ == "be" for root in roots),
        negated=any(token.dep_ == "neg" for token in doc),
    )


def _is_command(root) -> bool:
    """Return whether a sentence's root is a bare verb without subject or auxiliary."""
    return root.tag_ == "VB" and not any(child.dep_ in {"nsubj", "aux"} for child in root.children)


def _taken_up(steps: Sequence[_Text]) -> Iterator[float]:
    """Yield, for every step after the first, the share of its nouns that were met before."""
    met: set[str] = set()
    for index, step in enumerate(steps):
        if index:
            yield len(step.nouns & met) / max(len(step.nouns), 1)
        met |= step.nouns


def _share(part: frozenset[str], whole: Iterable[str]) -> float:
    """Return the share of `part` that stands in `whole`; 0 for nothing."""
    return len(part & set(whole)) / len(part) if part else 0.0


def _mean(values: Iterable[float]) -> float:
    """Return the mean; 0 for nothing."""
    values = list(values)
    return float(np.mean(values)) if values else 0.0
