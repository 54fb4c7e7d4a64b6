"""STEPS (order reasoning): is this the next step? Construction, prompts, scoring with shared prefixes, reports."""

from lib.steps.build import build_multi_choice, build_next_step, shuffled
from lib.steps.prompts import demonstrations, next_step_prompt, question
from lib.steps.report import ClassificationReport, choice_accuracy, classification_report, paired_accuracy
from lib.steps.sets import learning_rows, question_sets
from lib.steps.tasks import Choices, Classified, choices, classify, score_choices
from lib.steps.tuning import balanced, segments

__all__ = [
    "Choices", "ClassificationReport", "Classified", "balanced", "build_multi_choice", "build_next_step",
    "choice_accuracy", "choices", "classification_report", "classify", "demonstrations", "learning_rows",
    "next_step_prompt", "paired_accuracy", "question", "question_sets", "score_choices", "segments",
    "shuffled",
]  # fmt: skip
