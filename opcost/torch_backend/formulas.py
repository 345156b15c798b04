"""FLOPs and touched elements of ATen operations, by their names.

FLOPs are those of operations that multiply matrices, or do as much work as such products, besides torch's own formulas;
of operations in ``WITHOUT_PRODUCTS`` they are 0. A multiply-add counts as two. Operations on complex numbers count as
those on real numbers; ``flops`` multiplies by ``COMPLEX_FACTOR``. Fourier transforms and factorisations have the usual
operation counts, whatever the algorithm of a library does: a figure to compare, not the number of instructions.
Sources:

* Fourier transforms: 5 N log2 N for N complex numbers, half for real ones, as in benchFFT (https://fftw.org/speed).
* Factorisations, solutions and inverses: LAPACK Working Note 41, appendix C (Blackford and Dongarra 1999).
* Eigenvalues and singular values: Golub and Van Loan, Matrix Computations, 4th edition, sections 7.5, 8.3 and 8.6.
  These algorithms iterate, so the counts are typical ones.

Bytes are those of whole tensors, except for operations in ``READ``, ``WRITTEN`` and ``ASKED_FOR_FORM``: of a table they
read and write the elements that indices name, and nothing if only the form of a tensor is needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import torch
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

from opcost.operators.input_roles import WRITE_ONLY

Given: TypeAlias = Mapping[str, Any]
"""The arguments of an operation by their names in its schema, defaults included, and its ``RESULT``. Packed weights
are a list of their tensors."""

RESULT = "result"

Formula: TypeAlias = Callable[[Given], float]

COMPLEX_FACTOR = 4
"""A product of complex numbers has four real products and two additions, a sum has two."""

MATRIX_EXPONENTIAL_PRODUCTS = 5
"""Products in the Taylor polynomial of degree 18 that torch evaluates for large matrices
(``aten/src/ATen/native/LinearAlgebra.cpp``). Squarings, which depend on values, are not included."""

EUCLIDEAN_COLUMNS = 2
"""Columns that ``cdist`` appends to each matrix, so that one product gives squared distances."""

LEAST_ROWS_OF_PRODUCT = 26
"""``cdist`` uses a product of matrices from so many rows on (``aten/src/ATen/native/Distance.cpp``)."""


def _shape(tensor: Any) -> tuple[int, ...]:
    return tuple(tensor.shape)


def _numel(tensor: Any) -> int:
    return math.prod(_shape(tensor))


def table_of(weights: Any) -> Any:
    """Return weights, or the first tensor of packed ones."""
    return weights[0] if isinstance(weights, list) else weights


# Products


def _attention(key_widths: int, value_widths: int) -> Formula:
    """FLOPs of attention: each query head with all positions of a key's head, so many products of either width.

    Forward it has the scores and the result; backward the scores again, their gradient, and those of queries, keys and
    values. Keys and values may have fewer heads than queries, which torch 2.11 and older refuse to count.
    """

    def flop(given: Given) -> float:
        *heads, width = _shape(given["query"])
        widths = key_widths * width + value_widths * _shape(given["value"])[-1]
        return 2 * math.prod(heads) * _shape(given["key"])[-2] * widths

    return flop


def _attention_by_position(query_ends: str, key_ends: str) -> Formula:
    """FLOPs of attention of tensors (batch, length, heads, width), or of samples one behind the other.

    torch's formula for one of these operations takes the heads for positions (``torch.utils.flop_counter`` 2.14).
    The arguments are the names of those with the ends of samples among queries and keys, which are None without such.
    """

    def flop(given: Given) -> float:
        *batch, length, heads, width = _shape(given["query"])
        keys, ends = _shape(given["key"])[-3], (given[query_ends], given[key_ends])
        a_pair = 2 * heads * (width + _shape(given["value"])[-1])
        if ends[0] is None:
            return a_pair * math.prod(batch) * length * keys
        if ends[0].is_meta:
            # The lengths of samples are values.
            return math.nan
        with _disable_current_modes():
            lengths = [[end - begin for begin, end in pairwise(one.tolist())] for one in ends]
        return a_pair * sum(map(math.prod, zip(*lengths, strict=True)))

    return flop


def _convolution_backward(given: Given) -> float:
    """FLOPs of the gradients of a convolution's input and weights: those of the convolution for each that is wanted.

    torch's formula multiplies those of the weights by the groups (``torch.utils.flop_counter`` 2.14).
    """
    outputs = given["input"] if given["transposed"] else given["grad_output"]
    return float(2 * _numel(outputs) * math.prod(_shape(given["weight"])[1:]) * sum(given["output_mask"][:2]))


def _product(left: str, right: str | None = None) -> Formula:
    """FLOPs of a product of matrices, or of one with a vector."""
    return lambda given: 2 * _numel(given[left]) * (1 if right is None else _shape(given[right])[-1])


def _affine_grid(given: Given) -> float:
    """FLOPs of the products of each place of a grid, (x, y, 1), with its image's matrix."""
    batch, _, *spatial = given["size"]
    return float(2 * batch * math.prod(spatial) * (len(spatial) + 1) * len(spatial))


