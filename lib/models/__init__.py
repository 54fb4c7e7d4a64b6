"""Models by name: `load_model(name)` returns a model and its tokenizer, whatever the name stands for.

`load_seq2seq` and `load_causal` do the same for one kind and refuse the other.
"""

from lib.models.causal import load_causal
from lib.models.memory_bart import MemoryBart
from lib.models.names import load_model
from lib.models.seq2seq import load_seq2seq
from lib.models.sizes import paper_sizes

__all__ = ["MemoryBart", "load_causal", "load_model", "load_seq2seq", "paper_sizes"]
