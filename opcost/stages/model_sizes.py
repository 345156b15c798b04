"""The sizes of whole models: as counted, else as published."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from opcost.errors import CannotMeasureError, UserError
from opcost.operators.tuples import TORCHVISION_MODELS
from opcost.prediction.durations import Size
from opcost.running.request import COUNTS, model_tuple
from opcost.sources.registry import ListedModel, published_models, source_of
from opcost.storage.configs import ModelConfig

FLOP_PER_BYTE = 36
"""The FLOPs of 52 counted models over their bytes (EfficientNet-B0: 4, ResNet-50: 25, ViT-B/16: 150)."""


def size_of(config: ModelConfig, shipped: Mapping[str, Size]) -> Size | None:
    """Return the size of a model as counted, else as published by its source; None if unknown.

    ``shipped`` are sizes in the database, by the key of the model's tuple.
    """
    model = model_tuple(config)
    try:
        counts = COUNTS.read(config)
        return Size(counts.total_flop, counts.total_memory_bytes, counts.parameters)
    except UserError:
        known = shipped.get(model.key)
    # Sources other than torchvision publish no figures.
    if known is not None or not model.operator.startswith(TORCHVISION_MODELS):
        return known
    listed: ListedModel | None
    try:
        listed = source_of(model).listed(model.short_name)
    except ModuleNotFoundError:
        # torch need not be installed where nothing is measured.
        listed = published_models().get(model.short_name)
    except CannotMeasureError:
        return None
    return None if listed is None else published_size(listed, config.input_size)


def published_size(listed: ListedModel, input_size: Sequence[int]) -> Size | None:
    """Return the size of a model by its published facts, scaled to its input; None if unknown."""
    facts = listed.published
    if facts.multiply_adds is None or not input_size:
        return None
    samples = math.prod(input_size) / math.prod(listed.input_size[1:])
    flop = round(2 * facts.multiply_adds * samples)
    return Size(flop, flop // FLOP_PER_BYTE, facts.parameters or 0)
