"""transformers as a source of models (``port.ModelSource``). Architectures only: nothing is downloaded.

A model is named by its class: ``transformers:BertModel``. Its size is that of the class's default configuration,
changed by ``arguments``.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
import transformers
from transformers.models.auto import modeling_auto

from opcost.errors import CannotBuildError, CannotMeasureError, UnknownModelError, suggestion
from opcost.operators.attention import IMPLEMENTATION
from opcost.operators.generation import DECODE_CONTEXT, PREFILL, is_generating
from opcost.operators.model_inputs import INTEGERS
from opcost.operators.tuples import (
    OperatorTuple,
    PlainValue,
    Structure,
    TensorSpec,
    channels_last_strides,
    storage_form,
)
from opcost.sources.arguments import arguments_of, building, seeded, size_mistakes, weights_file, weights_mistakes
from opcost.sources.attention_forms import register_forms
from opcost.sources.port import ConfiguredModel, ListedModel
from opcost.torch_backend.inputs import model_inputs
from opcost.torch_backend.ready_model import ReadyModel, store_weights
from opcost.torch_backend.workload import one_line

TEXT, IMAGE, SOUND = "input_ids", "pixel_values", "input_features"
DECODER_TEXT = "decoder_input_ids"

USUAL_LENGTH = 128
USUAL_IMAGE = (3, 224, 224)
USUAL_SIZES: dict[str, tuple[int, ...]] = {TEXT: (USUAL_LENGTH,), IMAGE: USUAL_IMAGE, SOUND: (80, 3000)}
"""The sizes of one sample: the length of a text; channels, height and width of an image, if the configuration has none;
mel bands and frames of half a minute of speech."""

BATCH_SIZE = 1

WINDOW_LENGTH = "cumulative_length_int"
"""By this number a layer with a window of tokens chooses its path."""

READ_BY_MODELS = frozenset({"head_dim", IMPLEMENTATION})
"""Attributes that models read of configurations that do not declare them."""

POSITIONS = "max_position_embeddings"

ONLY_LAST = "logits_to_keep"
"""The argument of ``forward`` with the number of positions, from the last one, whose logits are computed."""


@functools.lru_cache
def names() -> list[str]:
    """Return the names of all classes of models that the library lists for a task."""
    mappings = (getattr(modeling_auto, name) for name in dir(modeling_auto) if name.endswith("MAPPING_NAMES"))
    values = (value for mapping in mappings for value in mapping.values())
    return sorted({name for value in values for name in ([value] if isinstance(value, str) else value or ()) if name})


def listed(model_name: str) -> ListedModel:
    """Return the facts of a class; a CannotMeasureError if it is unknown, or needs a further package."""
    cls = _class_of(model_name)
    size = USUAL_SIZES.get(cls.main_input_name, ())
    configuration = _usual_configuration(cls)
    side = getattr(configuration, "image_size", None)
    if cls.main_input_name == IMAGE and isinstance(side, int):
        size = (USUAL_IMAGE[0], side, side)
    longest = getattr(configuration.get_text_config(), "max_position_embeddings", None)
    if cls.main_input_name == TEXT and isinstance(longest, int) and longest > 0:
        size = (min(USUAL_LENGTH, longest),)
    _, *parameters = inspect.signature(cls.forward).parameters.values()
    required = {one.name for one in parameters if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD}
    is_enough = size and required <= {cls.main_input_name, DECODER_TEXT}
    return ListedModel(model_name, "", (BATCH_SIZE, *size) if is_enough else (), False, is_foreign=True)


def _class_of(model_name: str) -> Any:
    try:
        cls = getattr(transformers, model_name, None)
    except (ImportError, RuntimeError) as error:
        raise CannotMeasureError(f"{model_name} cannot be imported: {one_line(error)}") from error
    if getattr(cls, "is_dummy", False) or "dummy" in getattr(cls, "__module__", ""):
        raise CannotMeasureError(f"{model_name} needs a package that is not installed")
    is_model = isinstance(cls, type) and issubclass(cls, transformers.PreTrainedModel) and cls.config_class is not None
    if not is_model:
        question = suggestion(model_name, names(), "")
        raise UnknownModelError(f"this version of transformers has no model {model_name!r}", question)
    return cls


def _usual_configuration(cls: Any) -> Any:
    with _quiet():
        return cls.config_class()


def mistakes(config: ConfiguredModel) -> list[str]:
    """Return one line for each mistake in a known model's config: missing weights, unknown arguments, another size."""
    cls = _class_of(config.model_name.partition(":")[2])
    found = weights_mistakes(config)
    if is_generating(config.arguments) and not _generates(cls):
        remedy = "name a class with a head for text, such as transformers:LlamaForCausalLM"
        found.append(f"{config.where('model_name')}: {cls.__name__} makes no text behind a prompt; {remedy}")
    found += _context_mistakes(config, cls)
    # transformers ignores unknown arguments silently.
    own = [argument for argument in config.arguments if not is_generating([argument])]
    for text in _unknown(_usual_configuration(cls), own):
        found.append(f"{config.where('arguments')}: {cls.__name__} has no {text}")
    usual, one = USUAL_SIZES.get(cls.main_input_name), cls.main_input_name
    if usual is not None:
        return found + size_mistakes(config, [BATCH_SIZE, *usual], len(config.input_size))
    if config.input_size:
        text = f"{config.model_name} takes {one}; write inputs: {{{one}: {{shape: [...]}}}} instead"
        found.append(f"{config.where('input_size')}: {text}")
    return found


