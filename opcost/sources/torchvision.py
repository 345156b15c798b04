"""torchvision as a source of models (``port.ModelSource``)."""

from __future__ import annotations

import inspect
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torchvision.models import get_model_builder, get_model_weights, list_models
from torchvision.models._api import WeightsEnum

from opcost.errors import CannotBuildError, UnknownModelError, UserError, suggestion
from opcost.operators.tuples import META, TORCHVISION_MODELS, OperatorTuple, PlainValue, TensorSpec, tensor_specs
from opcost.sources.arguments import arguments_of, reserved_mistakes, seeded, size_mistakes
from opcost.sources.port import ConfiguredModel, ListedModel, PublishedFacts
from opcost.torch_backend.inputs import model_inputs
from opcost.torch_backend.ready_model import ReadyModel, stored_like
from opcost.torch_backend.workload import one_line

SLOW_INITIALISATION = frozenset({"googlenet", "inception_v3"})
"""Models that draw random weights from a truncated normal, which takes minutes, unless ``init_weights`` is False."""

INITIALISERS = frozenset({"normal_", "uniform_", "fill_", "zero_", "erfinv_", "mul_", "add_", "clamp_"})
"""In-place methods that initialise a tensor. They take a third of the time to build a model on the meta device."""

TASKS = ("detection", "optical_flow", "quantization", "segmentation", "video")
"""Packages of ``torchvision.models`` by task; all other models are classifiers."""

BATCH_SIZES = {"classification": 32, "segmentation": 32, "video": 8, "detection": 2, "optical_flow": 2}
"""The batch size of a generated config, by task. Quantized models have none."""

VIDEO_FRAMES = 16
"""The length of the clips that torchvision's video models were trained on, and that their operations refer to."""

OPTICAL_FLOW_SIZE = (512, 512)
"""The size of frames that torchvision's counts for optical flow models refer to; their weights give no size."""

LOADING = ("weights", "weights_backbone", "pretrained", "pretrained_backbone", "progress")
"""Arguments of builders by which torchvision downloads weights."""

USUAL_SIZE = (224, 224)
"""Height and width for models whose weights give none."""

DETECTION_NAMES_SIZE = {"ssd300": 300, "320": 320}
"""Image sizes of detectors by a part of their names; all others scale images to 800."""

DETECTION_SIZE = 800


def names() -> list[str]:
    """Return the names of all models that can be counted; quantized models cannot."""
    return [name for name in _registered() if _task_of(name) in BATCH_SIZES]


def listed(model_name: str) -> ListedModel:
    """Return torchvision's facts with the default weights; a CannotMeasureError for an unknown or quantized model."""
    _must_be_known(model_name)
    task = _task_of(model_name)
    published = next(iter(_weights_of(model_name)), None)
    meta = {} if published is None else published.meta
    multiply_adds = meta.get("_ops")
    # The size of one sample is that of the weights' transforms if they give one.
    if task == "detection":
        side = next((size for part, size in DETECTION_NAMES_SIZE.items() if part in model_name), DETECTION_SIZE)
        size: tuple[int, ...] = (3, side, side)
    elif task == "optical_flow":
        size = (3, *OPTICAL_FLOW_SIZE)
    else:
        frames = [VIDEO_FRAMES] if task == "video" else []
        size = (3, *frames, *(_transformed_size(published) or USUAL_SIZE))
    return ListedModel(
        name=model_name,
        task=task,
        input_size=(BATCH_SIZES[task], *size),
        is_data_dependent=task == "detection",
        published=PublishedFacts(
            None if multiply_adds is None else multiply_adds * 1e9,
            meta.get("num_params"),
            None if published is None else published.name,
            meta.get("_metrics", {}).get("ImageNet-1K", {}).get("acc@1"),
        ),
        is_foreign=not get_model_builder(model_name).__module__.startswith(TORCHVISION_MODELS),
    )


def _must_be_known(model_name: str) -> None:
    known = names()
    if model_name not in known:
        is_quantized = model_name in _registered()
        unknown = f"this version of torchvision has no model {model_name!r}"
        question = suggestion(model_name.removeprefix("quantized_"), known, "")
        raise UnknownModelError("quantized models are not supported" if is_quantized else unknown, question)


def _task_of(model_name: str) -> str:
    """Return the task of a model: ``classification`` or one of ``TASKS``."""
    module = get_model_builder(model_name).__module__
    package = module.removeprefix(TORCHVISION_MODELS).partition(".")[0]
    return package if package in TASKS and module.startswith(TORCHVISION_MODELS) else "classification"


def _registered() -> list[str]:
    """Return the names of all models that torchvision can build; it cannot look up names with upper-case letters."""
    return [name for name in list_models() if name == name.lower()]


def _weights_of(model_name: str) -> list[WeightsEnum]:
    """Return the published weights of a model, the default first; models registered by users have none."""
    try:
        weights = get_model_weights(model_name)
    except ValueError:
        return []
    default = getattr(weights, "DEFAULT", None)
    return sorted(weights, key=lambda one: one is not default)


