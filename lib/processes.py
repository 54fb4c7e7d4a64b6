"""Training in several processes as in one: the same rows in every update, shared among them.

`share` says how many rows each process takes, `Filled` and `with_blank` make the last update come out even, and
`dev_loss` is the mean that one process computes. The processes are those of `torchrun` or `accelerate launch`.
"""

from collections.abc import Callable, Iterator, Sequence

import torch
from accelerate import Accelerator
from accelerate.data_loader import SeedableRandomSampler
from accelerate.utils import synchronize_rng_states
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Sampler

from lib.encoding import IGNORED


def share(batch_size: int, accumulation: int, processes: int) -> tuple[int, int]:
    """Return rows a forward pass and passes an update of each process, so that an update has the same rows as in one.

    Raises
    ------
    ValueError
        If neither can be divided.

    Examples
    --------
    >>> share(8, 1, 2), share(1, 4, 2)
    ((4, 1), (1, 2))
    """
    if batch_size % processes == 0:
        return batch_size // processes, accumulation
    if accumulation % processes == 0:
        return batch_size, accumulation // processes
    raise ValueError(
        f"{processes} processes cannot share an update of batch_size={batch_size} rows and accumulation={accumulation} "
        f"passes: one of the two must be a multiple of {processes}"
    )


def with_blank(rows: Dataset | Sequence[dict]) -> Dataset:
    """Return the rows and, as the last one, a row without labels: it fills an update up and adds nothing to it."""
    labels = rows[0]["labels"]
    packed = isinstance(labels[0], list)  # whole procedures: labels are a list a step
    blank = [[IGNORED] * len(step) for step in labels] if packed else [IGNORED] * len(labels)
    return ConcatDataset([rows, [{**rows[0], "labels": blank}]])


class Filled(Sampler):
    """A sampler's order, filled with the blank row of `with_blank` to a multiple of the rows of all processes.

    Accelerate would fill it with rows from the beginning, which would then count twice.

    Parameters
    ----------
    sampler : Sampler or None
        None for chance, in the order that one process has.
    rows : int
        Without the blank one.
    multiple : int
        Rows of a forward pass, over all processes.
    """

    def __init__(self, sampler: Sampler | None, rows: int, multiple: int):
        self.sampler = sampler or SeedableRandomSampler(range(rows))
        self.rows, self.fill = rows, -rows % multiple

    def __iter__(self) -> Iterator[int]:
        """Yield all rows and the filling."""
        yield from self.sampler
        yield from [self.rows] * self.fill

    def __len__(self) -> int:
        return self.rows + self.fill

    def set_epoch(self, epoch: int) -> None:
        """Hand the epoch on: the order by chance hangs on it."""
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(epoch)


def dev_loss(accelerator: Accelerator, batches: DataLoader, collator: Callable, loss: Callable) -> float:
    """Return the loss that one process finds: the mean over batches, weighted by their rows, of the mean a label token.

    Parameters
    ----------
    batches : DataLoader
        Of lists of rows, as one process has them; each takes its part of every batch.
    loss : callable
        From a padded batch to its mean cross entropy a label token.
    """
    sums = []  # (batches, 2): cross entropy and label tokens of this process's rows
    sizes = []
    synchronize_rng_states(["torch"])  # rows are grouped by chance, in all processes alike
    for batch in batches:
        own = batch[accelerator.process_index :: accelerator.num_processes]
        total, tokens = 0.0, 0
        if own:
            padded = collator(own)
            tokens = int((padded["labels"] != IGNORED).sum())
            total = float(loss(padded)) * tokens
        sums.append((total, tokens))
        sizes.append(len(batch))
    totals = accelerator.reduce(torch.tensor(sums, device=accelerator.device), "sum").double().cpu()
    means = totals[:, 0] / totals[:, 1]
    return float((means * torch.tensor(sizes)).sum() / sum(sizes))