def _generates(cls: Any) -> bool:
    """Return whether a class makes text from text alone: it returns logits of the positions that it is asked for."""
    return cls.main_input_name == TEXT and ONLY_LAST in inspect.signature(cls.forward).parameters


def _context_mistakes(config: ConfiguredModel, cls: Any) -> list[str]:
    """Return a line if a prompt or the context of a decode step has more tokens than the model has positions."""
    arguments = dict(config.arguments)
    length = arguments.get(DECODE_CONTEXT) if not arguments.get(PREFILL) else (config.input_size or (0,))[-1]
    usual = _usual_configuration(cls).get_text_config()
    name = getattr(usual, "attribute_map", {}).get(POSITIONS, POSITIONS)
    positions = arguments.get(name, arguments.get(POSITIONS, getattr(usual, POSITIONS, None)))
    if not isinstance(length, int) or not isinstance(positions, int) or length <= positions:
        return []
    place = config.where("context" if arguments.get(DECODE_CONTEXT) else "input_size")
    return [f"{place}: {length} tokens, but {cls.__name__} has {name}: {positions}; give less, or more positions"]


def _unknown(usual: Any, arguments: Iterable[tuple[str, PlainValue]], prefix: str = "") -> Iterator[str]:
    """Yield each argument that a configuration does not have, also in the configurations inside it, and a remedy."""
    names = {*vars(usual), *getattr(usual, "attribute_map", {}), *READ_BY_MODELS}
    known = sorted(name for name in names if not name.startswith("_"))
    for name, value in arguments:
        inner = getattr(usual, name, None)
        if name not in known and (inner is None or callable(inner) or name.startswith("_")):
            close = difflib.get_close_matches(name, known, n=1)
            remedy = f"did you mean {close[0]}?" if close else f"{type(usual).__name__} has {', '.join(known)}"
            yield f"{prefix}{name}; {remedy}"
        elif isinstance(value, Structure) and isinstance(inner, transformers.PreTrainedConfig):
            yield from _unknown(inner, value.parts, f"{prefix}{name}.")


def ready(operator: OperatorTuple, device: str) -> ReadyModel:
    """Return a model in eval mode with its inputs; a CannotBuildError if arguments or the input do not fit."""
    cls = _class_of(operator.short_name)
    dtype, is_channels_last = storage_form(operator)
    weights = weights_file(operator)
    arguments = arguments_of(operator, device)
    if IMPLEMENTATION in arguments:
        register_forms()
    context, is_prefill = arguments.pop(DECODE_CONTEXT, None), arguments.pop(PREFILL, False)
    with building(operator.short_name), _quiet(), seeded(operator):
        if weights is None:
            configuration = cls.config_class(**arguments)
            with torch.device(device):
                model = cls._from_config(configuration, dtype=getattr(torch, dtype))
        else:
            model = cls.from_pretrained(weights, dtype=getattr(torch, dtype), local_files_only=True, **arguments)
    model = model.eval().to(device)
    if is_channels_last:
        # In float32 the dtypes stay: a model may keep some weights in another.
        model = store_weights(model, torch.float32, is_channels_last)
    described, values = with_named_inputs(operator, model)
    ready = ReadyModel(model, *model_inputs(described, device, values))
    if is_prefill:
        return replace(ready, keyword_inputs={**ready.keyword_inputs, ONLY_LAST: 1})
    if context is None:
        return ready
    with building(operator.short_name), seeded(operator):
        return _with_cache(ready, context)


