"""State changes of every step: `predict` with one model, `TwoStageDecoder` with a second one asked entity by entity."""

from lib.decoding.steps import DecodingReport, as_record, predict, target_bound, with_predictions
from lib.decoding.two_stage import TwoStageDecoder

__all__ = ["DecodingReport", "TwoStageDecoder", "as_record", "predict", "target_bound", "with_predictions"]
