"""The points of a sweep: one config for each size of a model's input."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from opcost.errors import UserError
from opcost.measuring.conditions import CONTIGUOUS, TORCH_DEFAULT, Conditions, measurement_key
from opcost.measuring.setting import Setting
from opcost.measuring.sweep_record import SweepPlace
from opcost.operators.cases import Case
from opcost.operators.model_names import ModelName
from opcost.operators.sweep_axes import Axis, AxisKind
from opcost.running.request import Request, model_tuple
from opcost.stages.known_models import named_configs
from opcost.stages.model_layers import config_of
from opcost.stages.profile_configs import configs_of, scratch_folder
from opcost.stages.wanted_model import WantedModel
from opcost.storage.code_files import lacks_parameter
from opcost.storage.configs import ModelConfig

AXES = "--size 8:4096:x2, --tokens 50:500:50 or --batch 1:256:x2"


@dataclass(frozen=True)
class SweepPoint:
    """A size of a sweep, the config of the model of this size, and the setting that it runs in."""

    size: int
    units: int | None
    config: ModelConfig
    setting: Setting

    @property
    def case(self) -> Case:
        return Case(model_tuple(self.config))

    def key(self, conditions: Conditions) -> str:
        return measurement_key(self.case, conditions)


@dataclass(frozen=True)
class Sweep:
    """A model whose input grows, under a name without the number that varies."""

    name: str
    kind: AxisKind
    points: tuple[SweepPoint, ...]

    def place(self, point: SweepPoint, conditions: Conditions) -> SweepPlace:
        return SweepPlace(point.key(conditions), self.name, self.kind.value, point.size, point.units)


def sweep_of(request: Request, wanted: WantedModel, axis: Axis | None) -> Sweep:
    """Return the points of a sweep. Nothing is written, counted or run.

    Args:
        request: the folders, the setting, and whether a user's code may run.
        wanted: the model, or the name of a config.
        axis: what varies; None for the lists of a config.

    Raises:
        UserError: the model does not exist, or has no such axis.
    """
    if axis is None:
        return _of_lists(request, wanted)
    wanted = _without_config(request, wanted)
    wanted_sizes = [_of_size(wanted, axis.kind, size) for size in axis.sizes]
    with scratch_folder(request, []) as scratch:
        found = configs_of(scratch.folders, wanted_sizes, request.allow_code)
    code = found[0].config.code
    if code and not wanted.input_size and lacks_parameter(code, axis.kind.value):
        remedy = f"add it, such as def {code.function}({axis.kind.value})"
        raise UserError(f"{code.path}: {code.function} has no parameter {axis.kind.value!r}; {remedy}")
    shape = wanted.input_size
    points = [
        SweepPoint(size, axis.kind.units(shape, size), one.config, request.setting_of(one.config))
        for size, one in zip(axis.sizes, found, strict=True)
    ]
    return Sweep(_name(wanted, axis.kind), axis.kind, tuple(points))


def _of_lists(request: Request, wanted: WantedModel) -> Sweep:
    """Return the sweep over the cases of a config."""
    configs = named_configs(request.folders, wanted.model_name) if wanted == WantedModel(wanted.model_name) else []
    axis = Axis.among([config.input_size for config in configs])
    if axis is None:
        cases = "; its config's cases differ in no other way than one input size" if len(configs) > 1 else ""
        raise UserError(f"{wanted.model_name}: nothing to sweep over{cases}; add {AXES}, or lists in a summary.yml")
    by_shape = {config.input_size: config for config in configs}
    shape = configs[0].input_size
    points = [
        SweepPoint(size, axis.kind.units(shape, size), config, request.setting_of(config))
        for size in axis.sizes
        for config in [by_shape[axis.kind.changed(shape, size)]]
    ]
    same = WantedModel.of(configs[0])
    name = configs[0].config_name if same is None else _name(replace(same, input_size=shape), axis.kind)
    return Sweep(name, axis.kind, tuple(points))


def _without_config(request: Request, wanted: WantedModel) -> WantedModel:
    """Return a model with its input size, which a config or the source of the model may give.

    Raises:
        UserError: it is the name of a config that has keys of its own.
    """
    if wanted.input_size or _is_file(wanted):
        return wanted
    config = config_of(request, wanted)
    same = WantedModel.of(config)
    if same is None:
        remedy = "write the sizes as a list there (input_size or batch)"
        raise UserError(f"{config.path}: it has keys that no option of a sweep gives; {remedy}")
    return same


def _is_file(wanted: WantedModel) -> bool:
    return ModelName.of(wanted.model_name).is_file


def _of_size(wanted: WantedModel, kind: AxisKind, size: int) -> WantedModel:
    """Return the model with one size: of its input, or as an argument of the user's function."""
    if not wanted.input_size:
        arguments = dict(wanted.arguments) | {kind.value: size}
        return replace(wanted, arguments=tuple(sorted(arguments.items())))
    try:
        return replace(wanted, input_size=kind.changed(wanted.input_size, size))
    except ValueError as error:
        raise UserError(f"--{kind.value}: {error}; add --input-size, such as 8x3x224x224") from None


def _name(wanted: WantedModel, kind: AxisKind) -> str:
    """Return the name of a sweep: ``resnet50 32x3xNxN``, with what is not usual: ``bf16``."""
    parts = [wanted.base_name if _is_file(wanted) else wanted.model_name]
    if wanted.input_size:
        parts.append("x".join(_pattern(wanted.input_size, kind)))
    parts += [value for value in (wanted.precision, wanted.memory_format) if value not in (TORCH_DEFAULT, CONTIGUOUS)]
    parts += [f"{name}={value}" for name, value in wanted.arguments]
    return " ".join(parts)


def _pattern(input_size: Sequence[int], kind: AxisKind) -> list[str]:
    """Return the numbers of an input size as texts, with N for the one that varies."""
    texts = list(map(str, input_size))
    with suppress(ValueError):
        one, other = kind.changed(input_size, 1), kind.changed(input_size, 2)
        texts = ["N" if first != second else text for first, second, text in zip(one, other, texts, strict=True)]
    return texts
