"""`load_model`: the kind of a model follows from its name here, or from its config, never from a path's spelling."""

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from lib.models.causal import load_causal
from lib.models.pretrained import read_config
from lib.models.seq2seq import load_seq2seq

#: name -> decoder-only
OWN = {"tiny": False, "tiny-t5": False, "warm:minilm": False, "tiny-causal": True, "wheel:smollm2": True}


def load_model(
    name: str, revision: str = "", seed: int = 0, dropout: float = 0.1, decoder_layers: int = 0
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return an encoder-decoder or a decoder-only model and its tokenizer.

    Parameters
    ----------
    name : str
        `tiny`, `tiny-t5`, `warm:minilm`, `tiny-causal`, `wheel:smollm2`, a local folder, or a hub name.
    revision, seed, dropout, decoder_layers
        See `load_seq2seq` and `load_causal`.

    Raises
    ------
    ValueError
        If a hub name comes without a revision.
    """
    causal = OWN[name] if name in OWN else not read_config(name, revision)[0].is_encoder_decoder
    if causal:
        return load_causal("tiny" if name == "tiny-causal" else name, revision, seed, dropout)
    return load_seq2seq(name, revision, seed, dropout, decoder_layers)
