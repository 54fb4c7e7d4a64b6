"""`TokenQuestEval`: how well each text's tokens can be filled from the other text."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pooch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from lib.models import load_seq2seq
from lib.provenance import signature
from lib.token_questeval.filling import Filled, Filler
from lib.token_questeval.logs import LogStore, masked_of, new_log
from lib.token_questeval.masking import MASK, SEPARATOR, Masker, plain
from lib.token_questeval.scoring import (
    Direction,
    checked_pairs,
    chosen,
    defined_mean,
    normalize_answer,
    squad_exact,
    squad_f1,
)

SCORES = ("f1", "bartscore", "exact_match", "answerability")
#: direction -> (role of the text that is masked, role of the text that the model reads)
DIRECTIONS = {"mask_src": ("src", "hyp"), "mask_hyp": ("hyp", "src")}
CHUNK = 128  # pairs whose logs are written together: what an interruption can cost


class TokenQuestEval:
    """The metric.

    Parameters
    ----------
    fill_mask_model : str or (model, tokenizer)
        A folder, a hub name with its `revision` (`yliu337/sliding_window_token_both_ctx` is the published one), or a
        loaded encoder-decoder whose tokenizer has `<mask>` and `<sep>`.
    preset : str
        `released` (every token is masked and counted, segments joined by spaces) or `safe` (segments are cut out of the
        text, white space is not masked, literal special tokens are broken up, tokens that normalise to nothing are left
        out of the score, and each ground truth has its own `bartscore` where a segment has several).
    list_scores : sequence of str
        Of `f1`, `bartscore` (exp of the mean log-likelihood of the masked token's pieces), `exact_match`,
        `answerability`; averaged.
    doc_types : sequence of str
        Whose tokens are masked: `mask_src`, `mask_hyp`.
    sliding_window_size : int
        Tokens on either side of the mask.
    limit_sent : int
        Sentences whose tokens are masked; 0 for all. The other text is read whole, up to 512 tokens in all.
    tokenizer : str
        `spacy` or `whitespace`.
    use_cache : bool
        Keep what was filled in `log_dir`, and read it from there.
    log_dir : path, optional
        Default the user's cache folder.
    device : str, optional
        Default where the model is.
    batch_size : int
        Inputs a forward pass; does not change a score.
    revision : str
        Commit of a hub model.

    Attributes
    ----------
    report : dict
        Of the last call: pairs, tokens, shares and counts of what is out of the ordinary, and `score_without_nothing`,
        the corpus score without tokens that normalise to nothing.

    Examples
    --------
    >>> metric = TokenQuestEval("outputs/models/fill_mask")  # doctest: +SKIP
    >>> metric.corpus_questeval(hypothesis=["The cat leaped."], sources=["It is a cat. It jumps."])  # doctest: +SKIP
    {'corpus_score': 0.41, 'ex_level_scores': [0.41], 'signature': 'token_questeval|preset:released|...'}
    """

    def __init__(
        self,
        fill_mask_model: str | tuple[PreTrainedModel, PreTrainedTokenizerBase],
        preset: str = "released",
        list_scores: Sequence[str] = ("f1", "bartscore"),
        doc_types: Sequence[str] = ("mask_src", "mask_hyp"),
        sliding_window_size: int = 24,
        limit_sent: int = 5,
        tokenizer: str = "spacy",
        use_cache: bool = True,
        log_dir: str | Path | None = None,
        device: str | None = None,
        batch_size: int = 32,
        revision: str = "",
    ):
        self.list_scores = chosen("list_scores", list_scores, SCORES)
        self.doc_types = chosen("doc_types", doc_types, DIRECTIONS)
        self.masker = Masker(preset, sliding_window_size, limit_sent, tokenizer)
        loaded = load_seq2seq(fill_mask_model, revision) if isinstance(fill_mask_model, str) else fill_mask_model
        self.filler = Filler(*loaded, device or "", batch_size)
        if "answerability" in self.list_scores and self.filler.unanswerable is None:
            raise ValueError("list_scores has answerability, but the model's vocabulary has no <unanswerable>")
        digest = self.filler.digest()
        name = fill_mask_model if isinstance(fill_mask_model, str) else loaded[0].config.model_type
        self.model_key = f"QA_hash={name}"
        self.settings = {
            "preset": preset, "model": name, "revision": revision, "weights": digest, "window": sliding_window_size,
            "limit_sent": limit_sent, "tokenizer": self.masker.tokenizer,
        }  # fmt: skip
        default = Path(pooch.os_cache("openpi-companion")) / "token_questeval"
        self.store = LogStore(Path(log_dir or default) if use_cache else None, self.settings)
        self.report: dict[str, object] = {}

    def corpus_questeval(self, hypothesis: Sequence[str], sources: Sequence[str | Sequence[str]]) -> dict:
        """Score hypotheses against their sources.

        Parameters
        ----------
        hypothesis : sequence of str
        sources : sequence of str, or of sequences of str
            One a hypothesis; several references give the best score of them.

        Returns
        -------
        dict
            `corpus_score`, the mean; `ex_level_scores`, one a pair in [0, 1], higher is better, 0 where a text is empty
            (counted in the mean; `report` says how many), and NaN where nothing is left to count under `safe` (left out
            of the mean); `signature`.

        Raises
        ------
        ValueError
            If the lengths differ, naming both, or there is nothing to score.
        """
        scores, plain_scores, directions = [], [], []
        for by_reference in self._scored(hypothesis, sources):
            best = max(by_reference, key=lambda scored: -1.0 if math.isnan(scored[0]) else scored[0])
            scores.append(best[0])
            plain_scores.append(best[1])
            directions += [direction for scored in by_reference for direction in scored[2]]
        self._count(hypothesis, sources, plain_scores, directions)
        return {
            "corpus_score": defined_mean(scores),
            "ex_level_scores": scores,
            "signature": self.signature(len(scores)),
        }

    def positions(self, hypothesis: Sequence[str], sources: Sequence[str]) -> pd.DataFrame:
        """Return one row a masked token: pair, direction, position, token, part of speech, answer and scores.

        `counted` is False for tokens that normalise to nothing. Of several references the first is shown.
        """
        frames = [
            pd.DataFrame(
                {
                    "pair": pair, "direction": direction.name, "position": range(len(direction.tokens)),
                    "token": direction.tokens, "pos_tag": direction.tags, "answer": direction.answers,
                    "counted": direction.counted,
                    **dict(zip(self.list_scores, direction.scores.T, strict=True)),
                }
            )
            for pair, by_reference in enumerate(self._scored(hypothesis, sources))
            for direction in by_reference[0][2]
        ]  # fmt: skip
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()

    def signature(self, pairs: int) -> str:
        """Return one line with everything that moves the score."""
        return signature(
            "token_questeval", **self.settings, scores="+".join(self.list_scores),
            directions="+".join(self.doc_types), n=pairs,
        )  # fmt: skip

    def _scored(self, hypothesis, sources) -> Iterator[list[tuple[float, float, list[Direction]]]]:
        """Yield, a pair, each reference's score, score without tokens that normalise to nothing, and directions."""
        pairs = checked_pairs(hypothesis, sources)
        self.filled = self.served = 0
        for start in range(0, len(pairs), CHUNK):
            chunk = pairs[start : start + CHUNK]
            logs = self._logs(chunk)
            self._ask(chunk, logs)
            for text, references in chunk:
                yield [self._score(logs, text, reference) for reference in references]

    def _logs(self, pairs: list[tuple[str, list[str]]]) -> dict[tuple[str, str], dict]:
        """Return the logs of all texts that are not empty, by role and text; new ones with their masked segments."""
        texts = dict.fromkeys(("hyp", text) for text, _ in pairs)
        texts |= dict.fromkeys(("src", reference) for _, references in pairs for reference in references)
        logs = {key: self.store.read(*key) for key in texts if key[1].strip()}
        missing = [key for key, log in logs.items() if log is None]
        for (role, text), masked in zip(missing, self.masker.mask([text for _, text in missing]), strict=True):
            answers = [{"text": item.text, "pos_tag": item.pos_tag} for item in masked]
            logs[role, text] = new_log(role, text, [item.segment for item in masked], answers)
        return logs

    def _ask(self, pairs: list[tuple[str, list[str]]], logs: dict[tuple[str, str], dict]) -> None:
        """Fill every segment that its other text has not been asked yet, and store what was said."""
        rows: dict[tuple[tuple[str, str], str], dict[str, str]] = {}
        for text, references in pairs:
            for reference in references:
                for masked, read in self._directions(text, reference):
                    if masked in logs and read in logs:
                        self._missing(logs[masked], logs[read], rows, read)
        asked = [(segment, self._other(key[1]), list(truths)) for (key, segment), truths in rows.items()]
        said = self.filler.fill(asked)
        for ((key, segment), truths), filled in zip(rows.items(), said, strict=True):
            self._enter(logs[key], segment, truths, filled)
        self.filled += len(rows)
        for role, text in dict.fromkeys(key for key, _ in rows):
            self.store.write(role, logs[role, text])

    def _missing(self, masked: dict, read: dict, rows: dict, key: tuple[str, str]) -> None:
        """Add to `rows` what `read` has not been asked of `masked`."""
        for segment, answer in zip(*masked_of(masked), strict=True):
            entry = read["asked"].get(segment, {}).get(self.model_key)
            if entry is None or answer["text"] not in entry["ground_truth"]:
                rows.setdefault((key, segment), {}).setdefault(answer["text"], answer["pos_tag"])
            else:
                self.served += 1

    def _enter(self, log: dict, segment: str, truths: dict[str, str], filled: Filled) -> None:
        """Write what the model said to a segment into the log of the text that it read."""
        by_truth = {
            truth: {
                "pos_tag": tag,
                "f1": squad_f1(filled.answer, truth),
                "exact_match": squad_exact(filled.answer, truth),
                "bartscore": math.exp(filled.scores[truth]),
            }
            for truth, tag in truths.items()
        }
        entry = log["asked"].setdefault(segment, {}).setdefault(
            self.model_key,
            {
                "answer": filled.answer,
                "answerability": filled.answerability,
                # One a segment, of the first ground truth: as released.
                "bartscore": next(iter(by_truth.values()))["bartscore"],
                "ground_truth": {},
            },
        )  # fmt: skip
        entry |= {name: True for name in ("cut", "input_cut") if getattr(filled, name)}
        entry["ground_truth"] |= by_truth

    def _score(self, logs: dict, text: str, reference: str) -> tuple[float, float, list[Direction]]:
        """Return the score of a pair, the one without tokens that normalise to nothing, and its directions."""
        if not text.strip() or not reference.strip():
            return 0.0, 0.0, []
        names = [name for name in DIRECTIONS if name in self.doc_types]
        directions = [
            self._direction(name, logs[masked], logs[read])
            for name, (masked, read) in zip(names, self._directions(text, reference), strict=True)
        ]
        counted = defined_mean([defined_mean(d.scores[d.counted].ravel()) for d in directions])
        if self.masker.preset == "safe":
            return counted, counted, directions
        # A text without a single token scores 0, as released.
        return float(np.mean([d.scores.mean() if d.tokens else 0.0 for d in directions])), counted, directions

    def _direction(self, name: str, masked: dict, read: dict) -> Direction:
        """Look up what was said to each masked token of a text."""
        segments, answers = masked_of(masked)
        entries = [read["asked"][segment][self.model_key] for segment in segments]
        tokens = [answer["text"] for answer in answers]
        scores = [
            [self._value(entry, token, score) for score in self.list_scores]
            for entry, token in zip(entries, tokens, strict=True)
        ]
        return Direction(
            name, tokens, [answer["pos_tag"] for answer in answers], [entry["answer"] for entry in entries],
            np.clip(np.array(scores, dtype=float).reshape(len(tokens), len(self.list_scores)), 0, 1),
            np.array([bool(normalize_answer(token)) for token in tokens], dtype=bool),
            np.array([(entry.get("cut", False), entry.get("input_cut", False)) for entry in entries]).reshape(-1, 2),
        )  # fmt: skip

    def _value(self, entry: dict, token: str, score: str) -> float:
        """Return one score of one token."""
        if score == "answerability" or (score == "bartscore" and self.masker.preset == "released"):
            return entry[score]
        return entry["ground_truth"][token][score]

    def _directions(self, text: str, reference: str) -> list[tuple[tuple[str, str], tuple[str, str]]]:
        """Return, a direction, the keys of the text that is masked and of the one that is read."""
        keys = {"hyp": ("hyp", text), "src": ("src", reference)}
        return [(keys[masked], keys[read]) for name, (masked, read) in DIRECTIONS.items() if name in self.doc_types]

    def _other(self, text: str) -> str:
        """Return the text as the model reads it."""
        return plain(text) if self.masker.preset == "safe" else text

    def _count(self, hypothesis, sources, plain_scores: list[float], directions: list[Direction]) -> None:
        """Write the report."""
        pairs = checked_pairs(hypothesis, sources)
        tokens = sum(len(direction.tokens) for direction in directions)
        nothing = sum(int((~direction.counted).sum()) for direction in directions)
        cut = sum((direction.cut.sum(0) for direction in directions), np.zeros(2, dtype=int))
        texts = {text for hypothesis, references in pairs for text in (hypothesis, *references)}
        self.report = {
            "pairs": len(pairs),
            "empty_pairs": sum(not text.strip() or not any(map(str.strip, references)) for text, references in pairs),
            "tokens": tokens,
            "normalise_to_nothing": nothing / tokens if tokens else math.nan,
            "score_without_nothing": defined_mean(plain_scores),
            "undefined_without_nothing": sum(map(math.isnan, plain_scores)),
            "answers_cut": int(cut[0]),
            "inputs_cut": int(cut[1]),
            "texts_with_special_tokens": sum(MASK in text or SEPARATOR in text for text in texts),
            "segments_filled": self.filled,
            "tokens_from_store": self.served,
            "damaged_logs": self.store.damaged,
        }
