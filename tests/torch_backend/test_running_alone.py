"""Layers that are more than their class says: their tuples run again alone, and do what was counted."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.ao import quantization
from torch.nn.utils import parametrizations
from torch.nn.utils.parametrize import register_parametrization
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from opcost.errors import CannotMeasureError
from opcost.operators.counts import OperatorCounts
from opcost.operators.texts import parse_tuple
from opcost.operators.tuples import OperatorTuple, Structure, model_operator
from opcost.torch_backend import alone
from opcost.torch_backend.alone import FIRST, difference, replay
from opcost.torch_backend.capture import capture, operator_modules, run_first
from opcost.torch_backend.inputs import operator_inputs
from opcost.torch_backend.ready_model import ReadyModel
from opcost.torch_backend.workload import operator_workload
from tests.small_model import SmallModel

pytestmark = [
    pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated"),
    pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor"),
    pytest.mark.filterwarnings("ignore:Please use quant_min"),
    pytest.mark.filterwarnings("ignore:must run observer"),
]

MODEL = model_operator("resnet18", None, (2, 3, 8, 8))
IMAGE, TOKENS = torch.randn(2, 4, 9, 9), torch.randn(3, 5, 8)
PLACES = 2 * 7 * 7
"""The places of the output of a convolution of 3 x 3 on ``IMAGE``."""


def counts_of(model: nn.Module, x: torch.Tensor) -> OperatorCounts:
    """Count a model, and check that all of its work is in tuples that do the same alone."""
    counts = capture(run_first(ReadyModel(model.eval(), (x,))), MODEL)
    found = {str(count.operator): difference(count, "cpu") for count in counts.counts}
    assert {text: one.text for text, one in found.items() if one is not None} == {}
    assert (counts.outside, counts.flop_missing_reason) == ((), None)
    assert (counts.flop, counts.memory_bytes) == (counts.total_flop, counts.total_memory_bytes)
    return counts


def names(counts: OperatorCounts) -> list[str]:
    return [count.operator.operator.removeprefix("torch.") for count in counts.counts]


# Packed sequences


class PackedLayer(nn.Module):
    def __init__(self, layer: nn.Module, lengths: list[int], **options: Any) -> None:
        super().__init__()
        self.layer, self.lengths, self.options = layer, torch.tensor(lengths), options

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        packed = pack_padded_sequence(x, self.lengths, batch_first=True, **self.options)
        return pad_packed_sequence(self.layer(packed)[0], batch_first=True)[0]


SORTED, UNSORTED = [20, 12, 5], [12, 20, 5]
SEQUENCES = torch.randn(3, 20, 32)
STEPS = 20 + 12 + 5


@pytest.mark.parametrize(
    ("layer", "lengths", "flop"),
    [
        (nn.LSTM(32, 48, batch_first=True), SORTED, 2 * STEPS * 4 * 48 * (32 + 48)),
        (nn.GRU(32, 48, batch_first=True, bidirectional=True), SORTED, 2 * 2 * STEPS * 3 * 48 * (32 + 48)),
        (nn.RNN(32, 48), SORTED, 2 * STEPS * 48 * (32 + 48)),
        (nn.LSTM(32, 48, num_layers=2, bidirectional=True), UNSORTED, 2 * 2 * STEPS * 4 * 48 * (32 + 48 + 2 * 48 + 48)),
    ],
    ids=["LSTM", "GRU", "RNN", "unsorted"],
)
def test_a_recurrent_layer_on_a_packed_sequence_runs_alone(layer: nn.Module, lengths: list[int], flop: int) -> None:
    counts = counts_of(PackedLayer(layer, lengths, enforce_sorted=lengths == SORTED), SEQUENCES)
    assert counts.flop == flop
    (whole,) = [count.operator for count in counts.counts if not count.operator.is_function]
    assert whole.short_name == type(layer).__name__
    (args, _) = operator_inputs(whole, "cpu")
    assert args[0].batch_sizes.tolist() == [3] * 5 + [2] * 7 + [1] * 8  # type: ignore[attr-defined]
    assert parse_tuple(str(whole)).key == whole.key


def test_packed_sequences_of_other_lengths_are_other_tuples() -> None:
    one, other = (counts_of(PackedLayer(nn.LSTM(32, 48), lengths), SEQUENCES) for lengths in (SORTED, [20, 10, 7]))
    assert one.flop == other.flop
    assert {count.operator.key for count in one.counts}.isdisjoint(count.operator.key for count in other.counts)


def test_a_packed_sequence_is_measured_and_counted_on_shapes() -> None:
    layer = PackedLayer(nn.LSTM(32, 48), SORTED)
    counts = counts_of(layer, SEQUENCES)
    for count in counts.counts:
        operator_workload(count.operator, "cpu").run(2)
    on_shapes = capture(ReadyModel(layer.to("meta").eval(), (SEQUENCES.to("meta"),)), MODEL)
    assert on_shapes.flop == counts.flop


# Parametrised weights


def with_parametrization(layer: nn.Module) -> nn.Module:
    register_parametrization(layer, "weight", SmallModel(lambda self, weight: weight * 2))
    return layer


@pytest.mark.parametrize(
    ("layer", "x", "flop"),
    [
        (parametrizations.weight_norm(nn.Conv2d(4, 8, 3)), IMAGE, 2 * PLACES * 8 * 4 * 9),
        # The norm is u^T W v.
        (parametrizations.spectral_norm(nn.Linear(8, 6)), TOKENS, 2 * 15 * 8 * 6 + 2 * 6 * 8 + 2 * 6),
        # Five products of matrices for the exponential, one with the base.
        (parametrizations.orthogonal(nn.Linear(8, 8)), TOKENS, 2 * 15 * 8 * 8 + (5 + 1) * 2 * 8**3),
        (with_parametrization(nn.Linear(8, 6)), TOKENS, 2 * 15 * 8 * 6),
    ],
    ids=["weight_norm", "spectral_norm", "orthogonal", "own"],
)
def test_parametrised_layers_are_functions_that_run_alone(layer: nn.Module, x: torch.Tensor, flop: int) -> None:
    counts = counts_of(nn.Sequential(layer), x)
    assert counts.flop == flop
    assert {"nn.functional.linear", "nn.functional.conv2d"} & {*names(counts)}
    assert not {"nn.Linear", "nn.Conv2d"} & {*names(counts)}


@pytest.mark.parametrize(("path", "name"), [("attention", "in_proj_weight"), ("attention.out_proj", "weight")])
def test_attention_with_a_parametrised_weight_is_not_taken_for_plain_attention(path: str, name: str) -> None:
    model = SmallModel(
        lambda self, x: self.attention(x, x, x, need_weights=False)[0],
        attention=nn.MultiheadAttention(8, 2, batch_first=True),
    )
    parametrizations.weight_norm(model.get_submodule(path), name)
    counts = counts_of(model, TOKENS)
    assert "nn.MultiheadAttention" not in names(counts)
    assert counts.flop == 2 * 3 * 5 * 4 * 8 * 8 + 2 * 2 * 3 * 5 * 5 * 8


# Quantised layers


def dynamic(model: nn.Module, dtype: torch.dtype = torch.qint8) -> nn.Module:
    layers = {nn.Linear, nn.LSTM, nn.GRU, nn.LSTMCell}
    return quantization.quantize_dynamic(nn.Sequential(model), layers, dtype=dtype)


def static(model: nn.Module, x: torch.Tensor) -> nn.Module:
    model = nn.Sequential(quantization.QuantStub(), model, quantization.DeQuantStub()).eval()
    model.qconfig = quantization.get_default_qconfig("x86")
    observed = quantization.prepare(model)
    observed(x)
    return quantization.convert(observed)


def test_quantised_linears_have_their_weights_in_8_bits() -> None:
    counts = counts_of(dynamic(nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))), torch.randn(32, 64))
    assert counts.flop == 2 * 32 * (64 * 128 + 128 * 10)
    assert counts.parameters == 64 * 128 + 128 + 128 * 10 + 10
    first, _, last = counts.counts
    assert first.memory_bytes == 32 * 64 * 4 + 64 * 128 + 128 * 4 + 32 * 128 * 4
    assert last.memory_bytes == 32 * 128 * 4 + 128 * 10 + 10 * 4 + 32 * 10 * 4
    assert sum(one.weights for one in counts.modules if one.path in ("0.0", "0.2")) == counts.parameters
    assert parse_tuple(str(first.operator)).key == first.operator.key
    operator_workload(first.operator, "cpu").run(2)


def test_linears_in_16_bits_have_their_weights_in_them() -> None:
    counts = counts_of(dynamic(nn.Linear(64, 128), torch.float16), torch.randn(32, 64))
    assert counts.flop == 2 * 32 * 64 * 128
    assert counts.memory_bytes == 32 * 64 * 4 + 64 * 128 * 2 + 128 * 4 + 32 * 128 * 4


def test_quantised_recurrent_layers_run_alone() -> None:
    model = dynamic(PackedLayer(nn.LSTM(32, 48, num_layers=2, bidirectional=True), UNSORTED, enforce_sorted=False))
    counts = counts_of(model, SEQUENCES)
    matrices = 2 * 4 * 48 * (32 + 48 + 2 * 48 + 48)
    assert counts.flop == 2 * STEPS * matrices
    assert counts.parameters >= matrices
    assert counts_of(dynamic(nn.GRU(8, 6)), TOKENS).flop == 2 * 15 * 3 * 6 * (8 + 6)
    assert counts_of(dynamic(nn.LSTMCell(8, 6)), TOKENS[0]).flop == 2 * 5 * 4 * 6 * (8 + 6)


@pytest.mark.parametrize(
    ("layer", "x", "flop"),
    [
        (nn.Conv2d(4, 8, 3), IMAGE, 2 * PLACES * 8 * 4 * 9),
        (nn.Conv2d(4, 8, 3, groups=2, bias=False), IMAGE, 2 * PLACES * 8 * 2 * 9),
        (nn.Conv1d(9, 8, 3), IMAGE[0], 2 * 4 * 7 * 8 * 9 * 3),
        (nn.Conv3d(4, 8, 3), IMAGE.unsqueeze(2).repeat(1, 1, 3, 1, 1), 2 * PLACES * 8 * 4 * 27),
        (nn.Linear(9, 6), IMAGE, 2 * 2 * 4 * 9 * 9 * 6),
    ],
    ids=["Conv2d", "groups", "Conv1d", "Conv3d", "Linear"],
)
def test_layers_of_quantised_values_run_alone(layer: nn.Module, x: torch.Tensor, flop: int) -> None:
    weights = sum(weight.numel() for weight in layer.parameters())
    counts = counts_of(static(nn.Sequential(layer, nn.ReLU()), x), x)
    assert (counts.flop, counts.parameters) == (flop, weights)
    (product,) = [count for count in counts.counts if count.flop]
    assert product.operator.operator.startswith("torch.ops.quantized.")
    bias = 0 if layer.bias is None else 4 * layer.bias.numel()
    out = layer(x).numel()
    assert product.memory_bytes == x.numel() + layer.weight.numel() + bias + out


def test_transposed_quantised_convolutions_run_alone() -> None:
    model = nn.Sequential(quantization.QuantStub(), nn.ConvTranspose2d(4, 8, 3, 2), nn.Hardswish()).eval()
    model.qconfig = quantization.get_default_qconfig("qnnpack")
    observed = quantization.prepare(model)
    observed(IMAGE)
    counts = counts_of(quantization.convert(observed), IMAGE)
    assert counts.flop == 2 * 2 * 9 * 9 * 4 * 8 * 9


def test_of_a_quantised_table_rows_are_read_as_far_as_they_are_indexed() -> None:
    model = nn.Sequential(nn.Embedding(5000, 16)).eval()
    model.qconfig = quantization.float_qparams_weight_only_qconfig
    counts = counts_of(quantization.convert(quantization.prepare(model)), torch.randint(0, 5000, (5, 3)))
    assert counts.parameters == 5000 * 16
    assert counts.memory_bytes == 15 * 16 + 15 * 8 + 15 * 16 * 4


@pytest.mark.parametrize("name", ["cuda.Stream", "quantized.NoClass"])
def test_an_object_of_another_class_is_not_made(name: str) -> None:
    (count, *_) = counts_of(dynamic(nn.Linear(8, 6)), TOKENS).counts
    kind = next(value.kind for value in count.operator.inputs if isinstance(value, Structure))
    structure = Structure(kind, (("class_name", name), ("state", ())))
    operator = OperatorTuple(count.operator.operator, inputs=(count.operator.inputs[0], structure), mode=None)
    with pytest.raises((CannotMeasureError, RuntimeError)):
        operator_inputs(operator, "cpu")


# Subclasses and instances with methods of their own


class Scaled(nn.Conv2d):
    def _conv_forward(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return super()._conv_forward(x * 2, weight, bias)


class Checked(nn.LSTM):
    def check_forward_args(self, x: torch.Tensor, hidden: Any, batch_sizes: Any) -> None:
        super().check_forward_args(x * 2, hidden, batch_sizes)


class Transposed(nn.Linear):
    def __init__(self) -> None:
        super().__init__(8, 6)
        self.stored = nn.Parameter(self._parameters.pop("weight").detach().t())  # type: ignore[union-attr]

    @property
    def weight(self) -> torch.Tensor:  # type: ignore[override]
        return self.stored.t().clone()


class Prepared(nn.Conv2d):
    def __init__(self) -> None:
        super().__init__(4, 8, 3)

    def extra_repr(self) -> str:
        return "prepared"


def on_an_instance() -> nn.Module:
    layer = nn.Conv2d(4, 8, 3)
    forward = layer._conv_forward
    layer._conv_forward = lambda x, *weights: forward(x * 2, *weights)  # type: ignore[method-assign]
    return layer


def pruned() -> nn.Module:
    layer = nn.Linear(8, 6)
    layer.weight = nn.Parameter(layer.weight.detach()[:4].clone())
    layer.bias = nn.Parameter(layer.bias.detach()[:4].clone())
    return layer


@pytest.mark.parametrize(
    ("make", "x", "expected", "flop"),
    [
        (lambda: Scaled(4, 8, 3), IMAGE, ["Tensor.mul", "nn.functional.conv2d"], 2 * PLACES * 8 * 4 * 9),
        (on_an_instance, IMAGE, ["Tensor.mul", "nn.functional.conv2d"], 2 * PLACES * 8 * 4 * 9),
        (lambda: Checked(8, 6), TOKENS, ["zeros", "Tensor.mul", "lstm"], 2 * 15 * 4 * 6 * (8 + 6)),
        (Transposed, TOKENS, ["Tensor.clone", "nn.functional.linear"], 2 * 15 * 8 * 6),
        (pruned, TOKENS, ["nn.functional.linear"], 2 * 15 * 8 * 4),
        (Prepared, IMAGE, ["nn.Conv2d"], 2 * PLACES * 8 * 4 * 9),
    ],
    ids=["method", "instance", "LSTM", "property", "weights", "constructor"],
)
def test_a_layer_is_torchs_only_if_all_that_its_forward_uses_is(
    make: Callable[[], nn.Module], x: torch.Tensor, expected: list[str], flop: int
) -> None:
    counts = counts_of(nn.Sequential(make()), x)
    assert names(counts) == expected
    assert counts.flop == flop


def encoder(**options: Any) -> nn.TransformerEncoderLayer:
    return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, **options)


ENCODER_FLOP = 2 * 3 * 5 * 4 * 8 * 8 + 2 * 2 * 3 * 5 * 5 * 8 + 2 * 2 * 3 * 5 * 8 * 16


@pytest.mark.parametrize(
    "options",
    [{}, {"activation": "gelu", "norm_first": True, "layer_norm_eps": 1e-6}, {"activation": nn.GELU()}],
    ids=["relu", "gelu", "module"],
)
def test_an_encoder_layer_runs_alone_on_its_fast_path(options: dict[str, Any]) -> None:
    counts = counts_of(nn.Sequential(encoder(**options)), TOKENS)
    assert [count.operations for count in counts.counts] == [(("_transformer_encoder_layer_fwd", 1),)]
    assert counts.flop == ENCODER_FLOP


def hooked() -> Iterator[nn.Module]:
    for choose in (lambda layer: layer, lambda layer: layer.linear1):
        layer = encoder()
        choose(layer).register_forward_hook(lambda *_: None)
        yield layer


@pytest.mark.parametrize("layer", [*hooked(), encoder(activation=nn.functional.silu)], ids=["layer", "part", "silu"])
def test_an_encoder_layer_off_its_fast_path_is_its_parts(layer: nn.Module) -> None:
    counts = counts_of(nn.Sequential(layer), TOKENS)
    assert {"nn.MultiheadAttention", "nn.Linear", "nn.LayerNorm"} < {*names(counts)}
    assert counts.flop == ENCODER_FLOP


def test_the_choice_of_operators_draws_no_numbers_and_counts_nothing() -> None:
    model = nn.Sequential(nn.Linear(8, 61), nn.ReLU(), encoder(), nn.LSTM(8, 67))
    state = torch.get_rng_state()
    assert [*operator_modules(model)] == [*model]
    assert torch.equal(torch.get_rng_state(), state)
    counts = capture(ReadyModel(nn.Sequential(nn.Linear(8, 71)), (TOKENS,)), MODEL)
    assert counts.memory_bytes == counts.total_memory_bytes


class Kept(nn.LayerNorm):
    """Keeps its dtype."""

    def _apply(self, *_: Any, **__: Any) -> Any:
        return self


def test_a_layer_is_torchs_if_what_differs_is_used_by_no_forward_or_is_observed() -> None:
    assert names(counts_of(nn.Sequential(Kept(8)), TOKENS)) == ["nn.LayerNorm"]
    assert names(counts_of(Sharing(), TOKENS)) == ["nn.TransformerEncoderLayer", "nn.LayerNorm"]


def test_the_users_default_dtype_changes_no_later_choice() -> None:
    model = nn.Sequential(nn.Linear(8, 59), nn.LayerNorm(59))
    torch.set_default_dtype(torch.bfloat16)
    try:
        chosen = [*operator_modules(model)]
    finally:
        torch.set_default_dtype(torch.float32)
    assert chosen == [*operator_modules(model)] == [*model]


class Sharing(nn.Module):
    """Has a part of another part under a name of its own, before it."""

    def __init__(self) -> None:
        super().__init__()
        layer = encoder()
        self.norm, self.layer = layer.norm1, layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.layer(x))  # type: ignore[no-any-return]


# Counts beside what runs alone


@pytest.mark.parametrize(
    ("call", "expected"),
    [(lambda self, x: x.relu(), ["meta"]), (lambda self, x: x.nonzero(), ["meta", "cpu"])],
    ids=["on shapes", "on values"],
)
def test_a_count_of_a_cpu_is_compared_on_values_only_if_shapes_differ_and_once_for_all_tries(
    call: Callable[..., torch.Tensor], expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (count,) = capture(run_first(ReadyModel(SmallModel(call), (IMAGE,))), MODEL).counts
    found, devices = difference(count, "cpu"), []

    def noting(operator: OperatorTuple, device: str, *rest: Any) -> Any:
        devices.append(device)
        return replay(operator, device, *rest)

    monkeypatch.setattr(alone, "replay", noting)
    assert [alone.quick_difference(count, "cpu", "cuda:0", "fp32") for _ in range(3)] == [found] * 3
    assert devices == expected


@pytest.mark.parametrize("text", FIRST)
def test_what_loads_libraries_runs(text: str) -> None:
    """One that does not is left out in silence."""
    operator = parse_tuple(text)
    operator_workload(operator, "cpu").run(1)
    assert replay(operator, "meta")[1]
