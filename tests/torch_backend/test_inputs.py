"""Inputs are drawn as a config describes them, equally on every device, with the patterns that calls had."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision  # noqa: F401 (it registers its operations)
from torch import nn

from opcost.errors import CannotMeasureError
from opcost.operators.counts import Case, cases_of
from opcost.operators.model_inputs import DescribedInputs
from opcost.operators.model_rows import counts_of, rows_of
from opcost.operators.tuples import OperatorTuple, PlainValue, Structure, TensorSpec, model_operator
from opcost.operators.values import InputData, Pattern
from opcost.storage.counts_file import read_counts, write_counts
from opcost.torch_backend.capture import capture
from opcost.torch_backend.inputs import model_inputs, operator_inputs, patterns_of
from opcost.torch_backend.operators import function_tuple, module_tuple
from opcost.torch_backend.ready_model import ReadyModel
from opcost.torch_backend.workload import matrices_of, operator_call, operator_workload
from tests.small_model import SmallModel


def drawn(values: PlainValue, dtype: str = "float32", shape: tuple[int, ...] = (40, 50), seed: int = 0) -> torch.Tensor:
    described = DescribedInputs((TensorSpec(shape, dtype),), (), (values,))
    model = described.given_to(model_operator("net.py:build", None, (), seed))
    ((tensor,), _) = model_inputs(model, "cpu", {})
    assert isinstance(tensor, torch.Tensor)
    assert (tensor.dtype, tensor.shape) == (getattr(torch, dtype), shape)
    return tensor


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
def test_integers_are_all_of_their_range_without_its_end(dtype: str) -> None:
    assert drawn(("integers", 3, 9), dtype).unique().tolist() == [3, 4, 5, 6, 7, 8]


def test_integers_reach_the_ends_of_their_dtype() -> None:
    assert drawn(("integers", 0, 256), "uint8").unique().numel() == 256
    assert drawn(("integers", -128, 128), "int8").min() == -128


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_real_numbers_are_uniform_in_their_range(dtype: str) -> None:
    values = drawn(("uniform", -2.0, 6.0), dtype).double()
    assert -2 <= values.min() < -1.9
    assert 5.9 < values.max() <= 6
    assert values.mean() == pytest.approx(2, abs=0.3)


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "complex64"])
def test_named_values_are_those_of_all_elements(dtype: str) -> None:
    assert not drawn("zeros", dtype).any()
    assert drawn("ones", dtype).all()


def test_a_causal_mask_is_one_below_the_diagonal_or_added_to_scores() -> None:
    for dtype in ("bool", "int64"):
        mask = drawn("causal", dtype, (2, 3, 3))
        assert mask[1].int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    added = drawn("causal", "float32", (3, 3))
    assert added.tolist() == [[0.0, -torch.inf, -torch.inf], [0.0, 0.0, -torch.inf], [0.0, 0.0, 0.0]]


def test_values_depend_on_the_seed_and_are_normal_if_nothing_is_said() -> None:
    first, again, other = (drawn("normal", seed=seed) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert first.std() == pytest.approx(1, abs=0.1)


def test_tensors_in_lists_and_dicts_have_their_own_values() -> None:
    inner = Structure("dict", (("a", TensorSpec((4,), "int64", identity=1)),))
    described = DescribedInputs(
        ((TensorSpec((2, 3), "float32"), 5), inner),
        (("mask", TensorSpec((2,), "bool", identity=2)), ("flag", True)),
        ("zeros", ("integers", 7, 8), "ones"),
    )
    (listed, given), keywords = model_inputs(described.given_to(OperatorTuple("file.build")), "cpu", {})
    assert torch.equal(listed[0], torch.zeros(2, 3))  # type: ignore[index]
    assert listed[1] == 5  # type: ignore[index]
    assert given["a"].tolist() == [7, 7, 7, 7]  # type: ignore[index]
    assert (keywords["mask"].tolist(), keywords["flag"]) == ([True, True], True)  # type: ignore[attr-defined]


def test_described_values_come_before_those_of_a_source() -> None:
    described = DescribedInputs((TensorSpec((3,), "int64"),), (), (("integers", 5, 6),))
    model = described.given_to(OperatorTuple("file.build"))
    ((tensor,), _) = model_inputs(model, "cpu", {0: ("integers", 9, 10)})
    assert tensor.tolist() == [5, 5, 5]  # type: ignore[attr-defined]


def test_on_shapes_alone_nothing_is_drawn() -> None:
    described = DescribedInputs((TensorSpec((2**20, 2**10, 2**10), "int64"),), (), (("integers", 0, 5),))
    ((tensor,), _) = model_inputs(described.given_to(OperatorTuple("file.build")), "meta", {})
    assert tensor.is_meta  # type: ignore[attr-defined]


ROWS, COUNT = 1000, 4096
GENERATOR = torch.Generator().manual_seed(0)
INDICES = {
    Pattern.SORTED: torch.randint(ROWS, (COUNT,), generator=GENERATOR).sort().values,
    Pattern.IN_ORDER: torch.arange(512).repeat(8, 1),
    Pattern.ZIPF: (ROWS ** torch.rand(COUNT, generator=GENERATOR)).long().clamp(max=ROWS - 1),
    Pattern.SORTED_ZIPF: (ROWS ** torch.rand(COUNT, generator=GENERATOR)).long().clamp(max=ROWS - 1).sort().values,
    Pattern.ONE_ROW: torch.full((COUNT,), 7),
}
MASKS = {
    Pattern.ALL_TRUE: torch.ones(2, 32, 32, dtype=torch.bool),
    Pattern.ALL_FALSE: torch.zeros(2, 32, 32, dtype=torch.bool),
    Pattern.CAUSAL: torch.ones(2, 32, 32, dtype=torch.bool).tril(),
    Pattern.NOT_CAUSAL: torch.ones(2, 32, 32, dtype=torch.bool).triu(1),
    Pattern.NOT_PADDING: (torch.arange(32) >= torch.arange(9, 25).unsqueeze(1)).unsqueeze(1).expand(16, 32, 32),
    Pattern.PADDING: (torch.arange(32) < torch.arange(9, 25).unsqueeze(1)).unsqueeze(1).expand(16, 32, 32),
}


@pytest.mark.parametrize(("pattern", "indices"), INDICES.items())
def test_indices_keep_their_pattern(pattern: Pattern, indices: torch.Tensor) -> None:
    table = nn.Embedding(ROWS, 4)
    operator = module_tuple(table, (indices,), {})
    assert patterns_of(operator, (indices,), {}) == (pattern.value,)
    (drawn,), _ = operator_inputs(operator, "cpu", InputData(patterns=(pattern,)))
    assert isinstance(drawn, torch.Tensor)
    assert drawn.shape == indices.shape
    assert patterns_of(operator, (drawn,), {}) == (pattern.value,)
    table(drawn)


def test_drawn_indices_repeat_as_often_as_those_of_words() -> None:
    words = INDICES[Pattern.ZIPF]
    operator = module_tuple(nn.Embedding(ROWS, 4), (words,), {})
    (drawn,), _ = operator_inputs(operator, "cpu", InputData(patterns=(Pattern.ZIPF,)))
    assert isinstance(drawn, torch.Tensor)
    most_often = drawn.bincount().max().item() / COUNT
    assert most_often == pytest.approx(1 / (torch.arange(1, ROWS + 1, dtype=torch.float64) ** -1).sum().item(), rel=0.2)


def test_random_indices_are_usual() -> None:
    indices = torch.randint(ROWS, (COUNT,), generator=GENERATOR)
    operator = module_tuple(nn.Embedding(ROWS, 4), (indices,), {})
    assert patterns_of(operator, (indices,), {}) == ()
    (drawn,), _ = operator_inputs(operator, "cpu")
    assert patterns_of(operator, (drawn,), {}) == ()


@pytest.mark.parametrize("function", ["gather", "scatter_add"])
def test_indices_that_are_expanded_over_features_are_those_of_one_feature(function: str) -> None:
    table, rows = torch.zeros(ROWS, 8), INDICES[Pattern.ONE_ROW].unsqueeze(1).expand(COUNT, 8)
    args = (table, 0, rows) if function == "gather" else (table, 0, rows, torch.zeros(COUNT, 8))
    operator = function_tuple(getattr(torch, function), args, {})
    assert patterns_of(operator, args, {}) == ("one row",)
    drawn, kwargs = operator_inputs(operator, "cpu", InputData(patterns=(Pattern.SORTED,)))
    index = drawn[2]
    assert isinstance(index, torch.Tensor)
    assert index.stride() == rows.stride()
    assert patterns_of(operator, drawn, kwargs) == ("sorted",)


@pytest.mark.parametrize(("pattern", "mask"), MASKS.items())
def test_masks_keep_their_pattern(pattern: Pattern, mask: torch.Tensor) -> None:
    args = (torch.zeros(mask.shape), mask, 0.0)
    operator = function_tuple(torch.Tensor.masked_fill, args, {})
    assert patterns_of(operator, args, {}) == (pattern.value,)
    drawn, _ = operator_inputs(operator, "cpu", InputData(patterns=(pattern,)))
    assert patterns_of(operator, drawn, {}) == (pattern.value,)


def test_a_mask_by_keyword_is_seen() -> None:
    heads, mask = torch.zeros(2, 1, 32, 8), MASKS[Pattern.CAUSAL][:, None]
    attention = nn.functional.scaled_dot_product_attention
    operator = function_tuple(attention, (heads, heads, heads), {"attn_mask": mask})
    assert patterns_of(operator, (heads, heads, heads), {"attn_mask": mask}) == ("causal",)
    _, kwargs = operator_inputs(operator, "cpu", InputData(patterns=(Pattern.CAUSAL,)))
    assert torch.equal(kwargs["attn_mask"], mask)  # type: ignore[arg-type]


def test_labels_of_a_loss_and_small_tables_have_no_pattern() -> None:
    scores, labels = torch.zeros(COUNT, ROWS), INDICES[Pattern.ONE_ROW]
    loss = function_tuple(nn.functional.cross_entropy, (scores, labels), {})
    assert patterns_of(loss, (scores, labels), {}) == ()
    types = torch.zeros(8, 128, dtype=torch.int64)
    assert patterns_of(module_tuple(nn.Embedding(2, 4), (types,), {}), (types,), {}) == ()


@pytest.mark.parametrize(
    ("sizes", "expected"), [([256] * 8, ()), ([1024, 512, 256, 96, 80, 40, 20, 20], ("unequal loads",))]
)
def test_loads_of_experts(sizes: list[int], expected: tuple[str, ...]) -> None:
    grouped = getattr(nn.functional, "grouped_mm", None)
    if grouped is None:
        pytest.skip("this version of torch has no grouped_mm")
    ends = torch.tensor(sizes).cumsum(0).to(torch.int32)
    tokens, experts = torch.zeros(2048, 16, dtype=torch.bfloat16), torch.zeros(8, 16, 32, dtype=torch.bfloat16)
    operator = function_tuple(torch._grouped_mm, (tokens, experts, ends), {})
    assert patterns_of(operator, (tokens, experts, ends), {}) == expected
    drawn, _ = operator_inputs(operator, "cpu", InputData(patterns=tuple(map(Pattern, expected))))
    assert patterns_of(operator, drawn, {}) == expected
    assert drawn[2][-1] == 2048  # type: ignore[index]


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (torch.Tensor.__getitem__, (torch.zeros(ROWS), torch.arange(500).view(250, 2)[torch.randperm(250)])),
        (torch.Tensor.__getitem__, (torch.zeros(ROWS), (True, torch.randint(ROWS, (300,), generator=GENERATOR)))),
        (torch.Tensor.__getitem__, (torch.eye(4).to_sparse(), 0)),
        (torch.gather, (torch.zeros(ROWS, 512), 0, torch.tensor([[3]]).expand(1, 512))),
        (torch.where, (torch.zeros(1000, dtype=torch.bool),)),
    ],
)
def test_other_calls_have_no_pattern(function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    assert patterns_of(function_tuple(function, args, {}), args, {}) == ()


def test_sorted_indices_that_are_expanded_over_rows_reach_the_whole_table() -> None:
    args = (torch.zeros(64, ROWS), 1, torch.randint(ROWS, (512,), generator=GENERATOR).sort().values.expand(64, 512))
    operator = function_tuple(torch.gather, args, {})
    assert patterns_of(operator, args, {}) == ("sorted",)
    (_, _, index), _ = operator_inputs(operator, "cpu", InputData(patterns=(Pattern.SORTED,)))
    assert isinstance(index, torch.Tensor)
    assert index.unique().numel() > 300


def test_groups_by_keyword_are_found() -> None:
    ends = torch.arange(256, 2049, 256, dtype=torch.int32)
    tokens, experts = torch.zeros(2048, 16, dtype=torch.bfloat16), torch.zeros(8, 16, 32, dtype=torch.bfloat16)
    kwargs = {"mat2": experts, "offs": ends}
    assert patterns_of(function_tuple(torch._grouped_mm, (tokens,), kwargs), (tokens,), kwargs) == ()


@pytest.mark.parametrize("columns", [4, 5])
def test_functions_on_boxes_get_boxes(columns: int) -> None:
    nms = function_tuple(torch.ops.torchvision.nms, (torch.zeros(200, 4), torch.zeros(200), 0.5), {})
    align = (torch.zeros(2, 3, 50, 50), torch.zeros(200, 5), 0.25, 7, 7, 2, False)
    operator = nms if columns == 4 else function_tuple(torch.ops.torchvision.roi_align, align, {})
    args, _ = operator_inputs(operator, "cpu")
    boxes = args[columns - 4]
    assert isinstance(boxes, torch.Tensor)
    assert boxes.shape == (200, columns)
    assert (boxes[:, -4:-2] < boxes[:, -2:]).all()
    assert boxes.max() == {4: 800, 5: 200}[columns]
    operator_workload(operator, "cpu").run(1)


def test_large_tables_take_no_time() -> None:
    args = (torch.empty(10**8, device="meta"), torch.zeros(300, dtype=torch.int64))
    assert patterns_of(function_tuple(torch.take, args, {}), args, {}) == ()


def run_two_texts(self: Any, tokens: torch.Tensor) -> torch.Tensor:
    read: torch.Tensor = self.table(tokens) + self.table(torch.full_like(tokens, 3))
    return read


def test_calls_of_one_tuple_with_other_patterns_are_other_cases(tmp_path: Path) -> None:
    tokens = torch.randint(ROWS, (COUNT,), generator=GENERATOR)
    model = SmallModel(run_two_texts, table=nn.Embedding(ROWS, 4))
    counts = capture(ReadyModel(model.eval(), (tokens,)), model_operator("two_texts", None, (COUNT,)))

    def of_table(cases: dict[Case, int]) -> dict[str, int]:
        return {str(case.input_data): calls for case, calls in cases.items() if "Embedding" in case.operator.operator}

    seen = {"normal": 1, "captured: normal; patterns one row": 1}
    assert of_table(cases_of(counts.counts, "captured")) == seen
    assert of_table(cases_of(counts.counts, "normal")) == {"normal": 2}
    write_counts(tmp_path / "operators.pkl", counts)
    assert of_table(cases_of(read_counts(tmp_path / "operators.pkl", "count").counts, "captured")) == seen
    (shipped,) = counts_of(rows_of("two_texts", counts, "2026-11-25T00:00:00+00:00"))
    assert of_table(cases_of(shipped.counts.counts, "captured")) == seen


# Zeros in weights: the right share, at the same positions each time, and nothing else changes


CONV = module_tuple(nn.Conv2d(32, 64, 3).eval(), (torch.empty(2, 32, 8, 8),), {})
ATTENTION = module_tuple(nn.MultiheadAttention(64, 4).eval(), tuple(torch.empty(3, 5, 2, 64)), {})
LINEAR = OperatorTuple(
    "torch.nn.functional.linear",
    inputs=(
        TensorSpec((8, 128), "float32"),
        TensorSpec((256, 128), "float32", identity=1),
        TensorSpec((256,), "float32", identity=2),
    ),
    mode=None,
)
HALF_CONV = module_tuple(nn.Conv2d(32, 64, 3).eval().to(torch.bfloat16), (torch.empty(2, 32, 8, 8).bfloat16(),), {})


def share_of_zeros(tensor: torch.Tensor) -> float:
    return float((tensor == 0).float().mean())


@pytest.mark.parametrize("operator", [CONV, HALF_CONV, ATTENTION, LINEAR], ids=lambda one: one.short_name)
@pytest.mark.parametrize("zeros_ratio", [0.1, 0.5, 0.9, 1.0])
def test_weights_have_the_share_of_zeros(operator: OperatorTuple, zeros_ratio: float) -> None:
    function, args, _ = operator_call(operator, "cpu", InputData(weight_zeros_ratio=zeros_ratio))
    weights = matrices_of(function, args)
    assert weights
    # Three standard errors of a share of 4096 values.
    assert [share_of_zeros(weight) for weight in weights] == pytest.approx([zeros_ratio] * len(weights), abs=0.025)
    others = [one for one in args if isinstance(one, torch.Tensor) and all(one is not weight for weight in weights)]
    assert all(share_of_zeros(one) == 0 for one in others)


def test_positions_of_zeros_are_the_same_each_time() -> None:
    data = InputData(weight_zeros_ratio=0.5)
    one, other = (operator_call(CONV, "cpu", data)[0] for _ in range(2))
    assert isinstance(one, nn.Conv2d)
    assert isinstance(other, nn.Conv2d)
    assert torch.equal(one.weight == 0, other.weight == 0)
    assert one.bias is not None
    assert share_of_zeros(one.bias) == 0


def test_an_operator_runs_with_zeros_and_as_initialised_without() -> None:
    function, args, _ = operator_call(CONV, "cpu")
    assert [share_of_zeros(weight) for weight in matrices_of(function, args)] == [0]
    assert operator_workload(CONV, "cpu", InputData(weight_zeros_ratio=0.5)).run(2) == 2


@pytest.mark.parametrize("module", [nn.ReLU(), nn.LayerNorm(8), nn.BatchNorm2d(8)])
def test_an_operator_without_a_matrix_of_weights_has_no_zeros_in_them(module: nn.Module) -> None:
    operator = module_tuple(module.eval(), (torch.empty(2, 8, 4, 8),), {})
    with pytest.raises(CannotMeasureError, match="no weights"):
        operator_call(operator, "cpu", InputData(weight_zeros_ratio=0.5))
