"""Entity memory: what a bank holds, and that training and decoding in waves equal one step at a time."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from lib import waves
from lib.data import Procedure, StateChange, Step, load
from lib.data.examples import step_prompt
from lib.decoding import predict
from lib.encoding import IGNORED
from lib.generation import Decoding, generation_config
from lib.memory import MemoryBank, Mention, read_answer, slot_counts
from lib.models import MemoryBart, load_seq2seq
from lib.text import parse_sentence, split_answer, to_answer, to_sentence
from lib.training import Settings, fit

HOW = Decoding(max_new_tokens=60, max_input=128, batch_size=3)


def change(entity, attribute="temperature", before="cold", after="hot"):
    return StateChange(entity, attribute, before, after)


@pytest.fixture(scope="module")
def procedures():
    """Return procedures of 3, 1 and 2 steps; a pair that comes back, one that one step changes twice, a quiet step."""
    pot, oil = change("pot"), change("oil", "color", "clear", "dark brown")
    boil = (
        Step(1, "Put it on.", (pot, oil, change("pot", before="warm"))),
        Step(2, "Wait a while until nothing at all happens.", ()),
        Step(3, "Take it off.", (change("pot", before="hot", after="cold"), change("stove", "state", "on", "off"))),
    )
    fry = (Step(1, "Heat oil.", (oil,)), Step(2, "Fry it.", (change("oil", "color", "dark", "black"), change("egg"))))
    wait = (Step(1, "Wait.", (change("cook", "mood"),)),)
    return [
        Procedure("x/Boil", "Boil", boil),
        Procedure("x/Wait", "Wait", wait),
        Procedure("x/Fry", "Fry", fry),
    ]


def memory_model(query="own", slots="updated", through_time=False):
    """Return a tiny model whose memory matters: its weights are no copies, and cross-attention weighs more."""
    bart, tokenizer = load_seq2seq("tiny", dropout=0.0)
    model = MemoryBart.from_bart(bart, query, slots, through_time).eval()
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(1)
        for name, weight in model.named_parameters():
            if ".memory." in name or name in {"create.weight", "update.weight"} or "encoder_attn.out_proj" in name:
                weight.normal_(0, 0.5)
    return model, tokenizer


def stock_of(model):
    """Return the stock BART with the weights that a memory model shares with it."""
    stock, _ = load_seq2seq("tiny", dropout=0.0)
    assert stock.load_state_dict(model.state_dict(), strict=False).missing_keys == []
    return stock.to(model.dtype).eval()


@pytest.fixture(scope="module", params=["own", "shared"])
def trained(request, procedures, tmp_path_factory):
    """Return a model that has learned the procedures by heart, so that its predictions can be parsed."""
    model, tokenizer = memory_model(request.param)
    rows = waves.encode_procedures(tokenizer, procedures, 128, 128)
    settings = Settings(
        learning_rate=3e-3, updates=160, evaluate_every=160, batch_size=8, precision="fp32", device="cpu"
    )
    fit(
        model, tokenizer, rows, rows, tmp_path_factory.mktemp("fit"), settings,
        collator=waves.collate(tokenizer), loss=waves.loss,
    )  # fmt: skip
    return model, tokenizer


# What a bank holds


def scorer(*weights):
    layer = nn.Linear(4, 1, bias=False)
    layer.weight.data = torch.tensor([weights])
    return layer


def test_slots_are_created_and_updated_as_computed_by_hand():
    # Two slots, three steps, width 4. The creating layer looks at a token's first number, the updating at its last.
    ln3 = 1.0986122886681098
    create, update = scorer(1.0, 0, 0, 0), scorer(0, 0, 0, 1.0)
    bank = MemoryBank(1, 4)
    assert bank.slots.shape == (1, 0, 4)
    assert bank.mask.shape == (1, 0)
    a, b = ("pot", "temperature"), ("oil", "color")

    # Step 1 creates a from tokens 0 and 1: scores ln 3 and 0, so weights 3/4 and 1/4.
    hidden = torch.tensor([[[ln3, 4.0, 0.0, 7.0], [0.0, 0.0, 8.0, 7.0], [9.0, 9.0, 9.0, 9.0]]])
    bank.remember([0], hidden, [[Mention(a, (0, 1))]], create, update)
    torch.testing.assert_close(bank.slots[0], torch.tensor([[0.75 * ln3, 3.0, 2.0, 7.0]]), atol=1e-6, rtol=0)

    # Step 2 creates b from token 2 alone; a stays.
    hidden = torch.tensor([[[5.0, 5.0, 5.0, 5.0], [5.0, 5.0, 5.0, 5.0], [1.0, 2.0, 3.0, 4.0]]])
    bank.remember([0], hidden, [[Mention(b, (2,))]], create, update)
    expected = torch.tensor([[0.75 * ln3, 3.0, 2.0, 7.0], [1.0, 2.0, 3.0, 4.0]])
    torch.testing.assert_close(bank.slots[0], expected, atol=1e-6, rtol=0)

    # Step 3 updates a from tokens 0 and 2 by the last number (0 and ln 3: weights 1/4, 3/4): the mean of old and new.
    hidden = torch.tensor([[[8.0, 4.0, 0.0, 0.0], [6.0, 6.0, 6.0, 6.0], [0.0, 0.0, 8.0, ln3]]])
    bank.remember([0], hidden, [[Mention(a, (0, 2))]], create, update)
    expected[0] = (expected[0] + torch.tensor([2.0, 1.0, 6.0, 0.75 * ln3])) / 2
    torch.testing.assert_close(bank.slots[0], expected, atol=1e-6, rtol=0)
    assert bank.pairs == [{a: 0, b: 1}]


def test_a_bank_without_updates_keeps_what_a_slot_held_first():
    bank = MemoryBank(1, 4, update=False)
    first, second = torch.randn(2, 1, 2, 4).unbind()
    both = [Mention(("a", "x"), (0,)), Mention(("b", "x"), (1,))]
    bank.remember([0], first, [both[:1]], scorer(0.0, 0, 0, 0), scorer(0.0, 0, 0, 0))
    bank.remember([0], second, [both], scorer(0.0, 0, 0, 0), scorer(0.0, 0, 0, 0))
    assert torch.equal(bank.slots[0], torch.stack([first[0, 0], second[0, 1]]))


def test_rows_are_padded_to_the_most_slots_among_those_asked_for():
    bank = MemoryBank(3, 4)
    hidden = torch.randn(2, 5, 4)
    three = [Mention((name, "x"), (at,)) for at, name in enumerate("abc")]
    bank.remember([2, 0], hidden, [three, three[:1]], scorer(1.0, 0, 0, 0), scorer(1.0, 0, 0, 0))
    slots, mask = bank.padded([1, 2])
    assert slots.shape == (2, 3, 4)
    assert mask.tolist() == [[False] * 3, [True] * 3]
    assert torch.equal(slots[0], torch.zeros(3, 4))
    assert torch.equal(slots[1], hidden[0, :3])
    assert bank.padded([1])[0].shape == (1, 0, 4)
    assert bank.mask.sum(1).tolist() == [1, 0, 3]


def test_what_was_given_out_before_stays_as_it_was():
    bank = MemoryBank(1, 4)
    mention = [[Mention(("a", "x"), (0,))]]
    bank.remember([0], torch.ones(1, 1, 4), mention, scorer(1.0, 0, 0, 0), scorer(1.0, 0, 0, 0))
    before, _ = bank.padded()
    bank.remember([0], 3 * torch.ones(1, 1, 4), mention, scorer(1.0, 0, 0, 0), scorer(1.0, 0, 0, 0))
    assert torch.equal(before, torch.ones(1, 1, 4))
    assert torch.equal(bank.slots, 2 * torch.ones(1, 1, 4))


@pytest.mark.parametrize("name", ["tiny", "warm:minilm"])
def test_mentions_cover_the_sentences_of_their_pair(name, procedures):
    _, tokenizer = load_seq2seq(name)
    changes = procedures[0].steps[0].changes
    answer = read_answer(tokenizer, changes, 300)
    assert answer.ids[-1] == tokenizer.eos_token_id
    assert not answer.cut
    assert answer.changes_cut == 0
    assert [mention.pair for mention in answer.mentions] == [("pot", "temperature"), ("oil", "color")]
    told = [tokenizer.decode([answer.ids[at] for at in mention.tokens]).strip() for mention in answer.mentions]
    pot = " ".join(to_sentence(some) for some in (changes[0], changes[2]))
    assert told == [pot, to_sentence(changes[1])]


def test_changes_beyond_the_bound_are_counted_and_not_remembered(procedures):
    _, tokenizer = load_seq2seq("tiny")
    whole = read_answer(tokenizer, procedures[0].steps[0].changes, 300)
    end = whole.mentions[1].tokens[-1]
    cut = read_answer(tokenizer, procedures[0].steps[0].changes, end + 2)
    assert cut.cut
    assert cut.changes_cut == 1
    assert cut.mentions[1] == whole.mentions[1]
    assert max(cut.mentions[0].tokens) < end
    assert read_answer(tokenizer, (), 300).mentions == []
    assert slot_counts([step.changes for step in procedures[0].steps]) == [0, 2, 2]


# What the model does with slots


@pytest.fixture(params=["own", "shared"])
def model_and_inputs(request):
    model, tokenizer = memory_model(request.param)
    prompts = ["Boil. Put the pot on the stove. Now, what happens?", "Wait. Now, what happens?"]
    encoded = tokenizer(prompts, padding=True, return_tensors="pt")
    labels = tokenizer(["color of oil", "size"], padding=True, return_tensors="pt", add_special_tokens=False).input_ids
    inputs = {"input_ids": encoded.input_ids, "attention_mask": encoded.attention_mask}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        memory = torch.randn(2, 3, 64)
    # In float64: what must be equal is, whatever a processor's kernels round.
    return model.double(), inputs, labels, memory.double()


def test_without_live_slots_the_model_is_a_stock_bart(model_and_inputs):
    model, inputs, labels, memory = model_and_inputs
    stock = stock_of(model)
    expected = stock(**inputs, labels=labels)
    for slots, mask in ((None, None), (memory[:, :0], None), (memory, torch.zeros(2, 3, dtype=torch.bool))):
        found = model(**inputs, labels=labels, memory=slots, memory_mask=mask)
        torch.testing.assert_close(found.logits, expected.logits, atol=1e-10, rtol=0)
        found.loss.backward()
        gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
        assert all(torch.isfinite(gradient).all() for gradient in gradients)
    beams = {"num_beams": 4, "max_new_tokens": 20}
    assert torch.equal(model.generate(**inputs, memory=memory[:, :0], **beams), stock.generate(**inputs, **beams))


def test_each_row_is_what_it_is_alone_whatever_the_others_slots(model_and_inputs):
    model, inputs, labels, memory = model_and_inputs
    mask = torch.tensor([[False] * 3, [True, True, False]])
    together = model(**inputs, labels=labels, memory=memory, memory_mask=mask).logits
    for row, slots in ((0, 0), (1, 2)):
        length = int(inputs["attention_mask"][row].sum())
        alone = model(
            inputs["input_ids"][row : row + 1, :length],
            labels=labels[row : row + 1],
            memory=memory[row : row + 1, :slots],
        ).logits
        torch.testing.assert_close(together[row : row + 1], alone, atol=1e-5, rtol=0)
    other = model(**inputs, labels=labels, memory=0 * memory, memory_mask=mask).logits
    assert torch.equal(other[0], together[0])
    assert not torch.allclose(other[1], together[1], atol=1e-3)


def test_a_masked_slot_gets_no_attention_and_no_gradient(model_and_inputs):
    model, inputs, labels, memory = model_and_inputs
    model.set_attn_implementation("eager")
    mask = torch.tensor([[False, True, False], [True, True, False]])
    memory.requires_grad_()
    found = model(**inputs, labels=labels, memory=memory, memory_mask=mask, output_attentions=True)
    slots = torch.stack(found.cross_attentions)[..., -3:]  # layers, batch, heads, tokens, slots
    assert (slots.amax((0, 2, 3)) > 1e-4).tolist() == mask.tolist()
    assert slots.permute(1, 4, 0, 2, 3)[~mask].max() == 0
    found.loss.backward()
    assert (memory.grad.abs().sum(-1) > 0).tolist() == mask.tolist()


def test_eager_and_fused_attention_agree_and_a_wrong_mask_is_refused(model_and_inputs):
    model, inputs, labels, memory = model_and_inputs
    mask = torch.tensor([[False, True, False], [True, True, False]])
    fused = model(**inputs, labels=labels, memory=memory, memory_mask=mask).logits
    model.set_attn_implementation("eager")
    eager = model(**inputs, labels=labels, memory=memory, memory_mask=mask).logits
    torch.testing.assert_close(fused, eager, atol=1e-5, rtol=0)
    with pytest.raises(ValueError, match=r"memory_mask \(2, 2\)"):
        model(**inputs, labels=labels, memory=memory, memory_mask=mask[:, :2])
    with pytest.raises(ValueError, match=r"memory \(1, 3, 64\)"):
        model(**inputs, labels=labels, memory=memory[:1], memory_mask=mask[:1])


def test_cross_attention_is_one_softmax_over_tokens_and_slots(model_and_inputs):
    model, _, _, memory = model_and_inputs
    attention = model.model.decoder.layers[0].encoder_attn
    own = model.config.memory_query == "own"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        target, states = torch.randn(2, 5, 64).double(), torch.randn(2, 7, 64).double()
    attention.k_proj.slots = attention.v_proj.slots = 3
    found, _ = attention(target, key_value_states=torch.cat([states, memory], 1))

    def heads(projected):
        return projected.view(2, -1, 4, 16).transpose(1, 2)

    linear = nn.functional.linear
    q, k, v = attention.q_proj, attention.k_proj, attention.v_proj
    to_tokens = heads(linear(target, q.weight, q.bias))
    to_slots = heads(q.memory(target)) if own else to_tokens
    scores = torch.cat([
        to_tokens @ heads(linear(states, k.weight, k.bias)).transpose(-1, -2),
        to_slots @ heads(k.memory(memory)).transpose(-1, -2),
    ], -1)  # fmt: skip
    values = torch.cat([heads(linear(states, v.weight, v.bias)), heads(v.memory(memory))], 2)
    mixed = ((scores / 4).softmax(-1) @ values).transpose(1, 2).reshape(2, 5, 64)
    expected = linear(mixed, attention.out_proj.weight, attention.out_proj.bias)
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-9)


@pytest.mark.parametrize("beams", [1, 4])
def test_beams_with_memory_are_the_same_cached_uncached_and_alone(model_and_inputs, beams):
    model, inputs, _, memory = model_and_inputs
    mask = torch.tensor([[False] * 3, [True] * 3])
    how = {"num_beams": beams, "max_new_tokens": 15, "min_new_tokens": 15}
    together = model.generate(**inputs, memory=memory, memory_mask=mask, **how)
    assert torch.equal(model.generate(**inputs, memory=memory, memory_mask=mask, use_cache=False, **how), together)
    for row, slots in ((0, 0), (1, 3)):
        length = int(inputs["attention_mask"][row].sum())
        alone = model.generate(
            inputs["input_ids"][row : row + 1, :length], memory=memory[row : row + 1, :slots], **how
        )  # also: nothing is left of what was decoded before
        assert torch.equal(alone[0], together[row])
    assert not torch.equal(model.generate(**inputs, **how)[1], together[1])


def test_a_saved_model_is_loaded_as_what_it_is(model_and_inputs, tmp_path):
    model, inputs, labels, memory = model_and_inputs
    model, memory = model.float(), memory.float()  # as models are saved and loaded
    _, tokenizer = load_seq2seq("tiny")
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    again, _ = load_seq2seq(str(tmp_path))
    assert isinstance(again, MemoryBart)
    assert again.config.memory_query == model.config.memory_query
    assert again.generation_config.forced_eos_token_id is None
    assert torch.equal(again.eval()(**inputs, labels=labels, memory=memory).logits,
                       model(**inputs, labels=labels, memory=memory).logits)  # fmt: skip
    with pytest.raises(ValueError, match="starts from a BART without memory"):
        MemoryBart.from_bart(again)


def test_a_stock_checkpoint_lacks_the_memory_alone_which_starts_as_a_copy():
    bart, _ = load_seq2seq("tiny")
    model = MemoryBart.from_bart(bart)
    missing, unexpected = model.load_state_dict(bart.state_dict(), strict=False)
    assert unexpected == []
    assert all(".memory." in key or key in {"create.weight", "update.weight"} for key in missing)
    layer = model.model.decoder.layers[1].encoder_attn
    assert torch.equal(layer.k_proj.memory.weight, layer.k_proj.weight)
    assert torch.equal(layer.q_proj.memory.bias, layer.q_proj.bias)
    for parameters in ({"query": "other"}, {"slots": "all"}):
        with pytest.raises(ValueError, match="expected one of"):
            MemoryBart.from_bart(bart, **parameters)
    with pytest.raises(ValueError, match="does not support activation checkpointing"):
        model.activation_checkpointing_enable()


# Training in waves


def plain(model, tokenizer, procedure, through_time=False):
    """Return summed loss, label tokens and slots of one procedure, one step at a time, without a bank or batches."""
    slots: dict = {}
    total, tokens = torch.zeros(()), 0
    for index, step in enumerate(procedure.steps):
        encoded = tokenizer(step_prompt(procedure, index), return_tensors="pt", truncation=True, max_length=128)
        answer = tokenizer(to_answer(step.changes), add_special_tokens=False, return_offsets_mapping=True)
        labels = torch.tensor([[*answer.input_ids, tokenizer.eos_token_id]])
        memory = torch.stack(list(slots.values()))[None] if slots else None
        found = model(encoded.input_ids, labels=labels, memory=memory, output_hidden_states=True)
        total = total + found.loss * labels.numel()
        tokens += labels.numel()
        hidden = found.decoder_hidden_states[-1][0]
        hidden = hidden if through_time else hidden.detach()
        text, said = to_answer(step.changes), {}
        for change in step.changes:
            sentence = to_sentence(change)
            start = text.index(sentence)
            inside = [at for at, (a, b) in enumerate(answer.offset_mapping) if a < start + len(sentence) and b > start]
            said.setdefault((change.entity, change.attribute), []).extend(inside)
        slots = slots | pooled(model, hidden, said, slots)
    return total, tokens, slots


def pooled(model, hidden, said, slots):
    """Return what the slots of the pairs that a step speaks of hold after it."""
    new = {}
    for pair, places in said.items():
        pool = model.update if pair in slots else model.create
        states = torch.stack([hidden[at] for at in places])
        vector = (pool(states).softmax(0) * states).sum(0)
        new[pair] = (slots[pair] + vector) / 2 if pair in slots else vector
    return new


@pytest.mark.parametrize("through_time", [False, True])
def test_waves_equal_one_procedure_and_one_step_at_a_time(procedures, through_time):
    model, tokenizer = memory_model("own", through_time=through_time)
    model = model.double()
    rows = waves.encode_procedures(tokenizer, procedures, 128, 128)
    assert sorted(len(row["labels"]) for row in rows) == [1, 2, 3]
    batch = waves.collate(tokenizer)(rows)
    loss, bank = model.in_waves(**batch)
    loss.backward()
    gradients = {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}
    model.zero_grad()
    done = [plain(model, tokenizer, procedure, through_time) for procedure in procedures]
    expected = sum(total for total, _, _ in done) / sum(tokens for _, tokens, _ in done)
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), abs=1e-6)
    by_length = {len(bank.pairs[at]): at for at in range(3)}
    for _, _, slots in done:
        at = by_length[len(slots)]
        assert list(bank.pairs[at]) == list(slots)
        torch.testing.assert_close(bank.padded([at])[0][0], torch.stack(list(slots.values())), atol=1e-6, rtol=1e-5)
    for name, weight in model.named_parameters():
        if weight.grad is not None:
            torch.testing.assert_close(gradients[name], weight.grad, atol=1e-6, rtol=1e-3)
    assert gradients["create.weight"].abs().sum() > 0


def test_gradient_through_time_is_another_one(procedures):
    found = []
    for through_time in (False, True):
        model, tokenizer = memory_model("own", through_time=through_time)
        batch = waves.collate(tokenizer)(waves.encode_procedures(tokenizer, procedures[:1], 128, 128))
        model(**batch).loss.backward()
        assert model.create.weight.grad.abs().sum() > 0
        found.append(model.model.decoder.layers[0].fc1.weight.grad)
    assert not torch.allclose(*found, atol=1e-4)


def test_without_slots_a_pack_is_a_batch_of_a_stock_bart(procedures):
    model, tokenizer = memory_model("own", slots="none")
    model = model.double()
    stock = stock_of(model)
    batch = waves.collate(tokenizer)(waves.encode_procedures(tokenizer, procedures, 128, 128))
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask", "labels")}
    assert model(**batch).loss.item() == pytest.approx(stock(**inputs).loss.item(), abs=1e-6)
    items = 7 * (batch["labels"] != IGNORED).sum()
    assert waves.loss(model, batch, items).item() == pytest.approx(model(**batch).loss.item() / 7, abs=1e-6)


def test_packs_hold_whole_procedures_with_about_eight_steps():
    _, tokenizer = load_seq2seq("tiny")
    train = load("openpi-c", "train", "sample")
    rows = waves.encode_procedures(tokenizer, train, 128, 128, seed=3)
    assert sum(len(row["labels"]) for row in rows) == sum(len(procedure.steps) for procedure in train)
    assert max(len(row["labels"]) for row in rows) <= 10
    assert all([step for own in row["procedures"] for step in own] == list(range(len(row["labels"]))) for row in rows)
    assert len({len(own) for row in rows for own in row["procedures"] if len(row["procedures"]) > 1}) > 1
    assert waves.encode_procedures(tokenizer, train, 128, 128, seed=3) == rows
    assert waves.encode_procedures(tokenizer, [], 128, 128) == []
    cut = waves.truncation(waves.encode_procedures(tokenizer, train, 10, 10))
    changes = sum(len(step.changes) for procedure in train for step in procedure.steps)
    quiet = sum(not step.changes for procedure in train for step in procedure.steps)
    assert cut["changes_cut"] == changes
    steps = sum(len(procedure.steps) for procedure in train)
    assert cut["inputs_cut"] == steps
    assert steps - quiet <= cut["answers_cut"] <= steps
    whole = waves.encode_procedures(tokenizer, train, 500, 500)
    assert waves.truncation(whole) == {"inputs_cut": 0, "answers_cut": 0, "changes_cut": 0}


# Decoding in waves


def plain_decoding(model, tokenizer, procedure, gold=False):
    """Return the predictions of one procedure, one step at a time."""
    slots: dict = {}
    predicted = []
    for index, step in enumerate(procedure.steps):
        encoded = tokenizer(step_prompt(procedure, index), return_tensors="pt")
        memory = torch.stack(list(slots.values()))[None] if slots else None
        ids = model.generate(encoded.input_ids, generation_config=generation_config(model, HOW), memory=memory)
        predicted.append(split_answer(tokenizer.decode(ids[0], skip_special_tokens=True)))
        parsed = [one for one in map(parse_sentence, predicted[-1]) if one is not None]
        changes = step.changes if gold else parsed
        answer = read_answer(tokenizer, changes, 400)
        with torch.no_grad():
            read = model(encoded.input_ids, labels=torch.tensor([answer.ids]), memory=memory, output_hidden_states=True)
        new = pooled(model, read.decoder_hidden_states[-1][0], {m.pair: m.tokens for m in answer.mentions}, slots)
        slots = slots | new
    return predicted


def test_decoding_in_waves_equals_one_procedure_and_step_at_a_time(trained, procedures):
    model, tokenizer = trained
    together, report = predict(model, tokenizer, procedures, HOW, return_report=True)
    assert together == [plain_decoding(model, tokenizer, procedure) for procedure in procedures]
    gold = [[[*map(to_sentence, step.changes)] for step in procedure.steps] for procedure in procedures]
    assert together == gold
    assert report.slots == 3 + 1 + 2
    assert report.not_remembered == 0


def test_what_is_remembered_changes_what_is_said(procedures):
    model, tokenizer = memory_model()
    gold = predict(model, tokenizer, procedures, HOW, history="gold", return_report=True)
    assert gold[1].slots == 6
    predicted = predict(model, tokenizer, procedures, HOW)
    raw = [plain_decoding(model, tokenizer, procedure, gold=True) for procedure in procedures]
    assert gold[0] == raw
    assert isinstance(predicted, list)
    with pytest.raises(ValueError, match="states must be False"):
        predict(model, tokenizer, procedures, HOW, states=True)
    with pytest.raises(ValueError, match="expected predicted or gold"):
        predict(model, tokenizer, procedures, HOW, history="both")


def test_forty_steps_and_three_hundred_slots_train_and_decode():
    model, tokenizer = memory_model()
    steps = [
        Step(k + 1, f"Step {k}.", tuple(change(f"e{k}x{n}", "size", "a", "b") for n in range(8))) for k in range(40)
    ]
    procedure = Procedure("x/Long", "Long", tuple(steps))
    rows = waves.encode_procedures(tokenizer, [procedure], 128, 300)
    assert len(rows) == 1
    batch = waves.collate(tokenizer)(rows)
    loss, bank = model.in_waves(**batch)
    loss.backward()
    assert torch.isfinite(loss)
    assert bank.slots.shape == (1, 320, 64)
    _, report = predict(
        model, tokenizer, [procedure], replace(HOW, beams=1, max_new_tokens=3), history="gold", return_report=True
    )
    assert report.slots == 320
    assert report.inputs_truncated == sum(len(ids) == 128 for ids in rows[0]["input_ids"]) == rows[0]["inputs_cut"] > 0
    assert report.steps == 40


def test_the_gpu_script_runs_on_a_processor_with_a_tiny_model(tmp_path):
    from tests.gpu.benchmark_memory_bart import main

    frame = main(["--size", "tiny", "--device", "cpu", "--repeats", "1", "--out", str(tmp_path / "table.md")])
    assert frame["queries to memory"].tolist() == ["none", "shared", "own"]
    assert (frame[["training tokens/s", "decoding tokens/s"]] > 0).all(axis=None)
    assert "tiny model on CPU" in (tmp_path / "table.md").read_text()


@pytest.mark.real_data
def test_the_public_data_fills_as_many_slots_as_was_counted():
    _, tokenizer = load_seq2seq("warm:minilm")
    train = load("openpi-c", "train")
    steps = [step.changes for procedure in train for step in procedure.steps]
    pairs = [len({(c.entity, c.attribute) for c in changes}) for changes in steps]
    new = sum(
        slot_counts([*(step.changes for step in procedure.steps), ()])[-1] for procedure in train
    )  # a slot a pair that was ever said
    assert (sum(pairs), sum(pairs) - new) == (12_638, 1_211)  # a tenth of what is said comes back
    rows = waves.encode_procedures(tokenizer, train, 256, 300)
    assert sum(len(row["labels"]) for row in rows) == 2403
    assert waves.truncation(rows)["inputs_cut"] == 0
