"""Token QuestEval: mask each token of one text and ask a model to fill it from the other; `TokenQuestEval`."""

from lib.token_questeval.filling import MASK, SEPARATOR, UNANSWERABLE, Filler, prepare
from lib.token_questeval.masking import Masked, Masker
from lib.token_questeval.metric import TokenQuestEval
from lib.token_questeval.scoring import normalize_answer, squad_exact, squad_f1

__all__ = [
    "MASK", "SEPARATOR", "UNANSWERABLE", "Filler", "Masked", "Masker", "TokenQuestEval", "normalize_answer",
    "prepare", "squad_exact", "squad_f1",
]  # fmt: skip
