"""Log-likelihoods of continuations with shared prefixes: `score`.

Contexts that are prefixes of one another (the steps of one recipe) are encoded once, as a trunk; continuations hang off
it as branches, each at its place. What all queries begin with (demonstrations) is encoded once for all of them.
"""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.cache_utils import DynamicCache


@dataclass(frozen=True)
class Query:
    """Token ids of a context, and of what may continue it; `shared` ids stand before the context of every query."""

    context: tuple[int, ...]
    continuation: tuple[int, ...]


@dataclass(frozen=True)
class Scored:
    """Log-likelihoods of one query.

    Attributes
    ----------
    context : float
        Sum over the context's tokens that have something before them; 0 for none.
    context_tokens : int
        How many those are.
    continuation : (tokens,) array
        Of each token of the continuation, given everything before it.
    cut : int
        Context tokens that were cut off on the left, since the model's window is shorter.
    """

    context: float
    context_tokens: int
    continuation: np.ndarray
    cut: int

    @property
    def mean(self) -> float:
        """Return the mean over all tokens of the query: the logarithm of one over its perplexity."""
        return (self.context + self.continuation.sum()) / (self.context_tokens + len(self.continuation))


@dataclass(frozen=True)
class _Group:
    """A trunk and the queries whose contexts are prefixes of it, by their places."""

    trunk: tuple[int, ...]
    members: tuple[int, ...]


def encode(
    tokenizer: PreTrainedTokenizerBase, context: str, continuation: str, begin: Sequence[int] = ()
) -> tuple[Query, bool]:
    """Return a query as the whole text is tokenized, cut where the context's own tokens end.

    Parameters
    ----------
    context, continuation : str
        The continuation begins with its own space, ` Yes`.
    begin : sequence of int
        Ids before the context: a begin token, for models that expect one.

    Returns
    -------
    query : Query
    merged : bool
        Whether a token reaches across the boundary; it belongs to the continuation then.
    """
    before = tokenizer(context, add_special_tokens=False).input_ids
    whole = tokenizer(context + continuation, add_special_tokens=False).input_ids
    same = next((at for at, (a, b) in enumerate(zip(before, whole, strict=False)) if a != b), len(before))
    same = min(same, len(whole) - 1)
    return Query((*begin, *whole[:same]), tuple(whole[same:])), same < len(before)


def begin_ids(tokenizer: PreTrainedTokenizerBase, setting: str = "auto") -> tuple[int, ...]:
    """Return the ids that stand before every text, at most one.

    Parameters
    ----------
    setting : {"auto", "yes", "no"}
        `auto`: a begin token where the tokenizer adds one by itself (OPT does, GPT-2, BLOOM and SmolLM2 do not).
    """
    if setting not in {"auto", "yes", "no"}:
        raise ValueError(f"begin={setting!r}: expected auto, yes or no")
    own = tokenizer.bos_token_id
    added = own is not None and tokenizer("a").input_ids[0] == own
    if setting == "yes" and own is None:
        raise ValueError("this tokenizer has no begin token: begin must be auto or no")
    return (own,) if setting == "yes" or (setting == "auto" and added) else ()


def window(model: PreTrainedModel) -> int:
    """Return how many tokens a model reads; a very large number where its config sets no limit (BLOOM)."""
    config = model.config
    return getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", None) or 2**20


@torch.inference_mode()
def score(
    model: PreTrainedModel, queries: Sequence[Query], shared: Sequence[int] = (), batch_tokens: int = 2048
) -> list[Scored]:
    """Return log-likelihoods of every query, in their order.

    Parameters
    ----------
    model : PreTrainedModel
        Decoder-only.
    queries : sequence of Query
    shared : sequence of int
        Ids before the context of every query, encoded once.
    batch_tokens : int
        Padded tokens a forward pass; does not change the scores.

    Raises
    ------
    ValueError
        If a continuation is empty, has nothing before it, or does not fit the model's window.
    """
    model = placed(model).eval()
    shared = tuple(shared)
    cuts = [_cut(query, len(shared), window(model), place) for place, query in enumerate(queries, start=1)]
    shortened = [replace(q, context=q.context[cut:]) for q, cut in zip(queries, cuts, strict=True)]
    prefix = _Prefix(model, shared)
    found: dict[int, Scored] = {}
    for groups in _batches(_grouped(shortened), shortened, batch_tokens):
        found |= _score_batch(model, prefix, groups, shortened)
    return [replace(found[place], cut=cut) for place, cut in enumerate(cuts)]


