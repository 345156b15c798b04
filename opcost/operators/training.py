"""The parts of a training step besides its model: the loss, the optimiser with its options, and frozen weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal, TypeAlias, get_args

from opcost.operators.counts import Case
from opcost.operators.tuples import OperatorTuple, Phase, PlainValue, Structure

PARTS = tuple(phase for phase in Phase if phase.is_part)
"""The phases of a training step, in order; the loss is of the forward."""

INFERENCE, TRAINING = MODES = (Phase.INFERENCE.value, "training")
"""The modes of a config. The second is the parameter of a whole model that is a training step, too."""

LossName: TypeAlias = Literal["cross_entropy", "mse", "own"]
LOSSES = get_args(LossName)
"""``own`` is the one that the model returns: a number, or what it calls ``loss``."""

FUSED = "fused"

OPTIONS: Mapping[str, Mapping[str, PlainValue]] = MappingProxyType(
    {
        "sgd": MappingProxyType({"lr": 0.001, "momentum": 0.9, "weight_decay": 0.0, "nesterov": False, FUSED: False}),
        "adam": MappingProxyType({"lr": 0.0001, "weight_decay": 0.0, FUSED: False}),
        "adamw": MappingProxyType({"lr": 0.0001, "weight_decay": 0.01, FUSED: False}),
    }
)
"""The optimisers by name, with their options and defaults. Those that are not ``fused`` are ``foreach``."""


@dataclass(frozen=True)
class Training:
    """A training step: ``options`` replace the optimiser's defaults; ``frozen`` are patterns of parameters' names."""

    loss: str = LOSSES[0]
    optimizer: str = "sgd"
    options: tuple[tuple[str, PlainValue], ...] = ()
    frozen: tuple[str, ...] = ()

    @property
    def keys(self) -> Mapping[str, str]:
        """The keys of a config, those at their default left out, of a step without options and frozen parameters."""
        usual = Training()
        others = {"loss": (self.loss, usual.loss), "optimizer": (self.optimizer, usual.optimizer)}
        return {"mode": TRAINING, **{key: own for key, (own, default) in others.items() if own != default}}

    def of(self, model: OperatorTuple) -> OperatorTuple:
        """Return the tuple of a model's step."""
        options = {**OPTIONS[self.optimizer], **dict(self.options)}
        parts: dict[str, PlainValue] = {"loss": self.loss, "optimizer": self.optimizer, **options}
        frozen = {"frozen": self.frozen} if self.frozen else {}
        value = Structure("dict", tuple(sorted((parts | frozen).items())))
        mode = None if model.mode is None else "train"
        return replace(model, parameters=(*model.parameters, (TRAINING, value)), mode=mode)


def training_of(model: OperatorTuple) -> Training | None:
    """Return the training step that a model's tuple describes, with all options, None if it is none."""
    value = dict(model.parameters).get(TRAINING)
    if not isinstance(value, Structure):
        return None
    parts = dict(value.parts)
    loss, optimizer, frozen = str(parts.pop("loss")), str(parts.pop("optimizer")), parts.pop("frozen", ())
    patterns = tuple(map(str, frozen)) if isinstance(frozen, tuple) else ()
    return Training(loss, optimizer, tuple(parts.items()), patterns)


def whole_case(model: OperatorTuple) -> Case:
    """Return the case of a whole model: an inference pass, or a training step."""
    return Case(model, phase=Phase.INFERENCE if training_of(model) is None else Phase.STEP)
