"""Fill masked segments and score the masked words, both from one pass through the encoder: `Filler`.

Inputs are `SEGMENT <sep> OTHER TEXT`; equal ones are filled once, batches hold inputs of similar length and are padded
to their longest. The released code pads every input and every one-word target to 512 tokens and encodes twice.
"""

import copy
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from tqdm import tqdm
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.modeling_outputs import BaseModelOutput

from lib.generation import to_text
from lib.models.seq2seq import add_tokens
from lib.token_questeval.masking import MASK, SEPARATOR, UNANSWERABLE

MAX_TOKENS = 512  # of an input and of a target, as released
ANSWER_TOKENS = 20  # bound of an answer, `generate`'s default in the released code; answers that reach it are counted


@dataclass(frozen=True)
class Filled:
    """What the model says to one segment.

    Attributes
    ----------
    answer : str
        Greedy.
    answerability : float or None
        1 - P(`<unanswerable>`) at the first position; None where the model has no such token.
    scores : dict
        Mean log-likelihood of each ground truth's pieces with the end token, at most 0.
    cut : bool
        Whether the answer reached its bound.
    input_cut : bool
        Whether the input was cut, from the right.
    """

    answer: str
    answerability: float | None
    scores: dict[str, float]
    cut: bool
    input_cut: bool


