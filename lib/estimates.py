"""What a run will ask of a GPU, from parameter and token counts: upper bounds to choose a card by, no promises.

Memory of a training: 16 bytes a parameter (weights, gradients and AdamW's two moments in fp32), the activations of a
full batch at the longest lengths, and its logits with their gradient; of scoring: the weights (bf16 with a
`device_map`, else fp32) and the logits of a batch. Hours of a training: 6 operations a parameter and token, half the
parameters for either half of an encoder-decoder; of decoding: a fixed time a generated token of a batch, as small
batches wait for the launches, not for the arithmetic. Tokens are counted on the bundled sample at 4 characters a token
and scaled to the rows of the public data.
"""

import math
import statistics
from functools import cache

from lib import published

GPU = "a Tesla P100 (16 GB; 10.6 TFLOP/s in fp32, of which 40% are taken)"
OPERATIONS = 10.6e12 * 0.4  # a second
LAUNCH = 25e-3  # seconds a decoding step of a batch, measured on no GPU: 24 layers of a dozen small kernels
CHARACTERS = 4  # a token of English, byte-level BPE
ACTIVATIONS = 2 * 34  # bytes a layer, token and unit of width in fp32 (Korthikanti et al., 2022, eq. 1, has fp16)
STEPS_ROWS = 2 * 1000  # options of the released choices; as many questions are asked for each number of shots
SPLITS = ("train", "dev", "test")


def estimate(notebook: str, parameters: dict[str, object]) -> dict[str, str]:
    """Return parameters (M), GPU memory (GB) and hours of a run on a P100, `-` where there is nothing to estimate.

    Parameters
    ----------
    notebook : str
        The notebook's name, which says what a run does.
    parameters : dict
        Of the run, as the profile has them.
    """
    from lib.models.families import PUBLISHED, count_parameters, published_config

    name = str(parameters.get("model", "")).rpartition("/")[2]
    if name not in PUBLISHED:
        return {"parameters (M)": "-", "GPU memory (GB)": "-", "hours on a P100": "-", "paper": "-"}
    config = published_config(name)
    count = _memory_parameters(parameters) if notebook == "04_emem" else count_parameters(config)
    if notebook == "06_steps":
        memory, hours = _scoring(count, config, parameters)
    else:
        memory = _training_bytes(count, config, parameters)
        hours = None if "parts" in parameters else _hours(notebook, count, config, parameters)
    own = notebook in {"03_baselines", "04_emem", "05_econd"}
    return {
        "parameters (M)": f"{count / 1e6:,.0f}",
        "GPU memory (GB)": f"{memory / 1e9:,.0f}",
        "hours on a P100": "-" if hours is None else f"{hours:,.1f}",
        "paper": paper_hours() if own else "-",
    }


def paper_hours() -> str:
    """Return what the paper says that a model took, in hours on a P100."""
    return str(published.paper_numbers()["compute"]["rows"]["every model"]["hours"])


def public_rows(dataset: str) -> dict[str, int]:
    """Return how many steps a data set's splits have, as the paper's Table 1 counts them."""
    table = published.paper_numbers()["table1"]["rows"]
    return {split: int(table[f"{dataset}/{split}"]["steps"]) for split in SPLITS}


@cache
def sample_tokens() -> tuple[float, float, float]:
    """Return mean tokens of a prompt and of an answer in the bundled sample, and mean entities that a step changes."""
    from lib.data import load_openpi
    from lib.paths import SAMPLE
    from lib.text import prompt, to_answer

    procedures = load_openpi("train", root=SAMPLE)
    pairs = [
        (
            prompt(procedure.goal, [past.text for past in procedure.steps[:position]], step.text),
            to_answer(step.changes),
            len({change.entity for change in step.changes}),
        )
        for procedure in procedures
        for position, step in enumerate(procedure.steps)
    ]
    asked, answered, entities = zip(*pairs, strict=True)
    return (
        statistics.mean(map(len, asked)) / CHARACTERS,
        statistics.mean(map(len, answered)) / CHARACTERS,
        statistics.mean(entities),
    )


@cache
def recipe_tokens() -> float:
    """Return the mean tokens of all steps of a procedure in the bundled sample."""
    from lib.data import load_openpi
    from lib.paths import SAMPLE

    texts = [" ".join(step.text for step in procedure.steps) for procedure in load_openpi("train", root=SAMPLE)]
    return statistics.mean(map(len, texts)) / CHARACTERS


def _memory_parameters(parameters: dict[str, object]) -> int:
    """Return the parameters of a BART with entity memory."""
    from lib.models.sizes import paper_sizes

    return round(paper_sizes(str(parameters["memory_query"]))["BART + EMem"] * 1e6)


def _training_bytes(count: int, config, parameters: dict[str, object]) -> float:
    """Return the bytes of a training at its longest batch."""
    source = int(parameters.get("max_input", 64))
    target = int(parameters.get("max_target", 32))
    rows = int(parameters["batch_size"])
    layers = config.num_hidden_layers + (getattr(config, "decoder_layers", 0) or 0)
    activations = (
        ACTIVATIONS * layers * config.hidden_size * rows * (source + target) / (2 if config.is_encoder_decoder else 1)
    )
    logits = 3 * 4 * rows * config.vocab_size * (target if config.is_encoder_decoder else source + target)
    return 16 * count + activations + logits


def _hours(notebook: str, count: int, config, parameters: dict[str, object]) -> float:
    """Return the hours of training and of decoding dev after every epoch and test once."""
    rows = public_rows(str(parameters["dataset"]))
    source, target, a_step = sample_tokens()
    questions = a_step if notebook == "05_econd" else 1
    share = 0.5 if config.is_encoder_decoder else 1.0
    tokens = rows["train"] * (questions * source + target)
    training = float(parameters["epochs"]) * 6 * count * share * tokens / OPERATIONS
    batch = int(parameters["decode_batch_size"])
    decoded = float(parameters["epochs"]) * rows["dev"] + rows["test"]
    decoding = (
        math.ceil(questions * decoded / batch) * 2 * target * LAUNCH
    )  # the longest of a batch, about twice the mean
    return (training + decoding) / 3600


def _scoring(count: int, config, parameters: dict[str, object]) -> tuple[float, float]:
    """Return bytes and hours of asking a decoder-only model, trained on the question first if the run says so."""
    tuned = bool(parameters["tune"])
    wide = 2 if parameters["device_map"] else 4
    memory = wide * count + 2 * 4 * int(parameters["batch_tokens"]) * config.vocab_size
    shots = [0] if tuned else [int(part) for part in str(parameters["shots"]).split(",")]
    asked = sum((int(parameters["seeds"]) if n else 1) for n in shots)
    operations = 2 * count * recipe_tokens() * STEPS_ROWS * (1 + asked)
    if tuned:
        segment, rows = int(parameters["segment"]), int(parameters["batch_size"])
        trained = {"batch_size": rows, "max_input": segment, "max_target": 0}
        memory = max(memory, _training_bytes(count, config, trained))
        operations += 6 * count * segment * rows * int(parameters["updates"])
    return memory, operations / OPERATIONS / 3600
