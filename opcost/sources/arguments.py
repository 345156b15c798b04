"""The parts of a whole model's tuple by which it is built: arguments, the seed, and weights in a file."""

from __future__ import annotations

import os
import random
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy
import torch

from opcost.errors import CannotBuildError, CannotMeasureError, UserError
from opcost.operators.tuples import ARGUMENTS, OperatorTuple, Structure, seed_of
from opcost.sources.port import ConfiguredModel
from opcost.torch_backend.values import real_value
from opcost.torch_backend.workload import one_line


def arguments_of(operator: OperatorTuple, device: str) -> dict[str, Any]:
    """Return the keyword arguments, which have no tensors, of the function or class that builds a model."""

    def no_tensor(_: object) -> torch.Tensor:
        raise TypeError("arguments have no tensors")

    return dict(real_value(dict(operator.parameters).get(ARGUMENTS, Structure("dict", ())), device, no_tensor))


def reserved_mistakes(config: ConfiguredModel, reserved: Collection[str]) -> list[str]:
    """Return a line for each argument by which a library loads weights: a key of its own names them."""
    text = "is no argument here; write weights_name, or leave it out for random weights"
    where = config.where("arguments")
    return [f"{where}: {name} {text}" for name, _ in config.arguments if name in reserved]


@contextmanager
def building(model_name: str) -> Iterator[None]:
    """Convert what a library raises while it builds a model to a ``CannotBuildError``, but for a lack of memory."""
    try:
        yield
    except (CannotMeasureError, UserError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        # Libraries raise many kinds of errors for arguments that do not fit.
        raise CannotBuildError(f"{model_name} cannot be built: {one_line(error)}") from error


@contextmanager
def seeded(operator: OperatorTuple) -> Iterator[None]:
    """Seed all generators of random weights: several processes build a model. Those of the CPU are put back."""
    seed = seed_of(operator)
    states = random.getstate(), numpy.random.get_state()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        random.seed(seed)
        numpy.random.seed(seed % 2**32)
        try:
            yield
        finally:
            random.setstate(states[0])
            numpy.random.set_state(states[1])


def weights_file(operator: OperatorTuple) -> Path | None:
    """Return the file or folder with a model's weights, None for random ones."""
    name = dict(operator.parameters).get("weights")
    return None if name is None else Path(os.path.expanduser(str(name)))


def weights_mistakes(config: ConfiguredModel) -> list[str]:
    """Return a line if a config names weights that are no local file or folder: nothing is downloaded."""
    if config.weights_name is None or os.path.exists(os.path.expanduser(config.weights_name)):
        return []
    text = f"no file or folder {config.weights_name}; write null for random weights, or the path of local ones"
    return [f"{config.where('weights_name')}: {text}"]


def size_mistakes(config: ConfiguredModel, usual: Sequence[int], given: int, key: str = "input_size") -> list[str]:
    """Return a line if the sizes under a key are not as many as the usual ones; none if they are not ``given``."""
    if given in (0, len(usual)):
        return []
    text = f"{config.model_name} takes {len(usual)} numbers such as {list(usual)}, not {given}"
    return [f"{config.where(key)}: {text}"]
