"""Roles of an operator's inputs that decide which values are valid and whether values affect the cost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from opcost.operators.model_inputs import BOUNDARIES, IN_WINDOWS, LENGTHS, POSITIVE_DEFINITE, UNIFORM
from opcost.operators.model_inputs import INTEGERS as RANGE
from opcost.operators.tuples import ELLIPSIS, Constant, OperatorTuple, PlainValue, TensorSpec, tensor_specs
from opcost.operators.values import Role

INDEX_FUNCTIONS = frozenset({"__getitem__", "__setitem__"})
"""Functions whose second argument is an index. In an index, a tuple and a list have different meanings."""

BY_TUPLE = frozenset({"index", "index_put", "index_put_"})
"""Functions whose second argument is a tuple of indices. ``index`` is the operation of ``__getitem__``."""

INTEGERS = ("int64", "int32", "int16", "int8", "uint8")

GROUPED_PRODUCT = "_grouped_mm"
"""The product of matrices in groups, whose third argument has the index at which each group ends."""

USUAL_IMAGE_SIDE = 800.0
"""Pixels: the size to which torchvision's detectors scale images."""

WRITE_ONLY = frozenset(
    "copy_ fill_ zero_ normal_ uniform_ bernoulli_ random_ exponential_ cauchy_ geometric_ log_normal_".split()
)
"""In-place functions that do not read the tensor that they write."""

SETTLES = WRITE_ONLY | {"fill_diagonal_", "index_copy_", "index_fill_", "masked_fill_", "masked_scatter_"}
"""In-place operations that write the same values each time, or random ones."""

ADDS = frozenset({"add_", "sub_", "index_add_", "addmm_", "addmv_", "addbmm_", "baddbmm_"})
"""In-place operations that the same kernel reverses, given the opposite ``alpha``."""

ADDED: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("index_put_", "_index_put_impl_"), ("values",)),
    "put_": ("source",),
    # Operations on lists have no ``alpha`` where they add numbers.
    **dict.fromkeys(("add_", "sub_"), ("scalar", "scalars")),
    **dict.fromkeys(("scatter_", "scatter_add_", "scatter_reduce_"), ("src", "value")),
}
"""In-place operations that the same kernel reverses, given the opposite of the argument of one of these names."""

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
    """Return whether values of each of the ``floating_inputs`` affect the cost; boxes are always drawn as boxes."""
    specs = operator.floating_inputs
    hidden = {identity for identity, _ in box_sides(operator)} | only_written(operator)
    smallest = SMALL_RATIO * max((spec.elements for spec in specs), default=0)
    return tuple(spec.elements > smallest and spec.identity not in hidden for spec in specs)


def only_written(operator: OperatorTuple) -> set[int]:
    """Return the identities of the tensors among an operator's arguments that it does not read."""
    first = operator.inputs[:1] if operator.short_name in WRITE_ONLY else ()
    outs = [value for name, value in operator.keyword_inputs if name == "out"]
    return {spec.identity for spec in tensor_specs([*first, *outs])}


def is_restored(operator: OperatorTuple) -> bool:
    """Return whether a loop of calls writes the input again before each, because the operator changes it."""
    reversed_or_settled = SETTLES | ADDS | ADDED.keys()
    return operator.is_in_place and operator.short_name not in reversed_or_settled


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
    """Yield the identity of each tensor with the ends of groups (experts) of rows or columns, and the last end."""
    if operator.short_name != GROUPED_PRODUCT:
        return
    given = _given(operator, ("input", "mat2", "offs"))
    ends = [given.get("offs")]
    left, right = (spec.shape for spec in tensor_specs([given.get("input"), given.get("mat2", given.get("mat_b"))]))
    shared_or_rows = left[1] if len(left) == len(right) else left[0]
    last = right[-1] if len(left) > len(right) else shared_or_rows
    yield from ((spec.identity, last) for spec in tensor_specs(ends))


def group_starts(operator: OperatorTuple) -> Iterator[tuple[int, int]]:
    """Yield the identity of each tensor with the starts of groups, and the end of all (bags of embeddings)."""
    role = INDEXING.get(operator.operator)
    if role and "offsets" in role.arguments:
        given = _given(operator, role.arguments)
        ids, offsets = given.get("ids"), given.get("offsets")
        if isinstance(ids, TensorSpec) and isinstance(offsets, TensorSpec):
            yield offsets.identity, ids.elements


