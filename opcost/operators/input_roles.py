"""Roles of an operator's inputs that decide which values are valid and whether values affect the cost."""

from __future__ import annotations

from collections.abc import Iterator

from opcost.operators.tuples import ELLIPSIS, Constant, OperatorTuple, PlainValue, TensorSpec, tensor_specs

INDEX_FUNCTIONS = frozenset({"__getitem__", "__setitem__"})
"""Functions whose second argument is an index. In an index, a tuple and a list have different meanings."""

GROUPED_PRODUCT = "_grouped_mm"
"""The product of matrices in groups, whose third argument has the index at which each group ends."""

USUAL_IMAGE_SIDE = 800.0
"""Pixels: the size to which torchvision's detectors scale images."""

WRITE_ONLY = frozenset({"copy_", "fill_", "zero_", "normal_", "uniform_", "bernoulli_", "random_"})
"""In-place functions that do not read the tensor that they write."""

SMALL_RATIO = 0.01
"""The values of an input do not affect the cost if it has at most this share of the largest input's elements."""

MULTIPLYING_AND_ADDING = frozenset(
    "Conv1d Conv2d Conv3d Linear conv1d conv2d conv3d linear matmul mm bmm addmm BatchNorm1d BatchNorm2d BatchNorm3d "
    "batch_norm LayerNorm layer_norm add add_".split()
)
"""Conv2d, Linear, BatchNorm2d, LayerNorm and add were measured. The others run the same kernels or, with more
dimensions, the same multiply-adds, which have no separate path for large values."""

COMPARING = frozenset("ReLU relu relu_ MaxPool1d MaxPool2d MaxPool3d max_pool1d max_pool2d max_pool3d".split())
"""ReLU and MaxPool2d were measured."""

COPYING = frozenset("Identity Dropout dropout Flatten flatten cat contiguous clone reshape roll".split())
"""These operators copy values or do nothing (dropouts in eval mode)."""

GELU_BY_ERROR_FUNCTION = frozenset({"GELU", "gelu"})
"""GELU by the error function was measured; GELU by ``tanh`` was not."""

INDEPENDENT_OF_SPREAD = MULTIPLYING_AND_ADDING | COMPARING | COPYING | GELU_BY_ERROR_FUNCTION
"""Short names of operators whose cost does not depend on the spread of their inputs: at 16 and 64 times the spread of
normal values, times on an H200 changed by at most 0.8 %, energies by at most 1.4 % (``docs/log/values.md``)."""


def shows_spread(operator: OperatorTuple) -> bool:
    """Return whether the spread of an operator's inputs may affect its cost. It may, unless measured otherwise."""
    by_tanh = ("approximate", "tanh") in (*operator.parameters, *operator.keyword_inputs)
    return operator.short_name not in INDEPENDENT_OF_SPREAD or by_tanh


def shown_inputs(operator: OperatorTuple) -> tuple[bool, ...]:
    """Return, for each of the operator's ``floating_inputs``, whether its values affect the cost.

    Values of small inputs and of inputs that are only written do not. Boxes are always drawn as boxes.
    """
    specs = operator.floating_inputs
    hidden = {identity for identity, _ in box_sides(operator)} | _written(operator)
    smallest = SMALL_RATIO * max((spec.elements for spec in specs), default=0)
    return tuple(spec.elements > smallest and spec.identity not in hidden for spec in specs)


def _written(operator: OperatorTuple) -> set[int]:
    """Return the identities of tensors whose values the operator does not read."""
    first = operator.inputs[:1] if operator.short_name in WRITE_ONLY else ()
    outs = [value for name, value in operator.keyword_inputs if name == "out"]
    return {spec.identity for spec in tensor_specs([*first, *outs])}


def box_sides(operator: OperatorTuple) -> Iterator[tuple[int, float]]:
    """Yield the identity of each tensor whose rows are boxes in an image, with the image's side in pixels."""
    if operator.short_name == "nms":
        yield tensor_specs(operator.inputs[:1])[0].identity, USUAL_IMAGE_SIDE
    elif operator.short_name == "roi_align":
        (scale,) = [value for value in operator.inputs[2:] if isinstance(value, float)] or [1.0]
        side = tensor_specs(operator.inputs[:1])[0].shape[-1] / scale
        yield tensor_specs(operator.inputs[1:2])[0].identity, side
    elif operator.short_name == "MultiScaleRoIAlign":
        _, boxes, image_sizes = operator.inputs
        side = min(size for image in _tuple(image_sizes) for size in _tuple(image) if isinstance(size, int))
        yield from ((spec.identity, side) for spec in tensor_specs([boxes]))


def group_ends(operator: OperatorTuple) -> Iterator[tuple[int, int]]:
    """Yield the identity of each tensor with the ends of groups (experts), and the last end.

    Groups are parts of the rows of the first matrix, of the columns of the second, or of the dimension that both share.
    """
    if operator.short_name != GROUPED_PRODUCT:
        return
    ends = [*operator.inputs[2:3], *(value for name, value in operator.keyword_inputs if name == "offs")]
    left, right = (spec.shape for spec in tensor_specs(operator.inputs[:2]))
    shared_or_rows = left[1] if len(left) == len(right) else left[0]
    last = right[-1] if len(left) > len(right) else shared_or_rows
    yield from ((spec.identity, last) for spec in tensor_specs(ends))


def integer_bounds(operator: OperatorTuple) -> Iterator[tuple[int, int]]:
    """Yield the identity of each integer tensor of indices or token ids, with the bound that its values are below."""
    rows = dict(operator.parameters).get("num_embeddings")
    specs = tensor_specs(operator.inputs)
    if isinstance(rows, int):
        yield from ((spec.identity, rows) for spec in specs)
    elif operator.short_name in INDEX_FUNCTIONS:
        index = operator.inputs[1]
        yield from _index_bounds(specs[0].shape, _tuple(index))


def _tuple(value: PlainValue) -> tuple[PlainValue, ...]:
    return value if isinstance(value, tuple) else (value,)


def _index_bounds(shape: tuple[int, ...], index: tuple[PlainValue, ...]) -> Iterator[tuple[int, int]]:
    dimension = 0
    for position, item in enumerate(index):
        if item == Constant(ELLIPSIS):
            dimension = len(shape) - sum(map(_indexed_dimensions, index[position + 1 :]))
            continue
        if isinstance(item, TensorSpec) and item.dtype != "bool":
            yield item.identity, shape[dimension]
        dimension += _indexed_dimensions(item)


def _indexed_dimensions(item: PlainValue) -> int:
    """Return how many dimensions an item of an index takes up: none for None, all of a boolean mask's."""
    if isinstance(item, TensorSpec) and item.dtype == "bool":
        return len(item.shape)
    return 0 if item is None else 1