def mistakes(config: ConfiguredModel) -> list[str]:
    """Return one line for each mistake in a known model's config: unknown weights, other inputs than one tensor."""
    found = []
    members = sorted(weights.name for weights in _weights_of(config.model_name))
    if config.weights_name is not None and config.weights_name.rpartition(".")[2] not in members:
        choice = ", ".join(members) or "none, so write null"
        text = f"{config.model_name} has no weights {config.weights_name!r}; it has: {choice}"
        found.append(f"{config.where('weights_name')}: {text}")
    sizes, key = (config.input_size, "input_size") if config.inputs is None else (config.inputs.shape, "inputs")
    found += size_mistakes(config, listed(config.model_name).input_size, len(sizes), key)
    found += reserved_mistakes(config, LOADING)
    if config.inputs is not None and not config.inputs.is_one_tensor:
        text = f"{config.model_name} takes one tensor; write input_size, or inputs: {{shape: [...]}}"
        found.append(f"{config.where('inputs')}: {text}")
    return found


def build(operator: OperatorTuple, device: str) -> nn.Module:
    """Return the model that a tuple describes, in eval mode, on a device; on ``meta`` without memory and weights.

    Without named weights the model has random weights but the graph of the published weights for the input's size, or
    else of the default ones, which may differ from that of the bare builder: frozen batch norms, auxiliary heads, a
    transformed input, another image size. With ``arguments`` it is the graph of the bare builder. Raises
    CannotMeasureError: it is unknown. CannotBuildError: its builder, which a user may have registered, raises an error
    or returns no module. UserError: its weights cannot be downloaded.
    """
    model_name, weights_name = operator.short_name, dict(operator.parameters).get("weights")
    _must_be_known(model_name)
    given = arguments_of(operator, device)
    with ExitStack() as stack:
        if weights_name is None or device == META:
            stack.enter_context(patch.object(WeightsEnum, "get_state_dict", lambda *_, **__: {}))
            stack.enter_context(patch.object(nn.Module, "load_state_dict", lambda *_, **__: None))
        if device == META:
            stack.enter_context(_UninitialisedOnMeta())
        stack.enter_context(seeded(operator))
        weights: WeightsEnum | None = None
        if weights_name is not None:
            weights = get_model_weights(model_name)[str(weights_name)]
        elif not given:
            (spec,) = tensor_specs(operator.inputs)
            published = _weights_of(model_name)
            fitting = (one for one in published if _transformed_size(one) == spec.shape[-2:])
            weights = next(fitting, next(iter(published), None))
        try:
            model = get_model_builder(model_name)(**{**_arguments(model_name, weights), **given})
        except OSError as error:
            raise UserError(f"the weights {weights_name} of {model_name} cannot be downloaded: {error}") from error
        except RuntimeError:
            raise
        except Exception as error:
            # A builder that a user has registered may raise anything.
            raise CannotBuildError(f"the builder of {model_name} raised {one_line(error)}") from error
    if not isinstance(model, nn.Module):
        raise CannotBuildError(f"the builder of {model_name} returned no torch.nn.Module but {type(model).__name__}")
    return model.eval().to(device)


def ready(operator: OperatorTuple, device: str) -> ReadyModel:
    """Return a model in eval mode with its inputs, on a device; see ``build``."""
    model = stored_like(build(operator, device), operator)
    return ReadyModel(model, *model_inputs(replace(operator, inputs=input_values(operator)), device, {}))


def input_values(operator: OperatorTuple) -> tuple[PlainValue, ...]:
    """Return two frames for optical flow, a list of images for detection, and one tensor for all others."""
    (spec,) = tensor_specs(operator.inputs)
    task = _task_of(operator.short_name)
    if task == "optical_flow":
        return tuple(TensorSpec(spec.shape, spec.dtype, spec.strides, frame) for frame in range(2))
    if task == "detection":
        return (tuple(TensorSpec(spec.shape[1:], spec.dtype, identity=image) for image in range(spec.shape[0])),)
    return (spec,)


def _arguments(model_name: str, weights: WeightsEnum | None) -> dict[str, object]:
    # The default of ``weights_backbone`` would download a pretrained backbone.
    common = {"weights": weights, "weights_backbone": None}
    parameters = inspect.signature(get_model_builder(model_name)).parameters
    arguments: dict[str, object] = {name: value for name, value in common.items() if name in parameters}
    return arguments | ({"init_weights": False} if model_name in SLOW_INITIALISATION else {})


def _transformed_size(weights: WeightsEnum | None) -> tuple[int, int] | None:
    """Return the height and width of images after the weights' transforms, None if these give none."""
    transforms: Any = None if weights is None else weights.transforms()
    size = getattr(transforms, "crop_size", None) or getattr(transforms, "resize_size", None)
    return None if size is None else (size[0], size[-1])


class _UninitialisedOnMeta(TorchFunctionMode):
    """Creates uninitialised tensors, from which weights are made, on the meta device and skips their initialisation.

    All others stay on the CPU, because some constructors read values that they have calculated (RegNet's widths).
    """

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function is torch.empty and kwargs.get("device") is None:
            kwargs = {**kwargs, "device": META}
        elif getattr(function, "__name__", "") in INITIALISERS:
            target = next(iter((*args, *kwargs.values())))
            if target.is_meta:
                return target
        return function(*args, **kwargs)
