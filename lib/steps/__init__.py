"""STEPS (order reasoning): is this the next step? Construction, prompts, scoring with shared prefixes, reports."""

from lib.steps.build import build_multi_choice, build_next_step
from lib.steps.prompts import demonstrations, next_step_prompt, question
from lib.steps.report import ClassificationReport, choice_accuracy, classification_report, paired_accuracy
from lib.steps.tasks import Choices, Classified, classify, score_choices

__all__ = [
    "Choices", "ClassificationReport", "Classified", "build_multi_choice", "build_next_step", "choice_accuracy",
    "classification_report", "classify", "demonstrations", "next_step_prompt", "paired_accuracy", "question",
    "score_choices",
]  # fmt: skip
