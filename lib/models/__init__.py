"""Models by name: `load_seq2seq` returns a model and its tokenizer, whatever the name stands for."""

from lib.models.seq2seq import load_seq2seq
from lib.models.wheels import wheel_folder

__all__ = ["load_seq2seq", "wheel_folder"]