def prepare(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, seed: int = 0) -> None:
    """Add `<mask>`, `<sep>` and `<unanswerable>` to a model that is to be trained, and cut its inputs from the right.

    New embeddings are drawn by the seed; where the tokenizer has a mask and a separator of its own, they start from
    theirs.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        ids = add_tokens(model, tokenizer, (MASK, SEPARATOR, UNANSWERABLE))
    tokenizer.truncation_side = "right"
    own = {MASK: tokenizer.mask_token_id, SEPARATOR: tokenizer.sep_token_id}
    weight = model.get_input_embeddings().weight
    with torch.no_grad():
        for token, source in own.items():
            if source is not None:
                weight[ids[token]] = weight[source]


class Filler:
    """A fill-mask model: any encoder-decoder whose tokenizer has `<mask>` and `<sep>` as one token each.

    Parameters
    ----------
    model, tokenizer
        From `lib.models.load_seq2seq`, or after `prepare` and a training. Scores are computed in the model's precision.
    device : str
        Empty for where the model is.
    batch_size : int
        Inputs a forward pass; does not change a score.
    progress : bool, optional
        None shows a bar in a terminal only.

    Raises
    ------
    ValueError
        If the tokenizer lacks a special token, with what to do.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        device: str = "",
        batch_size: int = 32,
        progress: bool | None = None,
    ):
        for token in (MASK, SEPARATOR):
            pieces = tokenizer.tokenize(token)
            if pieces != [token] or tokenizer.convert_tokens_to_ids(token) == tokenizer.unk_token_id:
                raise ValueError(
                    f"{token} is {len(pieces)} pieces to this tokenizer ({' '.join(pieces)}), so the model was not "
                    "trained to fill masks: call lib.token_questeval.prepare and train it, see 07_token_questeval"
                )
        self.model = model.to(device or model.device).eval()
        self.tokenizer = copy.deepcopy(tokenizer)
        self.tokenizer.truncation_side = "right"  # the mask stands at the front
        self.unanswerable = self.tokenizer.get_vocab().get(UNANSWERABLE)
        positions = getattr(model.config, "max_position_embeddings", None)
        self.max_tokens = min(MAX_TOKENS, positions or MAX_TOKENS)
        self.batch_size, self.progress = batch_size, progress
        own = model.generation_config
        self.generation = GenerationConfig(
            decoder_start_token_id=own.decoder_start_token_id, bos_token_id=own.bos_token_id,
            eos_token_id=own.eos_token_id, pad_token_id=own.pad_token_id, num_beams=1, do_sample=False,
            max_new_tokens=ANSWER_TOKENS,
        )  # fmt: skip

    def digest(self) -> str:
        """Return 16 hexadecimal digits that stand for the weights and the vocabulary."""
        made = hashlib.blake2b(digest_size=8)
        for name, tensor in sorted(self.model.state_dict().items()):
            made.update(name.encode())
            made.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data)
        made.update(repr(sorted(self.tokenizer.get_vocab().items())).encode())
        return made.hexdigest()

    def fill(self, rows: Sequence[tuple[str, str, Sequence[str]]]) -> list[Filled]:
        """Return what the model says to each (segment, other text, ground truths), in the given order."""
        wanted: dict[tuple[str, str], dict[str, None]] = {}
        for segment, other, truths in rows:
            wanted.setdefault((segment, other), {}).update(dict.fromkeys(truths))
        inputs = list(wanted)
        encoded = self._encode([f"{segment} {SEPARATOR} {other}" for segment, other in inputs])
        order = sorted(range(len(inputs)), key=lambda index: -len(encoded[index][0]))
        batches = [order[start : start + self.batch_size] for start in range(0, len(order), self.batch_size)]
        filled: dict[tuple[str, str], Filled] = {}
        # disable=None shows the bar in a terminal only.
        shown = None if self.progress is None else not self.progress
        for batch in tqdm(batches, desc="filling", unit="batch", disable=shown):
            truths = [list(wanted[inputs[index]]) for index in batch]
            for index, result in zip(batch, self._fill_batch([encoded[i] for i in batch], truths), strict=True):
                filled[inputs[index]] = result
        return [filled[segment, other] for segment, other, _ in rows]

    def _encode(self, texts: list[str]) -> list[tuple[list[int], bool]]:
        """Return each text's token ids and whether it was cut."""
        whole = self.tokenizer(texts, verbose=False).input_ids if texts else []
        long = [index for index, ids in enumerate(whole) if len(ids) > self.max_tokens]
        kept = {index: self.tokenizer(texts[index], truncation=True, max_length=self.max_tokens).input_ids
                for index in long}  # fmt: skip
        return [(kept.get(index, ids), index in kept) for index, ids in enumerate(whole)]

    @torch.inference_mode()
    def _fill_batch(self, encoded: list[tuple[list[int], bool]], truths: list[list[str]]) -> list[Filled]:
        """Encode once, generate from that, and score the ground truths from that."""
        device = self.model.device
        padded = self.tokenizer.pad({"input_ids": [ids for ids, _ in encoded]}, return_tensors="pt", verbose=False)
        mask = padded.attention_mask.to(device)
        hidden = self.model.get_encoder()(input_ids=padded.input_ids.to(device), attention_mask=mask).last_hidden_state
        generated = self.model.generate(
            encoder_outputs=BaseModelOutput(last_hidden_state=hidden), attention_mask=mask,
            generation_config=self.generation,
        )  # fmt: skip
        scores, unanswerable = self._score(hidden, mask, truths)
        results = []
        for (_, input_cut), ids, by_truth, share in zip(encoded, generated.tolist(), scores, unanswerable, strict=True):
            answer, cut = self._answer(ids[1:])
            results.append(Filled(answer, None if share is None else 1 - share, by_truth, cut, input_cut))
        return results

    def _answer(self, ids: list[int]) -> tuple[str, bool]:
        """Return the text of generated ids, and whether it was cut."""
        end = self.tokenizer.eos_token_id
        cut = end not in ids
        return to_text(self.tokenizer, ids if cut else ids[: ids.index(end)]), cut

    def _score(
        self, hidden: torch.Tensor, mask: torch.Tensor, truths: list[list[str]]
    ) -> tuple[list[dict[str, float]], list[float | None]]:
        """Return each row's mean log-likelihood by ground truth, and its P(`<unanswerable>`) at the first position."""
        # A row without ground truths is scored on the end token alone, for its first position.
        flat = [(row, truth) for row, of_row in enumerate(truths) for truth in of_row or [""]]
        pieces = self.tokenizer([truth for _, truth in flat], add_special_tokens=False).input_ids
        labels = [[*ids[: self.max_tokens - 1], self.tokenizer.eos_token_id] for ids in pieces]
        longest = max(map(len, labels))
        padded = torch.tensor([[*ids, *[-100] * (longest - len(ids))] for ids in labels], device=hidden.device)
        rows = torch.tensor([row for row, _ in flat], device=hidden.device)
        logits = self.model(
            encoder_outputs=BaseModelOutput(last_hidden_state=hidden[rows]), attention_mask=mask[rows], labels=padded
        ).logits.float()
        log_probs = logits.log_softmax(-1)  # (truths, longest, vocabulary)
        live = padded != -100
        chosen = log_probs.gather(-1, padded.clamp(min=0)[..., None])[..., 0] * live
        means = (chosen.sum(1) / live.sum(1)).tolist()
        scores: list[dict[str, float]] = [{} for _ in truths]
        first: list[float | None] = [None] * len(truths)
        for index, (row, truth) in enumerate(flat):
            if truths[row]:
                scores[row][truth] = means[index]
            if self.unanswerable is not None:
                first[row] = float(log_probs[index, 0, self.unanswerable].exp())
        return scores, first
