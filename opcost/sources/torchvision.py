"""A source of models (``ports.ModelSource``): torchvision."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
import torchvision
from torch import nn
from torch.overrides import TorchFunctionMode
from torchvision.models import get_model_builder, get_model_weights, list_models
from torchvision.models._api import WeightsEnum

from opcost.errors import CannotMeasureError, UserError
from opcost.operators.tuples import (
    META,
    TORCHVISION_MODELS,
    OperatorTuple,
    PlainValue,
    TensorSpec,
    seed_of,
    tensor_specs,
)
from opcost.sources.ports import ConfiguredModel, ListedModel, PublishedFacts, suggestion

SLOW_INITIALISATION = frozenset({"googlenet", "inception_v3"})
"""These draw random weights from a truncated normal, which takes minutes, unless ``init_weights`` is False."""

INITIALISERS = frozenset({"normal_", "uniform_", "fill_", "zero_", "erfinv_", "mul_", "add_", "clamp_"})
"""Methods that give a tensor its first values in place: a third of the time to build a model without memory."""

TASKS = ("detection", "optical_flow", "quantization", "segmentation", "video")
"""Packages of ``torchvision.models`` that hold the models of a task; the others are classifiers."""

BATCH_SIZES = {"classification": 32, "segmentation": 32, "video": 8, "detection": 2, "optical_flow": 2}
"""The batch of a config that is made for a model. Quantized models, which are not listed here, get none."""

VIDEO_FRAMES = 16
"""The length of the clips that torchvision's video models were trained on and their operations counted for."""

OPTICAL_FLOW_SIZE = (512, 512)
"""Frames for which torchvision counted the operations of its optical flow models; their weights state no size."""

USUAL_SIZE = (224, 224)
"""Height and width for models whose weights state none."""

DETECTION_NAMES_SIZE = {"ssd300": 300, "320": 320}
"""Parts of the names of detectors that work on images of that size; the others scale images to 800."""

DETECTION_SIZE = 800


def library() -> str:
    """Return the library's name and version."""
    return f"torchvision {torchvision.__version__}"


def names() -> list[str]:
    """Return the names of all models that can be counted: not those of quantized ones."""
    return [name for name in _registered() if _task_of(name) in BATCH_SIZES]


def listed(model_name: str) -> ListedModel:
    """Return what torchvision states of a model with its default weights.

    Raises:
        CannotMeasureError: this version of torchvision has no such model, or only a quantized one.
    """
    if model_name not in names():
        raise CannotMeasureError(f"{model_name} is no model of this version of torchvision")
    task = _task_of(model_name)
    published = next(iter(_weights_of(model_name)), None)
    meta = {} if published is None else published.meta
    multiply_adds = meta.get("_ops")
    return ListedModel(
        name=model_name,
        task=task,
        input_size=(BATCH_SIZES[task], *_sample_size(model_name, task, published)),
        is_data_dependent=task == "detection",
        published=PublishedFacts(None if multiply_adds is None else multiply_adds * 1e9, meta.get("num_params")),
    )


def _task_of(model_name: str) -> str:
    """Return what a model is for: ``classification`` or one of ``TASKS``."""
    module = get_model_builder(model_name).__module__
    package = module.removeprefix(TORCHVISION_MODELS).partition(".")[0]
    return package if package in TASKS and module.startswith(TORCHVISION_MODELS) else "classification"


def _registered() -> list[str]:
    """Return the names of all models that torchvision finds: it looks for a registered ``MyModel`` in lower case."""
    return [name for name in list_models() if name == name.lower()]


def _sample_size(model_name: str, task: str, published: WeightsEnum | None) -> tuple[int, ...]:
    """Return the size of one sample: that of the weights' own transforms where they state one."""
    if task == "detection":
        side = next((size for part, size in DETECTION_NAMES_SIZE.items() if part in model_name), DETECTION_SIZE)
        return (3, side, side)
    if task == "optical_flow":
        return (3, *OPTICAL_FLOW_SIZE)
    height, width = _transformed_size(published) or USUAL_SIZE
    return (3, *([VIDEO_FRAMES] if task == "video" else []), height, width)


def _weights_of(model_name: str) -> list[WeightsEnum]:
    """Return the published weights of a model, those by default first; a model that somebody registered has none."""
    try:
        weights = get_model_weights(model_name)
    except ValueError:
        return []
    default = getattr(weights, "DEFAULT", None)
    return sorted(weights, key=lambda one: one is not default)


def mistakes(config: ConfiguredModel) -> list[str]:
    """Return one line for each thing that does not fit torchvision: the model, its weights, its input's dimensions."""
    known = names()
    if config.model_name in known:
        return [*_weights_mistakes(config), *_size_mistakes(config)]
    is_quantized = config.model_name in _registered()
    mistake = "quantized models are not counted" if is_quantized else f"torchvision has no model {config.model_name!r}"
    remedy = suggestion(config.model_name.removeprefix("quantized_"), known, "see torchvision.models.list_models()")
    return [f"{config.where('model_name')}: model_name: {mistake}; {remedy}"]