def placed(model: PreTrainedModel) -> PreTrainedModel:
    """Return a model on the accelerator, where there is one and a device map has not said otherwise."""
    found = torch.accelerator.current_accelerator(check_available=True)
    return model if found is None or hasattr(model, "hf_device_map") else model.to(found)


class _Prefix:
    """What all queries begin with: its keys and values, and what it predicts next."""

    def __init__(self, model: PreTrainedModel, ids: tuple[int, ...]):
        self.ids, self.cache, self.last = ids, DynamicCache(config=model.config), None
        if ids:
            output = model(torch.tensor([ids], device=model.device), cache=self.cache, use_cache=True)
            self.last = output.logits[0, -1].float().log_softmax(-1)

    def repeated(self, rows: int) -> DynamicCache:
        """Return a cache of its own for some rows."""
        cache = copy.deepcopy(self.cache)
        if self.ids:
            cache.batch_repeat_interleave(rows)
        return cache


def _cut(query: Query, shared: int, longest: int, place: int) -> int:
    """Return how many context tokens must go, so that the query fits; the continuation never goes."""
    if not query.continuation:
        raise ValueError(f"query {place}: the continuation is empty")
    if not query.context and not shared:
        raise ValueError(f"query {place}: nothing stands before the continuation; give a begin token")
    room = longest - shared - len(query.continuation)
    if room < (0 if shared else 1):
        raise ValueError(
            f"query {place}: {shared} shared and {len(query.continuation)} continuation tokens do not fit the model's "
            f"window of {longest}"
        )
    return max(0, len(query.context) - room)


def _grouped(queries: Sequence[Query]) -> list[_Group]:
    """Return groups of queries whose contexts are prefixes of one trunk, longest trunks first."""
    # In lexicographic order a context stands directly before those that it begins.
    order = sorted(range(len(queries)), key=lambda at: queries[at].context, reverse=True)
    groups: list[tuple[tuple[int, ...], list[int]]] = []
    for at in order:
        context = queries[at].context
        if groups and groups[-1][0][: len(context)] == context:
            groups[-1][1].append(at)
        else:
            groups.append((context, [at]))
    made = [_Group(trunk, tuple(members)) for trunk, members in groups]
    return sorted(made, key=lambda group: -len(group.trunk))


def _batches(groups: Sequence[_Group], queries: Sequence[Query], batch_tokens: int) -> Iterator[list[_Group]]:
    """Yield groups whose trunks and branches, padded, stay below a number of tokens; at least one group."""
    batch: list[_Group] = []
    for group in groups:
        wider = [*batch, group]
        members = [at for one in wider for at in one.members]
        branches = len(members) * max(len(queries[at].continuation) for at in members)
        if batch and max(len(wider) * len(wider[0].trunk), branches) > batch_tokens:
            yield batch
            wider = [group]
        batch = wider
    if batch:
        yield batch