def _grouped(given: Given) -> float:
    """FLOPs of products in groups (experts), which share out all rows, columns, or the dimension of both matrices."""
    left, right = given["self"], given["mat2"]
    if left.dim() > right.dim():
        return 2 * _shape(left)[-2] * _numel(right)
    return 2 * _numel(left) * _shape(right)[-1]


def _self_attention(query: str, hidden: str | None = None) -> Formula:
    """FLOPs of four projections of width x width per position, and two products of length x length x width a sample.

    All inputs (batch, length, width) have one shape. An encoder layer has two linear layers of width x ``hidden``, too.
    """

    def flop(given: Given) -> float:
        width, (batch, length, _) = int(given["embed_dim"]), _shape(given[query])
        linear = 0 if hidden is None else 2 * 2 * (_numel(given[query]) // width) * _numel(given[hidden])
        return 2 * batch * 4 * length * width * width + 2 * 2 * batch * length * length * width + linear

    return flop


def _trilinear(given: Given) -> float:
    """FLOPs of a sum over products of three tensors (``Bilinear``): a multiply-add for each element before the sum."""
    shapes: list[list[int]] = []
    for name in ("1", "2", "3"):
        shape = list(_shape(given[f"i{name}"]))
        for place in given[f"expand{name}"]:
            shape.insert(place, 1)
        shapes.append(shape)
    elements: int = math.prod(max(sizes) for sizes in zip(*shapes, strict=True))
    return 2 * elements


def _distances(given: Given) -> float:
    """FLOPs of Euclidean distances by a product of matrices; other distances multiply no matrices."""
    most = max(_shape(given["x1"])[-2], _shape(given["x2"])[-2])
    by_product = given["compute_mode"] == 1 or (given["compute_mode"] in (None, 0) and most >= LEAST_ROWS_OF_PRODUCT)
    return _euclidean(given) if given["p"] == 2.0 and by_product else 0


def _euclidean(given: Given) -> float:
    """FLOPs of squared distances by a product of matrices with appended columns."""
    one, other = given["x1"], given["x2"]
    rows, columns, width = _shape(one)[-2], _shape(other)[-2], _shape(one)[-1]
    batch = math.prod(_broadcast(_shape(one)[:-2], _shape(other)[:-2]))
    return 2 * batch * rows * columns * (width + EUCLIDEAN_COLUMNS)


def _packed_product(rows: str, *weights: str) -> Formula:
    """FLOPs of each row's products with all matrices; packed sequences have another name than other inputs."""

    def flop(given: Given) -> float:
        places = math.prod(_shape(given["data" if "data" in given else rows])[:-1])
        matrices = (one for one in tree_leaves([given[name] for name in weights]) if one.dim() > 1)
        return 2 * places * sum(map(_numel, matrices))

    return flop


def _convolution(places: str, weight: str) -> Formula:
    """FLOPs of a convolution: each place of a tensor with all filters, the output or a transposed one's input."""

    def flop(given: Given) -> float:
        batch, _, *sides = _shape(given[places])
        return 2 * batch * math.prod(sides) * _numel(table_of(given[weight]))

    return flop


def _fourier(factor: float, numbers: str = "self") -> Formula:
    """FLOPs of a Fourier transform of complex numbers, a factor of 5, or of or to real ones."""

    def flop(given: Given) -> float:
        shape = _shape(given[numbers])
        return factor * math.prod(shape) * math.log2(max(1, math.prod(shape[place] for place in given["dim"])))

    return flop


# Factorisations: of each matrix of a batch, by its rows, its columns, and the arguments of the operation


def _each(matrix: str, formula: Callable[[int, int, Given], float]) -> Formula:
    def flop(given: Given) -> float:
        *batch, rows, columns = _shape(given[matrix])
        return math.prod(batch) * formula(rows, columns, given)

    return flop


def _lu(rows: int, columns: int, _: object = None) -> float:
    """FLOPs of an LU factorisation; a QR factorisation has twice as many."""
    small, large = sorted((rows, columns))
    return small**2 * (large - small / 3)


def _orthogonal(rows: int, columns: int, reflections: int) -> float:
    return 4 * rows * columns * reflections - 2 * (rows + columns) * reflections**2 + 4 * reflections**3 / 3


def _singular(rows: int, columns: int, vectors: str) -> float:
    """FLOPs of singular values: of these alone, with as many vectors as values, or with all vectors."""
    small, large = sorted((rows, columns))
    if vectors == "none":
        return 4 * large * small**2 - 4 * small**3 / 3
    if vectors == "all":
        return 4 * large**2 * small + 8 * large * small**2 + 9 * small**3
    return 14 * large * small**2 + 8 * small**3


def _square(matrix: str, cubes: float) -> Formula:
    return _each(matrix, lambda rows, *_: cubes * rows**3)


def _solved(matrix: str, right_sides: str, squares: float, cubes: float = 0.0, may_be_vectors: bool = False) -> Formula:
    """FLOPs of a solution with square matrices (..., n, n): for each number of the right sides so many n, and n^3.

    Right sides are matrices, or vectors in the one operation that takes them.
    """

    def flop(given: Given) -> float:
        *batch, _, size = _shape(given[matrix])
        sides = given[right_sides]
        is_vector = (may_be_vectors and _shape(sides) == _shape(given[matrix])[:-1]) or sides.dim() == 1
        numbers = math.prod(_broadcast(batch, _shape(sides)[: -1 if is_vector else -2]))
        numbers *= _shape(sides)[-1] if is_vector else math.prod(_shape(sides)[-2:])
        return squares * size * numbers + cubes * math.prod(batch) * size**3

    return flop


def _qr_with_columns(rows: int, columns: int, given: Given) -> float:
    made = {"r": 0, "complete": rows, "reduced": min(rows, columns)}[given["mode"]]
    return 2 * _lu(rows, columns) + (_orthogonal(rows, made, min(rows, columns)) if made else 0.0)


def _singular_values(rows: int, columns: int, given: Given) -> float:
    return _singular(rows, columns, "none" if not given["compute_uv"] else "all" if given["full_matrices"] else "thin")


def _least_squares(rows: int, columns: int, given: Given) -> float:
    """FLOPs of a solution by QR: the factorisation, the reflections of the right sides, and a triangular solution."""
    sides = given["b"]
    small, count = min(rows, columns), 1 if sides.dim() < given["self"].dim() else _shape(sides)[-1]
    return 2 * _lu(rows, columns) + count * (4 * max(rows, columns) * small - 2 * small**2) + count * small**2


def _reflected(rows: int, columns: int, given: Given) -> float:
    """FLOPs of a product with a matrix that is stored as reflections (``ormqr``)."""
    reflections = _shape(given["input2"])[-1]
    size, count = (rows, columns) if given["left"] else (columns, rows)
    return count * (4 * size * reflections - 2 * reflections**2)


def _broadcast(one: Sequence[int], other: Sequence[int]) -> list[int]:
    length = max(len(one), len(other))
    both = [[1] * (length - len(shape)) + list(shape) for shape in (one, other)]
    return [max(sizes) for sizes in zip(*both, strict=True)]


def _twice(forward: Formula) -> Formula:
    """FLOPs of the gradients of inputs and of weights, each of so many products as the operation itself."""
    return lambda given: 2 * forward(given)


_ROWS: Sequence[tuple[str, Formula]] = (
    (
        "_scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu "
        "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention",
        _attention(1, 1),
    ),
    ("_scaled_dot_product_flash_attention_for_cpu_backward", _attention(3, 2)),
    ("convolution_backward", _convolution_backward),
    ("_native_multi_head_attention", _self_attention("query")),
    ("_transformer_encoder_layer_fwd", _self_attention("src", "ffn_weight_1")),
    ("_flash_attention_forward", _attention_by_position("cum_seq_q", "cum_seq_k")),
    ("_efficient_attention_forward", _attention_by_position("cu_seqlens_q", "cu_seqlens_k")),
    ("affine_grid_generator", _affine_grid),
    ("_grouped_mm _scaled_grouped_mm", _grouped),
    ("mv dot vdot", _product("self")),
    ("addmv addmv_", _product("mat")),
    ("addmm_ _addmm_activation", _product("mat1", "mat2")),
    ("baddbmm_ addbmm addbmm_", _product("batch1", "batch2")),
    ("_int_mm _scaled_mm_v2", _product("self", "mat2")),
    ("quantized::matmul", _product("qa", "qb")),
    ("_trilinear", _trilinear),
    ("_cdist_forward", _distances),
    ("_euclidean_dist", _euclidean),
    # Offsets (batch, offsets, height, width) have the size of the output.
    ("deform_conv2d", _convolution("offset", "weight")),
    ("mkldnn_rnn_layer", _packed_product("input", "weight0", "weight1")),
    ("_cudnn_rnn", _packed_product("input", "weight")),
    ("mkldnn_rnn_layer_backward", _twice(_packed_product("input", "weight1", "weight2"))),
    ("_cudnn_rnn_backward", _twice(_packed_product("input", "weight"))),
    ("quantized_lstm quantized_gru", _packed_product("input", "params")),
    (
        "quantized::linear quantized::linear_relu quantized::linear_leaky_relu quantized::linear_tanh "
        "quantized::linear_dynamic quantized::linear_relu_dynamic quantized::linear_dynamic_fp16 "
        "quantized::linear_relu_dynamic_fp16",
        _packed_product("X", "W_prepack"),
    ),
    (
        " ".join(f"quantized::quantized_{cell}_cell_dynamic" for cell in ("lstm", "gru", "rnn_relu", "rnn_tanh")),
        _packed_product("input", "w_ih", "w_hh"),
    ),
    (
        " ".join(
            f"quantized::conv{sides}d{ending}"
            for sides in (1, 2, 3)
            for ending in ("", "_relu", "_dynamic", "_add", "_add_relu")
        ),
        _convolution(RESULT, "packed_weight"),
    ),
    (
        " ".join(f"quantized::conv_transpose{sides}d{ending}" for sides in (1, 2, 3) for ending in ("", "_dynamic")),
        _convolution("qx", "packed_weight"),
    ),
    ("_fft_c2c", _fourier(5)),
    ("_fft_r2c", _fourier(2.5)),
    ("_fft_c2r", _fourier(2.5, RESULT)),
    ("linalg_lu_factor_ex linalg_lu _linalg_det _linalg_slogdet", _each("A", _lu)),
    ("geqrf", _each("self", lambda *sizes: 2 * _lu(*sizes))),
    ("linalg_qr", _each("A", _qr_with_columns)),
    (
        "linalg_householder_product",
        _each("input", lambda rows, columns, given: _orthogonal(rows, columns, given["tau"].shape[-1])),
    ),
    ("ormqr", _each("input3", _reflected)),
    ("linalg_cholesky_ex linalg_ldl_factor_ex", _square("self", 1 / 3)),
    ("cholesky_inverse", _square("self", 2 / 3)),
    ("linalg_inv_ex", _square("A", 2.0)),
    ("linalg_matrix_exp", _square("self", 2.0 * MATRIX_EXPONENTIAL_PRODUCTS)),
    ("linalg_eig", _square("self", 25.0)),
    # Composites of the operations with vectors, which they would compute while a dispatch mode looks on.
    ("_linalg_eigvals linalg_eigvals", _square("self", 10.0)),
    ("linalg_eigvalsh", _square("self", 4 / 3)),
    ("linalg_svdvals", _each("A", lambda rows, columns, _: _singular(rows, columns, "none"))),
    ("_linalg_eigh", _each("A", lambda rows, _, given: (9 if given["compute_v"] else 4 / 3) * rows**3)),
    ("linalg_matrix_sqrth", _square("self", 9.0 + 2.0)),
    ("_linalg_svd", _each("A", _singular_values)),
    # Singular values and vectors, and the product of both matrices of vectors; a Hermitian matrix has eigenvalues.
    (
        "linalg_pinv",
        _each(
            "self",
            lambda rows, columns, given: (
                (9 + 2) * rows**3
                if given["hermitian"]
                else _singular(rows, columns, "thin") + 2 * rows * columns * min(rows, columns)
            ),
        ),
    ),
    # Singular values and vectors, and two products with them.
    (
        "linalg_polar",
        _each(
            "A",
            lambda rows, columns, _: (
                _singular(rows, columns, "thin")
                + (2 * rows * columns * min(rows, columns) + 2 * columns * columns * min(rows, columns))
            ),
        ),
    ),
    ("linalg_lstsq", _each("self", _least_squares)),
    ("_linalg_solve_ex", _solved("A", "B", 2.0, 2 / 3, may_be_vectors=True)),
    ("linalg_lu_solve", _solved("LU", "B", 2.0)),
    ("linalg_ldl_solve", _solved("LD", "B", 2.0)),
    ("cholesky_solve", _solved("input2", "self", 2.0)),
    ("linalg_solve_triangular", _solved("self", "B", 1.0)),
    ("triangular_solve", _solved("A", "self", 1.0)),
)

FORMULAS: Mapping[str, Formula] = {name: formula for names, formula in _ROWS for name in names.split()}
"""Formulas for operations without one in ``torch.utils.flop_counter`` that holds for all arguments."""


Touched: TypeAlias = Callable[[Given], int]
"""Returns the number of elements of a table that an operation touches."""


def _elements_at(given: Given) -> int:
    """Return the elements at the places of ``index_put_``: indices are broadcast, other dimensions are whole.

    A mask may choose any number of places, so it counts as all.
    """
    table, indices = given["self"], given["indices"]
    if any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in indices):
        return int(table.numel())
    places = torch.broadcast_shapes(*(index.shape for index in indices if index is not None))
    whole = [size for place, size in enumerate(table.shape) if place >= len(indices) or indices[place] is None]
    return math.prod((*places, *whole))


