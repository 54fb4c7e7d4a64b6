"""`MemoryBart`: a BART whose decoder attends to encoder tokens and memory slots at once (OpenPI-C paper, sec. 4).

It is a `BartForConditionalGeneration`: `generate`, `save_pretrained` and the Trainer work as they do there.
`memory=` and `memory_mask=` give the slots of one step; `procedures=` trains on whole procedures in waves.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForSeq2SeqLM, BartConfig, BartForConditionalGeneration
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput

from lib.memory import MemoryBank, Mention
from lib.models.memory_attention import add_memory, copy_to_memory, set_slots

IGNORED = -100
QUERIES = ("own", "shared")
SLOTS = ("updated", "created", "none")


class MemoryBartConfig(BartConfig):
    """BART's configuration and three entries.

    Attributes
    ----------
    memory_query : {"own", "shared"}
        Whether slots are asked with queries of their own (the released code, 444M parameters of a BART-large) or
        with those for encoder tokens (the paper's text, 431M).
    memory_slots : {"updated", "created", "none"}
        What training and decoding in waves remember: a pair's slot is updated (the paper), keeps what it held first,
        or there is none. For ablations.
    through_time : bool
        Whether the loss of a step trains the hidden states of the steps before it. False as in the released code:
        past hidden states carry no gradient, the pooling layers do.
    """

    model_type = "memory_bart"
    memory_query: str = "own"
    memory_slots: str = "updated"
    through_time: bool = False


class MemoryBart(BartForConditionalGeneration):
    """A BART with entity memory.

    Parameters
    ----------
    config : MemoryBartConfig

    Attributes
    ----------
    create, update : nn.Linear
        `W0` and `W>0` of the paper's equation 1, from width to one score. No bias: a softmax over tokens ignores it.
    """

    config_class = MemoryBartConfig
    # A layer that is recomputed in the backward pass would split its source at a later step's number of slots.
    supports_gradient_checkpointing = False

    def __init__(self, config: MemoryBartConfig):
        _check(config)
        super().__init__(config)
        for layer in self.model.decoder.layers:
            add_memory(layer.encoder_attn, config.memory_query)
        self.create = nn.Linear(config.d_model, 1, bias=False)
        self.update = nn.Linear(config.d_model, 1, bias=False)
        self.post_init()

    @classmethod
    def from_bart(
        cls, bart: BartForConditionalGeneration, query: str = "own", slots: str = "updated", through_time: bool = False
    ) -> "MemoryBart":
        """Return a model with a BART's weights, whose memory weights start as copies of its cross-attention's.

        Parameters
        ----------
        bart : BartForConditionalGeneration
        query, slots, through_time
            See `MemoryBartConfig`.

        Notes
        -----
        The pooling layers start at zero: a new slot holds the mean over its tokens.

        Raises
        ------
        ValueError
            If the model is no BART, or has a memory already.
        """
        if isinstance(bart, cls) or bart.config.model_type != "bart":
            raise ValueError(f"{bart.config.model_type} model: from_bart starts from a BART without memory")
        more = {"memory_query": query, "memory_slots": slots, "through_time": through_time}
        kept = {
            key: value for key, value in bart.config.to_dict().items() if key not in {"model_type", "architectures"}
        }
        model = cls(MemoryBartConfig(**kept | more)).to(bart.device, bart.dtype)
        model.load_state_dict(bart.state_dict(), strict=False)
        for pool in (model.create, model.update):
            nn.init.zeros_(pool.weight)
        for layer in model.model.decoder.layers:
            copy_to_memory(layer.encoder_attn)
        model.generation_config = bart.generation_config
        return model

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        encoder_outputs: BaseModelOutput | None = None,
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
        procedures: Sequence[Sequence[int]] | None = None,
        mentions: Sequence[Sequence[Mention]] | None = None,
        labels: Tensor | None = None,
        **inputs,
    ) -> Seq2SeqLMOutput:
        """Return loss and logits of one step of each row, or the loss of whole procedures.

        Parameters
        ----------
        input_ids, attention_mask : (batch, tokens)
        encoder_outputs : BaseModelOutput, optional
            Instead of `input_ids`; without the slots.
        memory : (batch, slots, width), optional
            Slots of each row; none (zero slots) is a stock BART.
        memory_mask : (batch, slots) bool, optional
            True where live; default all of them. A masked slot gets no attention.
        procedures : sequence of sequences of int, optional
            Rows of each procedure's steps in order. Then step k of all procedures is one pass of the decoder, and
            its hidden states feed the memory of step k + 1; `mentions` says where, for each row. Returns the loss
            (mean over all label tokens) and no logits.
        labels : (batch, answer tokens)
            -100 where padded.
        **inputs
            As in `BartForConditionalGeneration.forward`.

        Raises
        ------
        ValueError
            If memory and mask do not fit each other or the batch.
        """
        if procedures is not None:
            loss, _ = self.in_waves(input_ids, attention_mask, labels, procedures, mentions)
            return Seq2SeqLMOutput(loss=loss)
        if encoder_outputs is None:
            encoder_outputs = self.model.encoder(input_ids, attention_mask=attention_mask)
        source, mask = self._with_memory(encoder_outputs[0], attention_mask, memory, memory_mask)
        return super().forward(
            attention_mask=mask, encoder_outputs=BaseModelOutput(last_hidden_state=source), labels=labels, **inputs
        )

    def in_waves(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        labels: Tensor,
        procedures: Sequence[Sequence[int]],
        mentions: Sequence[Sequence[Mention]],
    ) -> tuple[Tensor, MemoryBank]:
        """Return the loss of whole procedures and what is remembered after their last steps; see `forward`.

        The encoder reads all steps in one pass; the decoder goes through the steps once, so that a procedure of n
        steps costs n passes of one row (the released code decodes the history anew for each step).
        """
        states = self.model.encoder(input_ids, attention_mask=attention_mask)[0]
        bank = self.new_bank(len(procedures))
        total = states.new_zeros(())
        for wave in range(max(map(len, procedures))):
            places = [place for place, rows in enumerate(procedures) if wave < len(rows)]
            rows = [procedures[place][wave] for place in places]
            hidden = self.hidden_states(states[rows], attention_mask[rows], labels[rows], *bank.padded(places))
            logits = self.lm_head(hidden) + self.final_logits_bias
            total = total + nn.functional.cross_entropy(
                logits.flatten(0, 1), labels[rows].flatten(), ignore_index=IGNORED, reduction="sum"
            )
            self.remember(bank, places, hidden, [mentions[row] for row in rows])
        return total / (labels != IGNORED).sum(), bank

    def hidden_states(
        self, states: Tensor, attention_mask: Tensor, labels: Tensor, memory: Tensor, memory_mask: Tensor
    ) -> Tensor:
        """Return the decoder's final hidden states from which labels are predicted, (batch, answer tokens, width).

        Parameters
        ----------
        states : (batch, tokens, width)
            Of the encoder.
        attention_mask, labels, memory, memory_mask
            As in `forward`.
        """
        source, mask = self._with_memory(states, attention_mask, memory, memory_mask)
        return self.model(
            attention_mask=mask,
            encoder_outputs=BaseModelOutput(last_hidden_state=source),
            decoder_input_ids=self.prepare_decoder_input_ids_from_labels(labels),
            use_cache=False,
        ).last_hidden_state

    def new_bank(self, procedures: int) -> MemoryBank:
        """Return an empty memory for some procedures."""
        updated = self.config.memory_slots == "updated"
        return MemoryBank(procedures, self.config.d_model, updated, self.device, self.dtype)

    def remember(
        self, bank: MemoryBank, places: Sequence[int], hidden: Tensor, mentions: Sequence[Sequence[Mention]]
    ) -> None:
        """Take a step's hidden states into the memory, as the configuration says."""
        if self.config.memory_slots != "none":
            past = hidden if self.config.through_time else hidden.detach()
            bank.remember(places, past, mentions, self.create, self.update)

    def _with_memory(
        self, states: Tensor, attention_mask: Tensor | None, memory: Tensor | None, memory_mask: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Append the slots to the encoder's states and their mask to its mask, and tell the projections."""
        slots = 0 if memory is None else memory.shape[1]
        for layer in self.model.decoder.layers:
            set_slots(layer.encoder_attn, slots)
        if not slots:
            return states, attention_mask
        if memory_mask is None:
            memory_mask = torch.ones(memory.shape[:2], dtype=torch.bool, device=memory.device)
        if memory.shape[:2] != memory_mask.shape or memory.shape[::2] != states.shape[::2]:
            raise ValueError(
                f"memory {tuple(memory.shape)} and memory_mask {tuple(memory_mask.shape)} for encoder states "
                f"{tuple(states.shape)}: expected (batch, slots, width), (batch, slots) and (batch, tokens, width)"
            )
        if attention_mask is None:
            attention_mask = torch.ones(states.shape[:2], dtype=torch.long, device=states.device)
        mask = torch.cat([attention_mask, memory_mask.to(attention_mask)], dim=1)
        return torch.cat([states, memory.to(states)], dim=1), mask

    def _prepare_text_encoder_decoder_kwargs_for_generation(self, inputs_tensor, model_kwargs, **more):
        """Keep the memory from the encoder, which would hand unknown keywords on to its attention."""
        kept = {key: model_kwargs.pop(key) for key in ("memory", "memory_mask") if key in model_kwargs}
        return super()._prepare_text_encoder_decoder_kwargs_for_generation(inputs_tensor, model_kwargs, **more) | kept


def _check(config: MemoryBartConfig) -> None:
    """Refuse unknown settings."""
    for name, known in (("memory_query", QUERIES), ("memory_slots", SLOTS)):
        if getattr(config, name) not in known:
            raise ValueError(f"{name}={getattr(config, name)!r}: expected one of {', '.join(known)}")


# So that a saved folder is what it is, also for `AutoModelForSeq2SeqLM`: read as a BART it would lose its memory.
AutoConfig.register("memory_bart", MemoryBartConfig, exist_ok=True)
AutoModelForSeq2SeqLM.register(MemoryBartConfig, MemoryBart, exist_ok=True)