def _score_batch(
    model: PreTrainedModel, prefix: _Prefix, groups: Sequence[_Group], queries: Sequence[Query]
) -> dict[int, Scored]:
    """Return the scores of some groups' queries, by place."""
    device, before = model.device, len(prefix.ids)
    trunks, mask = _padded([group.trunk for group in groups], device)
    cache = prefix.repeated(len(groups))
    next_token = [prefix.last] * len(groups)  # what the place before the trunk predicts
    steps = None
    if trunks.shape[1]:
        ones = torch.ones(len(groups), before, dtype=mask.dtype, device=device)
        output = _forward(model, trunks, torch.cat([ones, mask], 1), before, cache)
        steps = output.logits.float().log_softmax(-1)
    at_place = {
        (row, place): steps[row, place - 1] if place else next_token[row]
        for row, group in enumerate(groups)
        for place in {len(queries[at].context) for at in group.members}
    }
    own = [_trunk_scores(group.trunk, steps[row] if steps is not None else None, prefix.last)
           for row, group in enumerate(groups)]  # fmt: skip
    members = [(row, at) for row, group in enumerate(groups) for at in group.members]
    branches = _branch_scores(model, cache, mask, before, members, queries)
    found = {}
    for (row, at), later in zip(members, branches, strict=True):
        query = queries[at]
        first = at_place[row, len(query.context)][query.continuation[0]].item()
        said = own[row][: len(query.context)]
        known = said[~np.isnan(said)]
        found[at] = Scored(float(known.sum()), len(known), np.array([first, *later]), 0)
    return found


def _trunk_scores(trunk: tuple[int, ...], steps: Tensor | None, last: Tensor | None) -> np.ndarray:
    """Return the log-likelihood of each trunk token, NaN for a first one without anything before it."""
    found = np.full(len(trunk), np.nan)
    if trunk and last is not None:
        found[0] = last[trunk[0]].item()
    if len(trunk) > 1:
        places = torch.arange(len(trunk) - 1, device=steps.device)
        found[1:] = steps[places, torch.tensor(trunk[1:], device=steps.device)].cpu().numpy()
    return found


def _branch_scores(
    model: PreTrainedModel,
    cache: DynamicCache,
    mask: Tensor,
    before: int,
    members: Sequence[tuple[int, int]],
    queries: Sequence[Query],
) -> list[list[float]]:
    """Return, for each query, the log-likelihoods of its continuation's tokens after the first."""
    # What is read to predict a continuation ends before its last token: ` Yes` and ` No` read the same.
    keys = [(row, len(queries[at].context), queries[at].continuation[:-1]) for row, at in members]
    branches = {key: place for place, key in enumerate(dict.fromkeys(key for key in keys if key[2]))}
    if not branches:
        return [[] for _ in members]
    device = mask.device
    inputs, alive = _padded([ids for _, _, ids in branches], device)
    lengths = torch.tensor([length for _, length, _ in branches], device=device)
    # A branch sees its trunk up to the place where it hangs.
    seen = (torch.arange(mask.shape[1], device=device) < lengths[:, None]).to(mask.dtype)
    ones = torch.ones(len(branches), before, dtype=mask.dtype, device=device)
    cache.batch_select_indices(torch.tensor([row for row, _, _ in branches], device=device))
    output = _forward(model, inputs, torch.cat([ones, seen, alive], 1), before + lengths[:, None], cache)
    steps = output.logits.float().log_softmax(-1)
    return [
        [steps[branches[key], place, token].item() for place, token in enumerate(queries[at].continuation[1:])]
        for key, (_, at) in zip(keys, members, strict=True)
    ]


def _forward(model: PreTrainedModel, ids: Tensor, mask: Tensor, start: int | Tensor, cache: DynamicCache):
    """Run a model behind a cache; positions count what a row sees, whatever padding stands in the cache."""
    places = start + torch.arange(ids.shape[1], device=ids.device).expand(ids.shape)
    places = {"position_ids": places.clamp(max=window(model) - 1)}  # padding may stand behind the window's end
    if model.config.model_type == "bloom":  # has no positions: it counts what the mask shows
        places = {}
    return model(ids, attention_mask=mask, cache=cache, use_cache=True, **places)


def _padded(rows: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return ids padded on the right with 0, and their mask."""
    tensors = [torch.tensor(row, dtype=torch.long) for row in rows]
    masks = [torch.ones(len(row), dtype=torch.long) for row in rows]
    return tuple(torch.nn.utils.rnn.pad_sequence(part, batch_first=True).to(device) for part in (tensors, masks))