def _elements_of_rows(given: Given) -> int:
    table = given["self"]
    rows = max(1, table.shape[given["dim"]]) if table.dim() else 1
    return int(given["index"].numel() * (table.numel() // rows))


def _elements_of_bags(given: Given) -> int:
    return int(given["indices"].numel() * table_of(given["weight"]).shape[-1])


def _read_of_groups(rows: Any, matrices: Any) -> int:
    """Return the elements of as many matrices as there are rows: of a layer's experts no more are chosen."""
    groups = matrices.shape[0] if matrices.dim() == 3 else 1
    return int(matrices.numel() * min(1.0, rows.shape[0] / max(groups, 1)))


READ: Mapping[str, tuple[str, Touched]] = {
    **dict.fromkeys(
        "index_select gather take index _unsafe_index".split(), ("self", lambda given: given[RESULT].numel())
    ),
    **dict.fromkeys(("embedding", "quantized::embedding_byte"), ("weight", lambda given: given[RESULT].numel())),
    "_grouped_mm": ("mat2", lambda given: _read_of_groups(given["self"], given["mat2"])),
    **dict.fromkeys(
        ("_embedding_bag", "_embedding_bag_forward_only", "quantized::embedding_bag_byte"),
        ("weight", _elements_of_bags),
    ),
}
"""Operations that read a part of a table, with the argument's name."""

WRITTEN: Mapping[str, Touched] = {
    **dict.fromkeys("index_copy_ index_add_ index_reduce_ index_fill_".split(), _elements_of_rows),
    **dict.fromkeys("scatter_ scatter_add_ scatter_reduce_ put_".split(), lambda given: given["index"].numel()),
    **dict.fromkeys(("index_put_", "_index_put_impl_"), _elements_at),
}
"""Operations that write a part of their first argument, in place."""

COMBINING = frozenset({"index_add_", "index_reduce_", "scatter_add_", "scatter_reduce_"})
"""Those that read what they write, too. ``index_put_`` and ``put_`` do if they accumulate, ``scatter_`` does if it
reduces."""


_BACKWARD = (
    "_adaptive_avg_pool{}d adaptive_max_pool{}d avg_pool{}d max_pool{}d_with_indices fractional_max_pool{}d "
    "reflection_pad{}d replication_pad{}d nll_loss nll_loss2d".split()
)

ASKED_FOR_FORM: Mapping[str, int] = {
    **dict.fromkeys((*WRITE_ONLY, "fill", "bernoulli.p", "new_zeros", "new_ones", "new_full"), 0),
    **dict.fromkeys((f"{name}_like" for name in "zeros ones full rand randn randint".split()), 0),
    **dict.fromkeys((f"{name.format(sides)}_backward" for name in _BACKWARD for sides in (1, 2, 3)), 1),
}
"""Operations that need only the form (shape, dtype, layout) of one tensor, and its place among their tensors: other
values in it change no result."""


QUANTISED_WITHOUT_PRODUCTS = (
    "add add_out add_relu add_relu_out add_scalar add_scalar_out add_scalar_relu add_scalar_relu_out mul mul_out "
    "mul_relu mul_relu_out mul_scalar mul_scalar_out mul_scalar_relu mul_scalar_relu_out cat cat_out cat_relu "
    "cat_relu_out batch_norm batch_norm_relu batch_norm1d batch_norm1d_relu batch_norm2d batch_norm2d_relu "
    "batch_norm3d batch_norm3d_relu layer_norm group_norm instance_norm softmax sigmoid celu elu clamp dropout "
    "hardswish leaky_relu prelu relu6 threshold max_pool1d max_pool2d embedding_byte embedding_4bit embedding_bag_byte "
    "embedding_bag_4bit"
).split()
"""Those of the namespace ``quantized``, without it."""

WITHOUT_PRODUCTS = frozenset(
    # elementwise, but not tagged as pointwise in every version
    "hardswish hardsigmoid hardtanh leaky_relu elu celu threshold glu log_sigmoid_forward _prelu_kernel floor_divide "
    "masked_fill bernoulli complex polar rsub linalg_cross addr rrelu_with_noise _softmax_backward_data "
    "_log_softmax_backward_data _thnn_fused_lstm_cell _thnn_fused_gru_cell "
    # normalisation, softmax
    "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training cudnn_batch_norm "
    "miopen_batch_norm _batch_norm_with_update native_group_norm native_layer_norm _fused_rms_norm linalg_vector_norm "
    "norm _weight_norm_interface _softmax _log_softmax _safe_softmax logsumexp _logcumsumexp "
    # pooling, interpolation
    "avg_pool2d avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d max_pool2d_with_indices max_pool3d_with_indices "
    "adaptive_max_pool2d adaptive_max_pool3d fractional_max_pool2d fractional_max_pool3d max_unpool2d max_unpool3d "
    "grid_sampler_2d grid_sampler_3d cudnn_grid_sampler upsample_nearest1d upsample_nearest2d upsample_nearest3d "
    "_upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d upsample_linear1d "
    "upsample_bilinear2d upsample_bicubic2d upsample_trilinear3d _upsample_bilinear2d_aa _upsample_bicubic2d_aa "
    "roi_align roi_pool ps_roi_align ps_roi_pool "
    # reductions, searches
    "sum mean amax amin aminmax max min any all prod argmax argmin cumsum cumprod cummax cummin _cummax_helper "
    "_cummin_helper var std var_mean std_mean median nanmedian kthvalue mode topk sort nonzero bincount histc "
    "bucketize searchsorted isin _unique _unique2 unique_consecutive unique_dim unique_dim_consecutive multinomial "
    "equal nms _linalg_check_errors _assert_async mse_loss smooth_l1_loss huber_loss nll_loss_forward "
    "nll_loss2d_forward binary_cross_entropy binary_cross_entropy_with_logits soft_margin_loss multi_margin_loss "
    "multilabel_margin_loss_forward _ctc_loss dist allclose count_nonzero nansum nanmean trace histogram "
    "_histogramdd_bin_edges _histogramdd_from_bin_cts _histogramdd_from_bin_tensors segment_reduce hash_tensor renorm "
    "_pdist_forward logcumsumexp nonzero_static "
    # losses and norms whose names have no forward, lookups, optimizers
    "nll_loss_backward nll_loss2d_backward multilabel_margin_loss_backward log_sigmoid_backward batch_norm_backward "
    "_embedding_bag_dense_backward _embedding_bag_per_sample_weights_backward _thnn_fused_lstm_cell_backward_impl "
    "_cdist_backward _fused_adam _fused_adamw _fused_sgd _fused_adagrad _amp_foreach_non_finite_check_and_unscale "
    "_amp_update_scale "
    # moving
    "block_diag clone copy _to_copy cat stack repeat repeat_interleave roll flip rot90 constant_pad_nd "
    "reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d im2col "
    "col2im pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle index index_select index_put "
    "_unsafe_index _index_put_impl_ index_add index_copy index_reduce gather scatter scatter_add scatter_reduce take "
    "put masked_select masked_scatter embedding embedding_renorm_ _embedding_bag _embedding_bag_forward_only tril triu "
    "slice_backward select_backward embedding_dense_backward diag_embed slice_scatter select_scatter diagonal_scatter "
    "as_strided_scatter _unsafe_masked_index _unsafe_masked_index_put_accumulate _chunk_cat unfold_backward lu_unpack "
    "expand_copy diagonal_copy alias_copy as_strided_copy narrow_copy view_copy permute_copy split_copy "
    "split_with_sizes_copy unbind_copy unfold_copy squeeze_copy unsqueeze_copy transpose_copy t_copy detach_copy "
    "slice_copy select_copy _pack_padded_sequence _to_sparse _to_sparse_csr _to_sparse_csc _to_sparse_bsr "
    "_to_sparse_bsc _to_dense _jagged_to_padded_dense_forward convert_element_type _padded_dense_to_jagged_forward "
    "_nested_tensor_from_mask _nested_tensor_from_mask_left_aligned _nested_tensor_from_tensor_list to_padded_tensor "
    # filling
    "fill index_fill zero_ zeros ones full eye zeros_like ones_like full_like new_zeros new_ones "
    "_new_zeros_with_same_feature_meta new_full scalar_tensor arange linspace logspace tril_indices triu_indices "
    "hann_window hamming_window one_hot "
    # quantisation in training
    "_fused_moving_avg_obs_fq_helper fake_quantize_per_tensor_affine_cachemask "
    "fake_quantize_per_channel_affine_cachemask _fake_quantize_per_tensor_affine_cachemask_tensor_qparams "
    # quantised tensors
    "quantize_per_tensor quantize_per_tensor_dynamic quantize_per_channel dequantize int_repr quantized_max_pool1d "
    "quantized_max_pool2d quantized_max_pool3d quantized_batch_norm "
    # random numbers
    "uniform_ random_ exponential_ rand randn randint randperm rand_like randn_like randint_like native_dropout normal "
    "cauchy_ geometric_ log_normal_".split()
    + [f"quantized::{name}" for name in QUANTISED_WITHOUT_PRODUCTS]
)
"""Names of operations that move or combine elements, and whose gradients do, which are not listed. Outer products
(``outer``, ``kron``, ``addr``) are elementwise.

The FLOPs of an operation that is neither listed here nor has a formula are unknown, not 0."""
