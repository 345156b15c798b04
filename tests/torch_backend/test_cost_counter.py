"""FLOPs and bytes against figures worked out by hand."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
import torchvision
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from opcost.torch_backend.cost_counter import CostCounter, OperationCost, operation_cost, tensor_bytes, total

FLOAT = 4
INT64 = 8


def costs(call: Callable[[], object]) -> list[OperationCost]:
    recorded: list[OperationCost] = []
    with torch.inference_mode(), CostCounter(recorded.append):
        call()
    return recorded


def cost(call: Callable[[], object]) -> OperationCost:
    return total(costs(call))


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(4, 6)


# FLOPs, a multiply-add as two


@given(
    batch=st.integers(1, 3),
    groups=st.integers(1, 3),
    kernel=st.integers(1, 3),
    stride=st.integers(1, 2),
    has_bias=st.booleans(),
)
def test_a_convolution_multiplies_its_kernel_at_every_output(
    batch: int, groups: int, kernel: int, stride: int, has_bias: bool
) -> None:
    convolution = nn.Conv2d(2 * groups, 3 * groups, kernel, stride=stride, groups=groups, bias=has_bias)
    side = (9 - kernel) // stride + 1
    counted = cost(lambda: convolution(torch.zeros(batch, 2 * groups, 9, 9)))
    assert counted.flop == 2 * batch * 3 * groups * side * side * 2 * kernel * kernel


@pytest.mark.parametrize(
    ("left", "right", "flop"),
    [((8, 16), (2, 16, 4), 2 * 8 * 16 * 4), ((2, 8, 16), (16, 8), 2 * 8 * 16 * 8), ((8, 16), (16, 4), 2 * 8 * 16 * 4)],
)
def test_products_in_groups_are_those_of_all_rows_or_columns(
    left: tuple[int, ...], right: tuple[int, ...], flop: int
) -> None:
    ends = torch.tensor([8 if len(left) < len(right) else 4, 8], dtype=torch.int32)
    # Along columns torch takes right matrices that are stored by columns.
    b = torch.zeros(right[::-1]).t() if len(right) == 2 else torch.zeros(right)
    assert cost(lambda: torch._grouped_mm(torch.zeros(left), b, offs=ends)).flop == flop


@pytest.mark.parametrize(
    ("call", "flop"),
    [
        (lambda: torch.zeros(3, 4) @ torch.zeros(4), 2 * 3 * 4),
        (lambda: torch.mv(torch.zeros(3, 4), torch.zeros(4)), 2 * 3 * 4),
        (lambda: torch.addmv(torch.zeros(3), torch.zeros(3, 4), torch.zeros(4)), 2 * 3 * 4),
        (lambda: torch.zeros(3).addmv_(torch.zeros(3, 4), torch.zeros(4)), 2 * 3 * 4),
        (lambda: torch.dot(torch.zeros(5), torch.zeros(5)), 2 * 5),
        (lambda: torch.vdot(torch.zeros(5), torch.zeros(5)), 2 * 5),
    ],
    ids=["matmul", "mv", "addmv", "addmv_", "dot", "vdot"],
)
def test_products_with_a_vector_multiply_and_add_each_element_once(call: Callable[[], object], flop: int) -> None:
    assert cost(call).flop == flop


@pytest.mark.parametrize("length", [5, 7])
def test_scaled_dot_product_attention_is_two_products(length: int) -> None:
    query, key = torch.randn(2, 4, 5, 8), torch.randn(2, 4, length, 8)
    counted = costs(lambda: F.scaled_dot_product_attention(query, key, key))
    assert sum(cost.flop for cost in counted) == 2 * (2 * 2 * 4 * 5 * length * 8)
    assert len(counted) == 1


@pytest.mark.parametrize(
    "kernel", ["flash_attention", "efficient_attention", "cudnn_attention", "flash_attention_for_cpu"]
)
def test_attention_of_grouped_queries_has_a_product_for_each_query_head(kernel: str) -> None:
    query, key = torch.zeros(2, 8, 5, 16), torch.zeros(2, 2, 7, 16)
    value = torch.zeros(2, 2, 7, 4)
    operation = getattr(torch.ops.aten, f"_scaled_dot_product_{kernel}").default
    assert operation_cost(operation, (query, key, value), {}, query).flop == 2 * (2 * 8 * 5 * 7) * (16 + 4)


def test_attention_by_position_has_a_product_for_each_head_and_pair_of_positions() -> None:
    query, key = torch.zeros(2, 5, 3, 16), torch.zeros(2, 7, 3, 16)
    efficient, flash = (getattr(torch.ops.aten, f"_{kernel}_attention_forward").default for kernel in KERNELS)
    dense = (query, key, key, None, None, None, None, None, 0.0, 0)
    assert operation_cost(efficient, dense, {}, query).flop == 2 * (2 * 3 * 5 * 7) * (16 + 16)
    assert operation_cost(flash, (query, key, key, None, None, 5, 7, 0.0, False, False), {}, query).flop == 13440
    packed, ends = torch.zeros(1, 7, 3, 16), torch.tensor([0, 5, 7], dtype=torch.int32)
    given = (packed, packed, packed, None, ends, ends, 5, 5, 0.0, 0)
    assert operation_cost(efficient, given, {}, packed).flop == 2 * 3 * (5 * 5 + 2 * 2) * (16 + 16)
    # The ends are values.
    on_shapes = operation_cost(efficient, (*given[:4], ends.to("meta"), ends.to("meta"), *given[6:]), {}, packed)
    assert (on_shapes.flop, on_shapes.without_formula) == (None, ("aten::_efficient_attention_forward",))


KERNELS = ("efficient", "flash")


UNIT, TALL, BATCH = torch.eye(6), torch.zeros(8, 4), torch.zeros(2, 5, 3)
COMPLEX = torch.zeros(3, 4, dtype=torch.complex64)

LU = 6**2 * (6 - 6 / 3)
QR = 2 * 4**2 * (8 - 4 / 3)
THIN = 14 * 8 * 4**2 + 8 * 4**3


@pytest.mark.parametrize(
    ("call", "flop"),
    [
        (lambda: torch.addbmm(torch.zeros(5, 4), BATCH, torch.zeros(2, 3, 4)), 2 * 2 * 5 * 3 * 4),
        (lambda: torch.zeros(5, 4).addmm_(torch.zeros(5, 3), torch.zeros(3, 4)), 2 * 5 * 3 * 4),
        (lambda: nn.Bilinear(3, 4, 5)(torch.zeros(2, 3), torch.zeros(2, 4)), 2 * 2 * 3 * 4 * 5),
        (lambda: torch.cdist(torch.zeros(2, 30, 3), torch.zeros(2, 4, 3)), 2 * 2 * 30 * 4 * (3 + 2)),
        (lambda: torch.cdist(torch.zeros(20, 3), torch.zeros(4, 3)), 0),
        (lambda: torch.cdist(torch.zeros(30, 3), torch.zeros(4, 3), p=1.0), 0),
        # Complex numbers: four real products and their additions.
        (lambda: COMPLEX @ COMPLEX.T, 4 * 2 * 3 * 4 * 3),
        # Fourier transforms of 16 numbers, three of them.
        (lambda: torch.fft.fft(torch.zeros(3, 16, dtype=torch.complex64)), 3 * 5 * 16 * 4),
        (lambda: torch.fft.rfft(torch.zeros(3, 16)), 3 * 5 * 16 * 4 / 2),
        (lambda: torch.fft.irfft(torch.zeros(3, 9, dtype=torch.complex64)), 3 * 5 * 16 * 4 / 2),
        (lambda: torch.fft.fft2(torch.zeros(3, 4, 8, dtype=torch.complex64)), 3 * 5 * 32 * 5),
        # Factorisations of 6 x 6 and 8 x 4 matrices.
        (lambda: torch.linalg.lu_factor(UNIT), LU),
        (lambda: torch.linalg.det(UNIT.expand(3, 6, 6)), 3 * LU),
        (lambda: torch.linalg.cholesky(UNIT), 6**3 / 3),
        (lambda: torch.linalg.inv(UNIT), 2 * 6**3),
        (lambda: torch.linalg.qr(TALL, mode="r"), QR),
        (lambda: torch.linalg.qr(TALL), QR + 4 * 8 * 4 * 4 - 2 * (8 + 4) * 4**2 + 4 * 4**3 / 3),
        (lambda: torch.linalg.eigvalsh(UNIT), 4 / 3 * 6**3),
        (lambda: torch.linalg.eigh(UNIT), 9 * 6**3),
        (lambda: torch.linalg.eigvals(UNIT), 10 * 6**3),
        (lambda: torch.linalg.eig(UNIT), 25 * 6**3),
        (lambda: torch.linalg.svdvals(TALL), 4 * 8 * 4**2 - 4 * 4**3 / 3),
        (lambda: torch.linalg.svd(TALL, full_matrices=False), THIN),
        (lambda: torch.linalg.svd(TALL), 4 * 8**2 * 4 + 8 * 8 * 4**2 + 9 * 4**3),
        (lambda: torch.linalg.svdvals(TALL.mT), 4 * 8 * 4**2 - 4 * 4**3 / 3),
        # Solutions with a vector, with two right sides, and with a triangular matrix.
        (lambda: torch.linalg.solve(UNIT, torch.ones(6)), 2 / 3 * 6**3 + 2 * 6**2),
        (lambda: torch.linalg.solve(UNIT, torch.ones(6, 2)), 2 / 3 * 6**3 + 2 * 6**2 * 2),
        (lambda: torch.linalg.solve(UNIT.expand(3, 6, 6), torch.ones(3, 6)), 3 * (2 / 3 * 6**3 + 2 * 6**2)),
        # A matrix of right sides for all matrices of a batch.
        (lambda: torch.linalg.solve(UNIT.expand(3, 6, 6), torch.ones(6, 2)), 3 * (2 / 3 * 6**3 + 2 * 6**2 * 2)),
        (lambda: torch.cholesky_solve(torch.ones(6, 2), UNIT.expand(3, 6, 6)), 3 * 2 * 6**2 * 2),
        (lambda: torch.linalg.lstsq(TALL, torch.ones(8, 3)), QR + 3 * (4 * 8 * 4 - 2 * 4**2 + 4**2)),
        (lambda: torch.linalg.lstsq(TALL.mT, torch.ones(4, 3)), QR + 3 * (4 * 8 * 4 - 2 * 4**2 + 4**2)),
        (lambda: torch.linalg.pinv(UNIT, hermitian=True), (9 + 2) * 6**3),
        (lambda: torch.linalg.solve_triangular(UNIT, torch.ones(6, 2), upper=True), 6**2 * 2),
        (lambda: torch.cholesky_solve(torch.ones(6, 2), UNIT), 2 * 6**2 * 2),
        # Elementwise, although vectors are multiplied.
        (lambda: torch.addr(torch.zeros(3, 4), torch.zeros(3), torch.zeros(4)), 0),
        (lambda: torch.kron(torch.ones(2, 2), torch.ones(3, 3)), 0),
        (lambda: torch._foreach_add([torch.zeros(3), torch.zeros(4)], 1.0), 0),
    ],
)
def test_what_multiplies_has_the_usual_operation_count(call: Callable[[], object], flop: float) -> None:
    assert cost(call).flop == round(flop)


@pytest.mark.parametrize("batch_first", [True, False])
def test_the_recurrent_kernel_of_a_gpu_counts_its_matrices(batch_first: bool) -> None:
    weights = [torch.zeros(20, 6), torch.zeros(20, 5), torch.zeros(20), torch.zeros(20)]
    x, state = torch.zeros(7, 3, 6), torch.zeros(1, 3, 5)
    arguments = (x, weights, 4, None, state, state, 2, 5, 0, 1, batch_first, 0.0, False, False, [], None)
    counted = operation_cost(torch.ops.aten._cudnn_rnn.default, arguments, {}, x)
    assert counted.flop == 2 * 7 * 3 * 20 * (6 + 5)


def test_a_deformable_convolution_has_the_products_of_a_convolution() -> None:
    x, weight = torch.zeros(2, 4, 8, 8), torch.zeros(6, 4, 3, 3)
    counted = cost(lambda: torchvision.ops.deform_conv2d(x, torch.zeros(2, 18, 6, 6), weight))
    assert counted.flop == cost(lambda: F.conv2d(x, weight)).flop


def test_operations_that_are_no_products_have_no_flops(x: torch.Tensor) -> None:
    assert cost(lambda: F.gelu(F.layer_norm(x, (6,))) + x).flop == 0
    assert cost(lambda: torch._weight_norm(torch.ones(3, 4), torch.ones(3, 1), 0)).flop == 0
    assert cost(lambda: nn.Embedding(9, 4, max_norm=1.0)(torch.tensor([1, 2]))).flop == 0
    assert cost(lambda: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, 0, 255)).flop == 0


def test_an_operation_in_place_is_known_as_the_other_is(x: torch.Tensor) -> None:
    assert (cost(lambda: x.cumsum_(0)).flop, cost(lambda: x.renorm_(2, 0, 1.0)).flop) == (0, 0)


def annotated() -> torch.Tensor:
    with torch.profiler.record_function("head"):
        return torch.ones(2, 3) @ torch.ones(3, 4)


@pytest.mark.parametrize(
    ("call", "flop"),
    [
        (annotated, 2 * 2 * 3 * 4),
        # Each of 5 x 6 places, or 4 x 5 x 6, is a product of a vector with a matrix of the image.
        (lambda: F.affine_grid(torch.ones(2, 2, 3), [2, 3, 5, 6], align_corners=False), 2 * 2 * 30 * 3 * 2),
        (lambda: F.affine_grid(torch.ones(2, 3, 4), [2, 3, 4, 5, 6], align_corners=False), 2 * 2 * 120 * 4 * 3),
    ],
)
def test_annotations_cost_nothing_and_grids_are_products(call: Callable[[], object], flop: int) -> None:
    assert cost(call).flop == flop


# Bytes

TABLE, ROWS, PLACES = torch.zeros(1000, 8), torch.ones(5, 8), torch.tensor([3, 1, 4, 1, 5])
INDEX = 5 * INT64
PART = 5 * 8 * FLOAT


@pytest.mark.parametrize(
    ("call", "memory_bytes"),
    [
        # A part of the table is read and written elsewhere.
        (lambda: F.embedding(PLACES, TABLE), INDEX + PART + PART),
        (lambda: torch.index_select(TABLE, 0, PLACES), INDEX + PART + PART),
        (lambda: TABLE[PLACES], INDEX + PART + PART),
        (lambda: torch.gather(TABLE, 0, PLACES.unsqueeze(1)), INDEX + 5 * FLOAT + 5 * FLOAT),
        (lambda: torch.take(TABLE, PLACES), INDEX + 5 * FLOAT + 5 * FLOAT),
        # No more than the table is read.
        (lambda: torch.index_select(TABLE[:2], 0, PLACES.clamp(max=1)), INDEX + 2 * 8 * FLOAT + PART),
        # Source, index, and a part of the table, which is read too if it is added to.
        (lambda: TABLE.clone().index_copy_(0, PLACES, ROWS), INDEX + PART + PART),
        (lambda: TABLE.clone().index_add_(0, PLACES, ROWS), INDEX + PART + PART + PART),
        (lambda: TABLE.clone().scatter_add_(0, PLACES.unsqueeze(1), ROWS), INDEX + PART + 2 * 5 * FLOAT),
        (lambda: TABLE.clone().index_put_((PLACES,), ROWS), INDEX + PART + PART),
        (lambda: TABLE.clone().index_put_((PLACES,), ROWS, accumulate=True), INDEX + PART + PART + PART),
        (lambda: TABLE.clone().index_fill_(0, PLACES, 2.0), INDEX + PART),
        (lambda: TABLE.clone().index_add_(0, PLACES[:0], ROWS[:0]), 0),
        (lambda: TABLE.clone().scatter_(0, PLACES.unsqueeze(1), ROWS, reduce="add"), INDEX + PART + 2 * 5 * FLOAT),
        # A mask may choose any number of places.
        (lambda: TABLE.clone().index_put_((TABLE[:, 0] > 1,), torch.tensor(1.0)), 1000 + FLOAT + 1000 * 8 * FLOAT),
    ],
)
def test_a_table_counts_as_far_as_it_is_touched(call: Callable[[], object], memory_bytes: int) -> None:
    *_, last = costs(call)
    assert last.memory_bytes == memory_bytes


def test_bags_read_all_of_their_rows() -> None:
    bags = torch.tensor([0, 2])
    (counted,) = costs(lambda: F.embedding_bag(PLACES, TABLE, bags))
    assert counted.operation == "_embedding_bag_forward_only"
    assert counted.memory_bytes >= INDEX + 2 * INT64 + PART + 2 * 8 * FLOAT
    assert counted.memory_bytes < 1000 * 8 * FLOAT


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.view(6, 4),
        lambda x: x.reshape(24),
        lambda x: x.t(),
        lambda x: x[1:, ::2],
        lambda x: x.split(2),
        lambda x: x.chunk(3, 1),
        lambda x: x.unbind(),
        lambda x: x.expand(3, 4, 6),
        lambda x: x.flatten().unflatten(0, (2, 12)),
        lambda x: x.permute(1, 0).unsqueeze(0).squeeze(),
        lambda x: x.contiguous(),
        lambda x: x.to(torch.float32),
        lambda x: F.dropout(x, 0.5, training=False),
        torch.empty_like,
        lambda x: x.new_empty(100),
    ],
)
def test_views_and_allocations_cost_nothing(x: torch.Tensor, view: Callable[[torch.Tensor], object]) -> None:
    assert costs(lambda: view(x)) == []


@pytest.mark.parametrize(
    ("call", "elements"),
    [
        (lambda x: x + x, 24 + 24),
        (lambda x: x + x.clone(), 24 + 24 + 24 + 24 + 24),
        (lambda x: x.relu(), 24 + 24),
        (lambda x: x.relu_(), 24 + 24),
        (lambda x: torch.cat([x, x[:1]]), 24 + 6 + 30),
        (lambda x: torch.cat([x, x]), 24 + 48),
        (lambda x: x.expand(3, 4, 6).contiguous(), 24 + 72),
        (lambda x: x[:1].expand(4, 6) + x, 6 + 24 + 24),
        (lambda x: x.t().contiguous(), 24 + 24),
        (lambda x: x.t().reshape(-1), 24 + 24),
        (lambda x: x.roll(1, 0), 24 + 24),
        (lambda x: x.sum(), 24 + 1),
        (lambda x: x.copy_(torch.empty(4, 6)), 24 + 24),
        (lambda x: x.copy_(torch.empty(6)), 6 + 24),
        (lambda x: x.zero_(), 24),
        (lambda _: torch.zeros(4, 6), 24),
        (lambda x: x.add_(1), 24 + 24),
        # Only the form of the tensor is asked for.
        (lambda x: x.new_zeros(2), 2),
        (lambda x: x.new_ones((2, 3)), 6),
        (lambda x: x.new_full((2,), 3.0), 2),
        (torch.zeros_like, 24),
        (torch.ones_like, 24),
        (lambda x: torch.full_like(x, 2.0), 24),
        (torch.rand_like, 24),
        (torch.randn_like, 24),
        (lambda x: torch.randint_like(x, 5), 24),
        (lambda x: torch.fill(x, 2.0), 24),
        (lambda x: torch.fill(x, torch.tensor(2.0)), 1 + 24),
        (lambda x: torch.bernoulli(x, 0.5), 24),
        (lambda x: torch.bernoulli(x.sigmoid_()), 24 + 24 + 24 + 24),
        (lambda x: x.exponential_(), 24),
        (lambda x: x.bernoulli_(torch.full((4, 1), 0.5)), 4 + 4 + 24),
        (lambda x: x.expand_as(torch.zeros(2, 4, 6)), 48),
        (lambda x: x.view_as(torch.zeros(6, 4)), 24),
        (lambda x: x.type_as(torch.zeros(3)), 3),
        (lambda x: x.copy_(x), 24 + 24),
    ],
)
def test_bytes_are_distinct_inputs_and_outputs(
    x: torch.Tensor, call: Callable[[torch.Tensor], object], elements: int
) -> None:
    assert cost(lambda: call(x)).memory_bytes == FLOAT * elements


IMAGE, LABELS, TOTAL = torch.zeros(1, 2, 4, 4), torch.zeros(4, dtype=torch.int64), torch.zeros(())
POOLED = torch.zeros(1, 2, 2, 2)
PICKED = POOLED.to(torch.int64)


@pytest.mark.parametrize(
    ("operation", "arguments", "memory_bytes"),
    [
        ("avg_pool2d_backward", (POOLED, IMAGE, [2, 2], [2, 2], [0, 0], False, True, None), 8 * FLOAT),
        ("_adaptive_avg_pool2d_backward", (POOLED, IMAGE), 8 * FLOAT),
        ("adaptive_max_pool2d_backward", (POOLED, IMAGE, PICKED), 8 * (FLOAT + INT64)),
        (
            "max_pool2d_with_indices_backward",
            (POOLED, IMAGE, [2, 2], [2, 2], [0, 0], [1, 1], False, PICKED),
            8 * (FLOAT + INT64),
        ),
        ("reflection_pad2d_backward", (torch.zeros(1, 2, 6, 6), IMAGE, [1, 1, 1, 1]), 72 * FLOAT),
        ("replication_pad2d_backward", (torch.zeros(1, 2, 6, 6), IMAGE, [1, 1, 1, 1]), 72 * FLOAT),
        ("nll_loss_backward", (TOTAL, IMAGE.reshape(4, 8), LABELS, None, 1, -100, TOTAL), FLOAT + 4 * INT64),
    ],
)
def test_a_backward_pass_that_needs_no_value_of_its_input_asks_for_its_form(
    operation: str, arguments: tuple[object, ...], memory_bytes: int
) -> None:
    (counted,) = costs(lambda: getattr(torch.ops.aten, operation)(*arguments))
    assert counted.memory_bytes == memory_bytes + 32 * FLOAT


def test_a_convolution_moves_its_weights_and_max_pooling_its_indices() -> None:
    convolution, x = nn.Conv2d(2, 3, 3, padding=1), torch.randn(1, 2, 8, 8)
    assert cost(lambda: convolution(x)).memory_bytes == FLOAT * (2 * 64 + 3 * 2 * 9 + 3 + 3 * 64)
    x = torch.randn(1, 2, 8, 8)
    assert cost(lambda: F.max_pool2d(x, 2)).memory_bytes == FLOAT * (2 * 64 + 2 * 16) + INT64 * 2 * 16


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64, torch.int8, torch.bool])
def test_elements_have_the_size_of_their_type(dtype: torch.dtype) -> None:
    x = torch.zeros(4, 6, dtype=dtype)
    assert cost(x.clone).memory_bytes == 2 * 24 * x.element_size()


@given(st.lists(st.integers(0, 5), max_size=4), st.sets(st.integers(0, 3)))
def test_expanded_dimensions_take_no_memory(shape: list[int], expanded: set[int]) -> None:
    stored = [1 if dimension in expanded else size for dimension, size in enumerate(shape)]
    is_empty = 0 in shape
    tensor = torch.zeros(stored).expand(shape) if not is_empty else torch.zeros(shape)
    assert tensor_bytes(tensor) == (0 if is_empty else FLOAT * torch.Size(stored).numel())


def test_counting_changes_no_result(x: torch.Tensor) -> None:
    model = nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6), nn.GELU())
    with torch.inference_mode():
        expected = model(x)
        with CostCounter(lambda _: None):
            assert torch.equal(model(x), expected)
