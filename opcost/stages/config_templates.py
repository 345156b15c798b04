"""The text of a new ``summary.yml``."""

from __future__ import annotations

from collections.abc import Sequence

TEMPLATE = """\
# One model at one input size. The README explains the keys under "Add a model".
# Programs change nothing here but "done": they set it to true when the measurement is complete.
model_name: {model_name}
weights_name: null # null: random weights
input_size: {input_size} # batch first
done: false
"""

SEED_LINE = "seed: {seed} # of random weights and input: what this model runs depends on them\n"


def config_name(model_name: str, input_size: Sequence[int]) -> str:
    """Return the name of the folder of a model at an input size: ``resnet18_32x3x224x224``."""
    return f"{model_name}_{'x'.join(map(str, input_size))}"


def config_text(model_name: str, input_size: Sequence[int], seed: int | None = None) -> str:
    """Return the text of a config with random weights that is not done; ``seed`` None leaves it out."""
    text = TEMPLATE.format(model_name=model_name, input_size=list(input_size))
    return text if seed is None else text + SEED_LINE.format(seed=seed)
