"""The scores of the OpenPI and OpenPI-C papers; `python -m lib.metrics` scores a file of predictions."""

from lib.metrics.agreement import bcubed
from lib.metrics.clusters import EmbeddingClusterer, assign, cluster, default_clusterer
from lib.metrics.f1 import Scores, cluster_f1, openpi_f1
from lib.metrics.match import MATCHES, match_matrix, normalize

__all__ = [
    "MATCHES", "EmbeddingClusterer", "Scores", "assign", "bcubed", "cluster", "cluster_f1", "default_clusterer",
    "match_matrix", "normalize", "openpi_f1",
]  # fmt: skip
