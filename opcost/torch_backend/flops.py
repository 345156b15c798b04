"""FLOPs and bytes of a run, counted for each ATen operation that torch dispatches.

FLOPs are those of matrix products, convolutions and attention, a multiply-add counted as two, by torch's formulas
(``torch.utils.flop_counter``) and those added here. Bytes are each distinct input tensor once and each output once, of
every operation that is neither a view nor an allocation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from opcost.operators.counts import OperationWithoutFormula
from opcost.operators.input_roles import WRITE_ONLY
from opcost.torch_backend.meta_device import fused_attention, is_fused_attention

ALLOCATIONS = frozenset(
    {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "resize_", "set_"}
    | {"detach", "detach_", "alias", "as_strided_", "lift_fresh", "_unsafe_view", "_reshape_alias", "unsafe_split"}
    | {"unsafe_chunk", "unsafe_split_with_sizes", "_local_scalar_dense", "is_same_size"}
)
"""Operations that compute nothing although their schema does not declare them as views."""

WITHOUT_PRODUCTS = frozenset(
    # elementwise, but not tagged as pointwise in every version
    "hardswish hardswish_ hardsigmoid hardsigmoid_ hardtanh hardtanh_ leaky_relu leaky_relu_ elu elu_ celu celu_ "
    "threshold threshold_ glu log_sigmoid_forward _prelu_kernel floor_divide floor_divide_ masked_fill masked_fill_ "
    "bernoulli complex polar "
    # normalisation, softmax
    "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training cudnn_batch_norm "
    "miopen_batch_norm native_group_norm native_layer_norm _fused_rms_norm linalg_vector_norm norm "
    "_weight_norm_interface _softmax _log_softmax _safe_softmax logsumexp _logcumsumexp "
    # pooling, interpolation
    "avg_pool2d avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d max_pool2d_with_indices max_pool3d_with_indices "
    "adaptive_max_pool2d adaptive_max_pool3d fractional_max_pool2d fractional_max_pool3d max_unpool2d max_unpool3d "
    "grid_sampler_2d grid_sampler_3d cudnn_grid_sampler upsample_nearest1d upsample_nearest2d "
    "upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d "
    "upsample_linear1d upsample_bilinear2d upsample_bicubic2d upsample_trilinear3d "
    "_upsample_bilinear2d_aa _upsample_bicubic2d_aa roi_align roi_pool ps_roi_align ps_roi_pool "
    # reductions, searches
    "sum mean amax amin aminmax max min any all prod argmax argmin cumsum cumprod cummax cummin _cummax_helper "
    "_cummin_helper var std var_mean std_mean median nanmedian kthvalue mode topk sort nonzero bincount histc "
    "bucketize searchsorted isin _unique _unique2 unique_consecutive unique_dim unique_dim_consecutive multinomial "
    "equal nms _linalg_check_errors _assert_async mse_loss smooth_l1_loss huber_loss nll_loss_forward "
    "nll_loss2d_forward "
    # moving
    "clone copy copy_ _to_copy cat stack repeat repeat_interleave roll flip rot90 constant_pad_nd reflection_pad1d "
    "reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d im2col col2im "
    "pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle index index_select index_put index_put_ "
    "_unsafe_index _index_put_impl_ index_add index_add_ index_copy index_copy_ index_reduce index_reduce_ gather "
    "scatter scatter_ scatter_add scatter_add_ scatter_reduce scatter_reduce_ take put put_ masked_select "
    "masked_scatter masked_scatter_ embedding _embedding_bag _embedding_bag_forward_only tril tril_ triu triu_ "
    "diag_embed slice_scatter select_scatter diagonal_scatter "
    # filling
    "fill fill_ index_fill index_fill_ zero_ zeros ones full eye zeros_like ones_like full_like new_zeros new_ones "
    "new_full scalar_tensor arange linspace logspace tril_indices triu_indices hann_window hamming_window one_hot "
    # random numbers
    "normal_ uniform_ bernoulli_ random_ exponential_ rand randn randint randperm rand_like randn_like randint_like "
    "native_dropout".split()
)
"""Operations that move or combine elements without multiplying matrices, besides those that torch tags as pointwise.

The FLOPs of an operation that is neither listed here nor has a formula are unknown, not 0."""

BACKENDS = {"cpu": "CPU", "cuda": "CUDA"}
"""torch's names of the kernels of a device."""

NAMESPACES = frozenset({"aten", "prims", "torchvision"})
"""The namespaces of the operations in these lists. An operation of the same name in another may do anything."""