def _given(operator: OperatorTuple, names: Sequence[str]) -> dict[str, PlainValue]:
    """Return the arguments of a function by these names, in their order; ``NAMES`` has other names for some."""
    by_keyword = {NAMES.get(name, name): value for name, value in operator.keyword_inputs}
    if "ids" in names and "input" in by_keyword:
        by_keyword.setdefault("ids", by_keyword["input"])
    return {**dict(zip(names, operator.inputs, strict=False)), **by_keyword}


def integer_bounds(operator: OperatorTuple) -> Iterator[tuple[int, int]]:
    """Yield the identity of each integer tensor of indices or token ids, with the bound that its values are below."""
    rows = dict(operator.parameters).get("num_embeddings")
    specs = tensor_specs(operator.inputs)
    if isinstance(rows, int):
        yield from ((spec.identity, rows) for spec in specs)
    elif operator.operator in NUMBERED:
        ids, bound = NUMBERED[operator.operator]
        given = _given(operator, (*ids, bound))
        number = given[bound]
        if isinstance(number, int):
            yield from ((spec.identity, number) for spec in tensor_specs([given[ids[-1]]]))
    elif operator.short_name in INDEX_FUNCTIONS and specs:
        index = operator.inputs[1]
        yield from _index_bounds(specs[0].shape, _tuple(index))
    elif operator.short_name in BY_TUPLE:
        index = _given(operator, ("input", "ids")).get("ids", ())
        # Here None is a whole dimension, as a number is one.
        yield from _index_bounds(specs[0].shape, tuple(0 if item is None else item for item in _tuple(index)))
    elif role := INDEXING.get(operator.operator, INDEXING.get(operator.short_name)):
        yield from _bounds_by_role(operator, role)


@dataclass(frozen=True)
class Indexing:
    """A function whose integer tensor ``index`` names places in ``table``, along a dimension, or among all elements.

    ``dimension`` is its number or the argument's name; ``arguments`` are the names of all in order.
    """

    arguments: tuple[str, ...]
    dimension: str | int | None = "dim"
    table: str = "input"
    index: str = "index"


def _rows(*arguments: str) -> Indexing:
    return Indexing(arguments, 0, table="table", index="ids")


LOSSES = frozenset(
    "cross_entropy nll_loss multi_margin_loss multilabel_margin_loss nll_loss_forward nll_loss2d_forward".split()
)
LOSSES_BACKWARD = frozenset(
    f"{name}_backward" for name in ("nll_loss", "nll_loss2d", "multi_margin_loss", "multilabel_margin_loss")
)
LAST_IF_FLAT = LOSSES | LOSSES_BACKWARD
"""Functions on labels of classes, which are the only dimension of a single sample."""

INDEXING = {
    **dict.fromkeys(("index_select", "gather"), Indexing(("input", "dim", "index"))),
    **dict.fromkeys(
        "index_add index_add_ index_copy index_copy_ index_reduce index_reduce_ index_fill index_fill_ scatter "
        "scatter_ scatter_add scatter_add_ scatter_reduce scatter_reduce_".split(),
        Indexing(("input", "dim", "index", "src")),
    ),
    "take_along_dim": Indexing(("input", "ids", "dim"), index="ids"),
    **dict.fromkeys(("take", "put", "put_"), Indexing(("input", "index", "source", "accumulate"), None)),
    **dict.fromkeys(LOSSES, Indexing(("input", "target"), 1, index="target")),
    **dict.fromkeys(LOSSES_BACKWARD, Indexing(("grad_output", "input", "target"), 1, index="target")),
    "embedding": _rows("ids", "table"),
    **dict.fromkeys(("torch.embedding", "torch.ops.aten.embedding"), _rows("table", "ids")),
    "torch.nn.EmbeddingBag": _rows("ids", "offsets"),
    "torch.nn.functional.embedding_bag": _rows("ids", "table", "offsets"),
    "torch.embedding_bag": _rows("table", "ids", "offsets"),
}
"""Functions that index a tensor, by their short names; by their whole names, which come first, where functions of one
short name have other arguments or another order."""

NUMBERED = {"torch.ops.aten.embedding_dense_backward": (("grad_output", "indices"), "num_weights")}
"""Functions that have the number of rows as an argument: the arguments up to the indices, and its name."""

NAMES = {
    "self": "input",
    "indices": "ids",
    "weight": "table",
    "LU": "matrix",
    "LU_data": "matrix",
    "LD": "matrix",
    "LU_pivots": "pivots",
}
"""Other names of arguments, by those in torch."""