def _with_cache(ready: ReadyModel, context: int) -> ReadyModel:
    """Return a model with a full cache of a fixed size among its inputs, of which a run writes the last position.

    Its keys and values are normal numbers. The cache counts its own tokens: a run puts that back as it does any state.
    """
    parameters = inspect.signature(type(ready.model).forward).parameters
    name = next(one for one in ("cache", "past_key_values") if one in parameters)
    configuration: Any = ready.model.config
    cache: Any = transformers.StaticCache(config=configuration, max_cache_len=context)
    prepared = replace(ready, keyword_inputs={**ready.keyword_inputs, name: cache})
    with torch.no_grad():
        # The first run makes the layers' memory, of sizes that only the model knows.
        prepared.model(*prepared.inputs, **prepared.keyword_inputs)
        for layer in cache.layers:
            if not isinstance(getattr(layer, "keys", None), torch.Tensor):
                text = f"its {type(layer).__name__} has no keys and values, so that no decode step is made for it"
                raise CannotBuildError(f"{type(ready.model).__name__}: {text}")
            layer.keys.normal_()
            layer.values.normal_()
            layer.cumulative_length.fill_(context - 1)
            if hasattr(layer, WINDOW_LENGTH):
                setattr(layer, WINDOW_LENGTH, context - 1)
    return prepared


def with_named_inputs(operator: OperatorTuple, model: Any) -> tuple[OperatorTuple, dict[int, PlainValue]]:
    """Return a model's tuple with its one input under its name and the others that it needs, and values of token ids.

    A model with an encoder and a decoder of texts gets a decoder's input of the same length, one of speech of the usual
    length. A model that compares texts with images gets images of its configuration's size. Inputs that a config
    describes by keyword stay as they are. Raises CannotBuildError: the model takes token ids, and its configuration
    does not say how many there are.
    """
    spec = operator.inputs[0] if len(operator.inputs) == 1 else None
    if operator.keyword_inputs or not isinstance(spec, TensorSpec):
        return operator, {}
    named: list[tuple[str, PlainValue]] = [(model.main_input_name, spec)]
    values: dict[int, PlainValue] = {}
    configuration = model.config
    known = inspect.signature(type(model).forward).parameters
    has_decoder = bool(getattr(configuration, "is_encoder_decoder", False))
    if model.main_input_name == TEXT:
        values[0] = _token_ids(operator, configuration)
        if has_decoder:
            named.append((DECODER_TEXT, replace(spec, identity=1)))
            values[1] = values[0]
        elif "return_loss" in known and IMAGE in known:
            # Models that compare texts with images, as CLIP, need both.
            of_images = getattr(configuration, "vision_config", None)
            side = getattr(of_images, "image_size", USUAL_IMAGE[1])
            sides = tuple(side) if isinstance(side, (list, tuple)) else (side, side)
            shape = (spec.shape[0], getattr(of_images, "num_channels", USUAL_IMAGE[0]), *sides)
            dtype, is_channels_last = storage_form(operator)
            strides = channels_last_strides(shape) if is_channels_last else None
            named.append((IMAGE, TensorSpec(shape, dtype, strides, identity=1)))
    elif model.main_input_name == SOUND and has_decoder and DECODER_TEXT in known:
        named.append((DECODER_TEXT, TensorSpec((spec.shape[0], USUAL_LENGTH), "int64", identity=1)))
        values[1] = _token_ids(operator, configuration)
    return replace(operator, inputs=(), keyword_inputs=tuple(named)), values


def _token_ids(operator: OperatorTuple, configuration: Any) -> PlainValue:
    vocabulary = getattr(configuration.get_text_config(), "vocab_size", None)
    if vocabulary is None:
        remedy = f"write inputs: {{{TEXT}: {{shape: [...], dtype: int64}}}}"
        raise CannotBuildError(f"{operator.short_name} has no vocab_size; {remedy}")
    return INTEGERS, 0, int(vocabulary)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the library's advice on configurations, which is for training and generation."""
    logger = logging.getLogger("transformers")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
