"""A decoding rule of ours against loops: a state change that stands in the output is not written again.

Stock n-gram blocking forbids any repeated run of tokens, also those that two different changes share
(`was dry before and wet afterwards`); `NoRepeatedChange` knows where a change ends.
"""

from collections import defaultdict

import torch
from transformers import LogitsProcessor, PreTrainedTokenizerBase

END = "afterwards"  # the last word of a state change's sentence
SEPARATOR = ","


class NoRepeatedChange(LogitsProcessor):
    """Forbid the token that would complete a state change which the same row has already written.

    Each beam is a row with its own history: a beam whose next change is a repetition loses the token that ends it,
    and with it its probability, so that other beams take its place. Before that token nothing is changed.

    Parameters
    ----------
    tokenizer : PreTrainedTokenizerBase
        WordPiece, byte-level BPE, or one whose tokens begin words with a space or `▁`.
    start : int
        How many ids stand before the output: 1 for an encoder-decoder, the padded prompt's length otherwise.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, start: int):
        self.start = start
        self.pieces = pieces(tokenizer)
        self.by_piece: dict[str, list[int]] = defaultdict(list)
        for token, piece in enumerate(self.pieces):
            self.by_piece[piece].append(token)
        # Output ids -> (finished changes, text of the open one) of the last step: each row extends one of them.
        self._states: dict[tuple[int, ...], tuple[frozenset[str], str]] = {}

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        """Return the scores with -inf where a token completes a repetition.

        Parameters
        ----------
        input_ids : (rows, length)
        scores : (rows, vocabulary)
        """
        states = {}
        for row, ids in enumerate(input_ids[:, self.start :].tolist()):
            key = tuple(ids)
            states[key] = finished, text = self._state(key)
            for change in finished:
                if change.startswith(text) and (tokens := self.by_piece.get(change[len(text) :])):
                    scores[row, tokens] = -torch.inf
        self._states = states
        return scores

    def _state(self, ids: tuple[int, ...]) -> tuple[frozenset[str], str]:
        """Return the changes that a row has finished and the text of its open one."""
        if not ids:
            return frozenset(), ""
        if ids in self._states:
            return self._states[ids]
        finished, text = self._states.get(ids[:-1]) or self._state(ids[:-1])
        piece = self.pieces[ids[-1]]
        if piece.strip() == SEPARATOR and text.endswith(END):
            return finished | {text}, ""
        return finished, (text + piece).lstrip()


def pieces(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Return the text that each token adds, by id, with the space that begins a word."""
    kind = tokenizer.backend_tokenizer.model.__class__.__name__
    tokens = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    if kind == "WordPiece":
        # Punctuation stands alone there, so its space is the tokenizer's and not the text's.
        return [f" {token}" if token.isalnum() else token.removeprefix("##") for token in tokens]
    return [token.replace("Ġ", " ").replace("▁", " ") for token in tokens]