@dataclass(frozen=True)
class OperationCost:
    """FLOPs and bytes of one ATen operation, or of several.

    ``flop`` is None if it is unknown; ``without_formula`` are the qualified names of the operations without a formula,
    ordered.
    """

    operation: str
    flop: int | None
    memory_bytes: int
    without_formula: tuple[str, ...] = ()


class CostCounter(TorchDispatchMode):
    """While active, calls ``record`` with the cost of every ATen operation that computes."""

    def __init__(self, record: Callable[[OperationCost], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._record = record

    def __torch_dispatch__(  # type: ignore[no-untyped-def]
        self, func, types, args=(), kwargs=None
    ) -> Any:
        kwargs = kwargs or {}
        if is_fused_attention(func, args, kwargs):
            with self:
                return fused_attention(args, kwargs)
        # In inference mode composite operations (linear, batch_norm, reshape) arrive undecomposed.
        if func._overloadpacket not in flop_registry and is_composite(func, args):
            with autocast_as_called(), self:
                return func._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)
        result = func(*args, **kwargs)
        if not is_free(func):
            self._record(operation_cost(func, args, kwargs, result))
        return result


def operation_cost(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> OperationCost:
    """Return the FLOPs and bytes of one operation, given its arguments and its result."""
    name = func._overloadpacket.__name__
    inputs = tensors_of((args, {key: value for key, value in kwargs.items() if key != "out"}))
    read = inputs[1:] if name in WRITE_ONLY else inputs
    distinct = {id(tensor): tensor for tensor in read}.values()
    outputs = [*tensors_of(result), *_written(func, args, kwargs)]
    memory_bytes = sum(map(tensor_bytes, distinct)) + sum(map(tensor_bytes, outputs))
    if not is_known(func):
        return OperationCost(name, None, memory_bytes, (func._schema.name,))
    return OperationCost(name, _flop(func, args, kwargs, result), memory_bytes)


def _written(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """Return the tensors that an operation of a user writes in place. ATen's return those that they write."""
    if func.namespace in NAMESPACES:
        return []
    given = zip(func._schema.arguments, args, strict=False)
    named = [(argument, kwargs[argument.name]) for argument in func._schema.arguments if argument.name in kwargs]
    return tensors_of([value for argument, value in (*given, *named) if argument.is_write])


def is_composite(func: Any, args: tuple[Any, ...]) -> bool:
    """Return whether an ATen operation consists of others on the device of its arguments.

    Only torch's own kernels count, because some of its decompositions for compilers run other operations (dropout
    clones). Some operations consist of others on one device and are a kernel on another (``_fused_rms_norm``).
    """
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    if not has_kernel(func.name(), "CompositeImplicitAutograd"):
        return False
    devices = {tensor.device.type for tensor in tensors_of(args)}
    return not any(has_kernel(func.name(), BACKENDS[device]) for device in devices & BACKENDS.keys())


@contextmanager
def autocast_as_called() -> Iterator[None]:
    """While active, a dispatch mode runs the parts of a composite operation under autocast if it was called so.

    torch disables autocast while a mode handles an operation, so that the parts would not be cast as in the model.
    """
    with torch._C._RestorePythonTLSSnapshot():  # type: ignore[attr-defined]
        devices = [device for device in BACKENDS if torch.is_autocast_enabled(device)]
    for device in devices:
        torch.set_autocast_enabled(device, True)
    try:
        yield
    finally:
        for device in devices:
            torch.set_autocast_enabled(device, False)


@contextmanager
def unfused() -> Iterator[None]:
    """While active, scripted code runs operation by operation. Kernels that TorchScript fuses pass no dispatcher."""
    with torch.jit.optimized_execution(False):  # type: ignore[attr-defined]
        yield


def is_free(func: Any) -> bool:
    """Return whether an ATen operation only makes a view or allocates memory."""
    if func._overloadpacket.__name__ in ALLOCATIONS or torch.Tag.inplace_view in func.tags:
        return True
    return any(_is_alias(value) for value in func._schema.returns)


def is_known(func: Any) -> bool:
    """Return whether an ATen operation has a formula for its FLOPs, or is known to have none."""
    packet = func._overloadpacket
    if packet in flop_registry or torch.Tag.pointwise in func.tags:
        return True
    return func.namespace in NAMESPACES and packet.__name__ in WITHOUT_PRODUCTS | FORMULAS.keys()


def tensor_bytes(tensor: torch.Tensor) -> int:
    """Return the bytes of a tensor's elements in memory; expanded dimensions (stride 0) count once."""
    if tensor.numel() == 0:
        return 0
    distinct = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        distinct *= size if stride != 0 else 1
    return distinct * tensor.element_size()


def tensors_of(values: Any) -> list[torch.Tensor]:
    """Return all tensors in nested arguments or results, in order."""
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def _flop(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int:
    packet = func._overloadpacket
    formula = FORMULAS.get(packet.__name__) if func.namespace in NAMESPACES else None
    if formula is not None:
        return formula(*args)
    return int(flop_registry[packet](*args, **kwargs, out_val=result)) if packet in flop_registry else 0


def _attention_flop(query: Any, key: Any, value: Any, *_: Any) -> int:
    """FLOPs of scaled dot-product attention: each query head with all positions of a key's head.

    Keys and values may have fewer heads than queries, which torch 2.11 and older refuse to count.
    """
    *heads, width = query.shape
    positions = key.shape[-2]
    return int(2 * math.prod(heads) * positions * (width + value.shape[-1]))


def _vector_flop(matrix: Any, *_: Any) -> int:
    """FLOPs of a product of a matrix or a vector with a vector."""
    return 2 * int(matrix.numel())


def _added_vector_flop(_: Any, matrix: Any, *__: Any) -> int:
    """FLOPs of a product of a matrix with a vector that is added to another."""
    return _vector_flop(matrix)


def _grouped_product_flop(left: Any, right: Any, *_: Any) -> int:
    """FLOPs of products of matrices in groups, such as the experts of a mixture; the groups have all rows or columns.

    Groups are parts of the rows of ``left``, of the columns of ``right``, or of the dimension that both share.
    """
    if left.dim() > right.dim():
        return int(2 * left.shape[-2] * right.numel())
    return int(2 * left.numel() * right.shape[-1])


def _native_attention_flop(query: Any, _: Any, __: Any, width: int, *___: Any) -> int:
    """FLOPs of ``_native_multi_head_attention`` on (batch, length, width) inputs, which all have one shape.

    Four projections of width x width per position, and two products of length x length x width per sample.
    """
    batch, length, _ = query.shape
    projections = 2 * batch * 4 * length * width * width
    return int(projections + 2 * 2 * batch * length * length * width)


def _encoder_layer_flop(source: Any, width: int, *rest: Any) -> int:
    """FLOPs of ``_transformer_encoder_layer_fwd``: self-attention, then two linear layers of width x hidden."""
    hidden_weight = rest[ENCODER_LAYER_HIDDEN_WEIGHT]
    linear = 2 * 2 * (source.numel() // width) * hidden_weight.numel()
    return _native_attention_flop(source, source, source, width) + int(linear)


def _is_alias(value: Any) -> bool:
    return value.alias_info is not None and not value.alias_info.is_write


ENCODER_LAYER_HIDDEN_WEIGHT = 12
"""Index of the first linear layer's weight among the arguments of ``_transformer_encoder_layer_fwd`` after width."""

ATTENTION = tuple(
    f"_scaled_dot_product_{kernel}"
    for kernel in ("flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention")
)

FORMULAS: Mapping[str, Callable[..., int]] = {
    **dict.fromkeys(ATTENTION, _attention_flop),
    "_native_multi_head_attention": _native_attention_flop,
    "_transformer_encoder_layer_fwd": _encoder_layer_flop,
    "_grouped_mm": _grouped_product_flop,
    "mv": _vector_flop,
    "dot": _vector_flop,
    "vdot": _vector_flop,
    "addmv": _added_vector_flop,
}
"""Formulas by positional arguments, for operations without one in ``torch.utils.flop_counter`` that holds for all."""


def total(costs: Iterable[OperationCost]) -> OperationCost:
    """Return the sum of costs; its FLOPs are None if those of one are unknown."""
    items = list(costs)
    return OperationCost(
        operation="total",
        flop=None if any(cost.flop is None for cost in items) else least_flop(items),
        memory_bytes=sum(cost.memory_bytes for cost in items),
        without_formula=tuple(sorted({name for cost in items for name in cost.without_formula})),
    )


def least_flop(costs: Iterable[OperationCost]) -> int:
    """Return the FLOPs of the costs that are known."""
    return sum(cost.flop for cost in costs if cost.flop is not None)


def operations_without_formula(costs: Iterable[OperationCost]) -> tuple[OperationWithoutFormula, ...]:
    """Return the operations without a formula in the costs of single operations, ordered by name."""
    found: dict[str, list[OperationCost]] = {}
    for cost in costs:
        for name in cost.without_formula:
            found.setdefault(name, []).append(cost)
    return tuple(
        OperationWithoutFormula(name, len(those), sum(cost.memory_bytes for cost in those))
        for name, those in sorted(found.items())
    )