def _bounds_by_role(operator: OperatorTuple, role: Indexing) -> Iterator[tuple[int, int]]:
    given = _given(operator, role.arguments)
    table, index = given.get(role.table), given.get(role.index)
    if not isinstance(table, TensorSpec) or not isinstance(index, TensorSpec) or index.dtype not in INTEGERS:
        return
    place = given.get(role.dimension) if isinstance(role.dimension, str) else role.dimension
    if place is None:
        yield index.identity, table.elements
    elif isinstance(place, int):
        # A scalar is indexed as a vector of one element.
        shape = table.shape or (1,)
        place = min(place, len(shape) - 1) if operator.short_name in LAST_IF_FLAT else place
        yield index.identity, shape[place]


SELECTING = frozenset({"where", "masked_fill", "masked_fill_", "scaled_dot_product_attention"})
"""Functions whose cost depends on the values of a mask, but whose outputs have the same sizes whatever they are."""

FEWEST_WITH_PATTERN = 256
"""Elements, and rows of a table, from which indices and masks may have a pattern. With fewer,
random ones may look like another pattern."""


@dataclass(frozen=True)
class PatternedInput:
    """An input whose pattern affects the cost; ``bound`` is that of indices or the last end, 0 for a mask."""

    spec: TensorSpec
    role: Role
    bound: int = 0


def patterned_inputs(operator: OperatorTuple) -> tuple[PatternedInput, ...]:
    """Return the distinct inputs whose patterns affect the cost (``docs/log/values.md``); labels of a loss do not."""
    bounds, ends = dict(integer_bounds(operator)), dict(group_ends(operator))
    # With a condition alone, ``where`` returns places of any number.
    selects = operator.short_name in SELECTING and len(operator.arguments) > 1
    is_loss = operator.short_name in LAST_IF_FLAT
    found = {}
    for spec in tensor_specs(operator.arguments):
        bound, stored = bounds.get(spec.identity, 0), math.prod(stored_sizes(spec))
        if spec.identity in ends:
            found[spec.identity] = PatternedInput(spec, Role.LOADS, ends[spec.identity])
        elif spec.dtype in INTEGERS and min(bound, stored) >= FEWEST_WITH_PATTERN and not is_loss:
            found[spec.identity] = PatternedInput(spec, Role.INDEX, bound)
        elif spec.dtype == "bool" and selects and stored >= FEWEST_WITH_PATTERN:
            found[spec.identity] = PatternedInput(spec, Role.MASK)
    return tuple(found.values())


def stored_sizes(spec: TensorSpec) -> tuple[int, ...]:
    """Return the sizes of a tensor, 1 for each expanded dimension."""
    strides = spec.strides or (1,) * len(spec.shape)
    return tuple(size if stride else min(size, 1) for size, stride in zip(spec.shape, strides, strict=True))


UNIT_INTERVAL: PlainValue = (UNIFORM, 0.0, 1.0)

DESCRIBED: Mapping[str, tuple[tuple[str, ...], Mapping[str, PlainValue]]] = {
    "bernoulli": (("input",), {"input": UNIT_INTERVAL}),
    "multinomial": (("input",), {"input": UNIT_INTERVAL}),
    "binary_cross_entropy": (("input", "target"), {"input": UNIT_INTERVAL, "target": UNIT_INTERVAL}),
    "gaussian_nll_loss": (("input", "target", "var"), {"var": UNIT_INTERVAL}),
    "normal": (("mean", "std"), {"std": UNIT_INTERVAL}),
    "quantize_per_tensor": (("input", "scale"), {"scale": UNIT_INTERVAL}),
    "quantize_per_channel": (("input", "scales"), {"scales": UNIT_INTERVAL}),
    "cholesky": (("input",), {"input": POSITIVE_DEFINITE, "A": POSITIVE_DEFINITE}),
    "multilabel_margin_loss_backward": (
        ("grad_output", "input", "target", "reduction", "is_target"),
        {"is_target": (RANGE, 0, 2)},
    ),
    **dict.fromkeys(("_foreach_sqrt", "_foreach_sqrt_"), (("input",), {"input": UNIT_INTERVAL})),
    **dict.fromkeys(
        ("_fused_adam_", "_fused_adamw_"),
        (
            ("input", "grads", "means", "squares", "largest_squares", "steps"),
            {"squares": UNIT_INTERVAL, "largest_squares": UNIT_INTERVAL, "steps": (UNIFORM, 1.0, 2.0)},
        ),
    ),
}
"""Functions that need certain values: their arguments in order, and the values of some: probabilities, variances,
squares, numbers of steps, and matrices that have a Cholesky factor."""