def _size_mistakes(config: ConfiguredModel) -> list[str]:
    usual = listed(config.model_name).input_size
    given = len(config.input_size)
    if given == len(usual):
        return []
    mistake = f"{config.model_name} takes {len(usual)} numbers such as {list(usual)}, not {given}"
    return [f"{config.where('input_size')}: input_size: {mistake}"]


def _weights_mistakes(config: ConfiguredModel) -> list[str]:
    if config.weights_name is None:
        return []
    members = sorted(weights.name for weights in _weights_of(config.model_name))
    if config.weights_name.rpartition(".")[2] in members:
        return []
    choice = ", ".join(members) or "none, so write null"
    mistake = f"{config.model_name} has no weights {config.weights_name!r}; it has: {choice}"
    return [f"{config.where('weights_name')}: weights_name: {mistake}"]


def build(operator: OperatorTuple, device: str) -> nn.Module:
    """Return the model that a tuple describes, in eval mode, on a device; ``meta`` takes no memory and no weights.

    Without named weights it has random ones, and the graph of the published weights, which may differ from that of the
    bare builder: frozen batch norms, auxiliary heads, a transformed input, another image size.

    Raises:
        CannotMeasureError: this version of torchvision has no such model.
        UserError: its weights cannot be downloaded.
    """
    model_name, parameters = operator.short_name, dict(operator.parameters)
    if model_name not in names():
        raise CannotMeasureError(f"{model_name} is no model of this version of torchvision")
    weights_name = parameters.get("weights")
    with ExitStack() as stack:
        if weights_name is None or device == META:
            stack.enter_context(_without_download())
        if device == META:
            stack.enter_context(_UninitialisedOnMeta())
        stack.enter_context(torch.random.fork_rng(devices=[]))
        torch.manual_seed(seed_of(operator))
        weights = (
            _fitting_weights(operator) if weights_name is None else get_model_weights(model_name)[str(weights_name)]
        )
        try:
            model: nn.Module = get_model_builder(model_name)(**_arguments(model_name, weights))
        except OSError as error:
            raise UserError(f"the weights {weights_name} of {model_name} cannot be downloaded: {error}") from error
    return model.eval().to(device)


def input_values(operator: OperatorTuple) -> tuple[PlainValue, ...]:
    """Return the positional arguments in which a model takes its input: clips and batches as one tensor.

    Optical flow takes two frames, detection a list of images without a batch dimension.
    """
    (spec,) = tensor_specs(operator.inputs)
    task = _task_of(operator.short_name)
    if task == "optical_flow":
        return tuple(TensorSpec(spec.shape, spec.dtype, identity=frame) for frame in range(2))
    if task == "detection":
        return (tuple(TensorSpec(spec.shape[1:], spec.dtype, identity=image) for image in range(spec.shape[0])),)
    return (spec,)


def _arguments(model_name: str, weights: WeightsEnum | None) -> dict[str, object]:
    # The default of ``weights_backbone`` would download a pretrained backbone.
    common = {"weights": weights, "weights_backbone": None}
    parameters = inspect.signature(get_model_builder(model_name)).parameters
    arguments: dict[str, object] = {name: value for name, value in common.items() if name in parameters}
    return arguments | ({"init_weights": False} if model_name in SLOW_INITIALISATION else {})


def _fitting_weights(operator: OperatorTuple) -> WeightsEnum | None:
    """Return the default weights, or others that were made for the input's size, if the default was not."""
    (spec,) = tensor_specs(operator.inputs)
    published = _weights_of(operator.short_name)
    fitting = [weights for weights in published if _transformed_size(weights) == spec.shape[-2:]]
    return next(iter((*fitting, *published)), None)


def _transformed_size(weights: WeightsEnum | None) -> tuple[int, int] | None:
    """Return the height and width to which the weights' transforms bring an image, None where they state none."""
    transforms: Any = None if weights is None else weights.transforms()
    size = getattr(transforms, "crop_size", None) or getattr(transforms, "resize_size", None)
    return None if size is None else (size[0], size[-1])


@contextmanager
def _without_download() -> Iterator[None]:
    """Let builders take a graph's form from weights without fetching them."""
    with (
        patch.object(WeightsEnum, "get_state_dict", lambda *_, **__: {}),
        patch.object(nn.Module, "load_state_dict", lambda *_, **__: None),
    ):
        yield


class _UninitialisedOnMeta(TorchFunctionMode):
    """Puts uninitialised memory, which is what weights are made of, on the meta device, and leaves it so.

    Everything else stays on the CPU: some constructors read what they have calculated (RegNet's widths).
    """

    def __torch_function__(  # type: ignore[no-untyped-def]
        self, function, types, args=(), kwargs=None
    ) -> Any:
        kwargs = kwargs or {}
        if function is torch.empty and kwargs.get("device") is None:
            kwargs = {**kwargs, "device": META}
        elif getattr(function, "__name__", "") in INITIALISERS:
            target = next(iter((*args, *kwargs.values())))
            if target.is_meta:
                return target
        return function(*args, **kwargs)