POOLING = {
    **dict.fromkeys(
        (f"max_pool{sides}d_with_indices_backward" for sides in (2, 3)),
        ("grad_output", "input", "kernel", "stride", "padding", "dilation", "ceil_mode", "ids"),
    ),
    **dict.fromkeys((f"adaptive_max_pool{sides}d_backward" for sides in (2, 3)), ("grad_output", "input", "ids")),
    **dict.fromkeys(
        (f"fractional_max_pool{sides}d_backward" for sides in (2, 3)),
        ("grad_output", "input", "kernel", "output_size", "ids"),
    ),
}
"""Functions with the places of what was pooled, with their arguments in order."""

PIVOTED = {
    **dict.fromkeys(("torch.lu_unpack", "torch.linalg.lu_solve", "torch.linalg.ldl_solve"), ("matrix", "pivots")),
    **dict.fromkeys(("torch.lu_solve", "torch.Tensor.lu_solve"), ("sides", "matrix", "pivots")),
}
"""Functions of factorised matrices, with their arguments in order. Pivots are the rows that were swapped, from 1."""


def described_values(operator: OperatorTuple) -> Iterator[tuple[int, PlainValue]]:
    """Yield the identity and the values of each tensor that a function restricts (as in ``model_inputs``)."""
    names, values = DESCRIBED.get(operator.short_name, ((), {}))
    given = _given(operator, names)
    for name in values:
        yield from ((spec.identity, values[name]) for spec in tensor_specs([given.get(name)]))
    if operator.operator in PIVOTED:
        given = _given(operator, PIVOTED[operator.operator])
        matrix, pivots = given.get("matrix"), given.get("pivots")
        if isinstance(matrix, TensorSpec) and isinstance(pivots, TensorSpec):
            yield pivots.identity, (RANGE, 1, matrix.shape[-2] + 1)
    if operator.short_name in POOLING:
        yield from _places_of_windows(
            _given(operator, POOLING[operator.short_name]), 3 if "3d" in operator.short_name else 2
        )
    if operator.short_name == "segment_reduce":
        given = _given(operator, ("data",))
        data = given.get("data")
        for name, kind in SEGMENTING.items():
            segments = given.get(name)
            if isinstance(data, TensorSpec) and isinstance(segments, TensorSpec):
                yield segments.identity, (kind, 0, data.shape[len(segments.shape) - 1])
    if operator.operator.startswith(QUANTISED):
        scales = (spec for spec in operator.floating_inputs if not spec.shape)
        yield from ((spec.identity, UNIT_INTERVAL) for spec in scales)


def _places_of_windows(given: Mapping[str, PlainValue], sides: int) -> Iterator[tuple[int, PlainValue]]:
    """Yield the identity and the values of the places of a pooling: the middle of each window, the start of others."""
    table, index = given.get("input"), given.get("ids")
    if not isinstance(table, TensorSpec) or not isinstance(index, TensorSpec):
        return
    sizes, pooled = table.shape[-sides:], index.shape[-sides:]
    windows: tuple[PlainValue, ...] = tuple((size, parts, 0) for size, parts in zip(sizes, pooled, strict=True))
    if "stride" in given:
        kernel, stride, padding, dilation = (
            _whole_numbers(given.get(name, ()), sides) for name in ("kernel", "stride", "padding", "dilation")
        )
        forms = zip(kernel, stride or kernel, padding, dilation, strict=True)
        windows = tuple((step, 1, size // 2 * apart - side) for size, step, side, apart in forms)
    yield index.identity, (IN_WINDOWS, windows, sizes)


def _whole_numbers(value: PlainValue, sides: int) -> tuple[int, ...]:
    """Return the numbers of all sides; one number is that of each."""
    numbers = tuple(one for one in _tuple(value) if isinstance(one, int))
    return numbers * sides if len(numbers) == 1 else numbers


ATTENTION_BACKWARD = frozenset(
    f"torch.ops.aten._scaled_dot_product_{kind}_attention{device}_backward"
    for kind, device in (("efficient", ""), ("flash", ""), ("flash", "_for_cpu"), ("cudnn", ""))
)
"""Operations whose inputs are in part what their forwards save: no values that are drawn are such sums and seeds."""

QUANTISED = "torch.ops.quantized."
"""The beginning of the names of quantised operations, whose scalars are the scales of their results."""

SEGMENTING: Mapping[str, str] = {"lengths": LENGTHS, "offsets": BOUNDARIES}
"""The arguments of ``segment_reduce`` that say where segments are, with their kinds of values."""


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
    return 0 if item is None or isinstance(item, bool) else 1
