"""On the meta device operators give what they give on a CPU: shapes, layouts, and the same operations."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from opcost.operators.counts import OperatorCounts
from opcost.operators.training import Training
from opcost.operators.tuples import OperatorTuple, Phase
from opcost.torch_backend.capture import capture, run_first
from opcost.torch_backend.cost_counter import CostCounter, OperationCost, operations_of, tensors_of, total
from opcost.torch_backend.meta_device import like_a_device
from opcost.torch_backend.passes import in_phase
from opcost.torch_backend.ready_model import ReadyModel
from opcost.torch_backend.training_step import training_step
from tests.small_model import SmallModel, of_class

IMAGE = torch.zeros(2, 4, 8, 8)
CHANNELS_LAST = IMAGE.contiguous(memory_format=torch.channels_last)
SEQUENCE = torch.zeros(3, 5, 8)


def run(module: nn.Module, device: str, *args: torch.Tensor, **kwargs: object) -> tuple[object, list[OperationCost]]:
    costs: list[OperationCost] = []
    model, inputs = module.eval().to(device), [x.to(device) for x in args]
    with torch.inference_mode(), like_a_device(), CostCounter(costs.append):
        result = model(*inputs, **kwargs)
    return result, costs


@pytest.mark.parametrize("image", [IMAGE, CHANNELS_LAST], ids=["contiguous", "channels_last"])
@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Conv2d(4, 6, 3),
        lambda: nn.Conv2d(4, 4, 3, groups=4),
        lambda: nn.ConvTranspose2d(4, 6, 2, stride=2),
        lambda: nn.Conv2d(4, 6, 3).to(memory_format=torch.channels_last),
        lambda: nn.Conv2d(4, 6, 1).to(memory_format=torch.channels_last),
        lambda: nn.Conv2d(4, 4, 3, groups=4).to(memory_format=torch.channels_last),
        lambda: nn.Sequential(
            nn.Conv2d(4, 6, 3, bias=False), nn.BatchNorm2d(6), nn.ReLU(inplace=True), nn.MaxPool2d(2)
        ),
    ],
)
def test_images_come_out_in_the_same_layout_at_the_same_cost(
    image: torch.Tensor, make: Callable[[], nn.Module]
) -> None:
    (here, costs), (there, meta_costs) = run(make(), "cpu", image), run(make(), "meta", image)
    assert isinstance(here, torch.Tensor)
    assert isinstance(there, torch.Tensor)
    assert (here.shape, here.stride(), here.dtype) == (there.shape, there.stride(), there.dtype)
    assert costs == meta_costs


def heads(number: int, length: int, width: int = 8) -> torch.Tensor:
    return torch.zeros(2, length, number, width).transpose(1, 2)


MASK = torch.ones(2, 1, 5, 5, dtype=torch.bool)


@pytest.mark.parametrize(
    ("tensors", "keywords"),
    [
        ((heads(4, 5), heads(4, 5), heads(4, 5)), {}),
        ((heads(4, 5), heads(4, 7), heads(4, 7)), {"scale": 0.5}),
        ((heads(4, 5), heads(4, 5), heads(4, 5)), {"is_causal": True}),
        ((heads(4, 5), heads(2, 5), heads(2, 5)), {"is_causal": True, "enable_gqa": True}),
        ((heads(4, 5), heads(4, 5), heads(4, 5), MASK), {}),
        ((heads(4, 5), heads(4, 5), heads(4, 5), MASK.float()), {}),
        ((heads(4, 5), heads(4, 5), heads(4, 5), torch.ones(5, 5)), {}),
        ((heads(4, 5), heads(4, 5), heads(4, 5, 6)), {}),
        ((heads(4, 5)[0], heads(4, 5)[0], heads(4, 5)[0]), {}),
        # torch fuses none of these.
        ((torch.zeros(2, 3, 4, 5, 8),) * 3, {}),
        ((torch.zeros(5, 8),) * 3, {}),
        ((heads(4, 5), heads(4, 7)[:1], heads(4, 7)[:1]), {}),
        ((heads(4, 5), heads(4, 5), heads(4, 5), torch.ones(4, 5, 5)), {}),
        ((torch.zeros(2, 4, 8, 5).mT,) * 3, {}),
    ],
    ids="self,cross,causal,grouped,mask,float mask,one mask,other width,without batch,windows,without heads,one batch,"
    "mask by head,columns".split(","),
)
def test_attention_runs_the_kernels_of_a_cpu(tensors: tuple[torch.Tensor, ...], keywords: dict[str, object]) -> None:
    class Attention(nn.Module):
        def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
            return nn.functional.scaled_dot_product_attention(*tensors, **keywords)  # type: ignore[arg-type]

    (here, costs), (there, meta_costs) = run(Attention(), "cpu", *tensors), run(Attention(), "meta", *tensors)
    assert isinstance(here, torch.Tensor)
    assert isinstance(there, torch.Tensor)
    assert (here.shape, here.stride(), here.dtype) == (there.shape, there.stride(), there.dtype)
    assert sum(cost.flop or 0 for cost in costs) == sum(cost.flop or 0 for cost in meta_costs)
    assert [(cost.operation, cost.memory_bytes) for cost in costs] == [
        (cost.operation, cost.memory_bytes) for cost in meta_costs
    ]


@pytest.mark.parametrize("keywords", [{"need_weights": False}, {}, {"average_attn_weights": False}])
def test_attention_takes_its_native_path(keywords: dict[str, bool]) -> None:
    (here, costs), (there, meta_costs) = (
        run(
            SmallModel(
                lambda self, x: self.attention(x, x, x, **keywords),
                attention=nn.MultiheadAttention(8, 2, batch_first=True),
            ),
            device,
            SEQUENCE,
        )
        for device in ("cpu", "meta")
    )
    assert [cost.operation for cost in costs] == ["_native_multi_head_attention"]
    assert costs == meta_costs
    assert [None if x is None else x.shape for x in here] == [None if x is None else x.shape for x in there]  # type: ignore[attr-defined]


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_encoder_layers_take_their_native_path(norm_first: bool, activation: str) -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, norm_first=norm_first, activation=activation, batch_first=True)
    (here, costs), (there, meta_costs) = (run(layer, device, SEQUENCE) for device in ("cpu", "meta"))
    assert [x.shape for x in tensors_of(here)] == [x.shape for x in tensors_of(there)]
    assert costs == meta_costs
    assert [cost.operation for cost in costs] == ["_transformer_encoder_layer_fwd"]


STEPS = torch.zeros(4, 6, 8)


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.LSTM(8, 5, 2, batch_first=True),
        lambda: nn.LSTM(8, 5, bidirectional=True, bias=False),
        lambda: nn.LSTM(8, 5, 2, proj_size=3, bidirectional=True),
        lambda: nn.LSTM(8, 5, 2, bidirectional=True, batch_first=True),
        lambda: nn.LSTM(8, 5, 2, dtype=torch.float64),
        lambda: nn.GRU(8, 5, 2, batch_first=True),
        lambda: nn.GRU(8, 5, bidirectional=True, bias=False),
        lambda: nn.RNN(8, 5, 2, nonlinearity="relu"),
        lambda: nn.RNN(8, 5, bidirectional=True, batch_first=True),
    ],
)
@pytest.mark.parametrize("is_single", [True, False])
def test_recurrent_layers_run_the_operations_of_a_cpu(make: Callable[[], nn.Module], is_single: bool) -> None:
    layer = make()
    steps = (STEPS[0] if is_single else STEPS).to(next(layer.parameters()).dtype)
    (here, costs), (there, meta_costs) = run(layer, "cpu", steps), run(layer, "meta", steps)
    forms = [[(x.shape, x.stride(), x.dtype) for x in tensors_of(result)] for result in (here, there)]
    assert forms[0] == forms[1]
    assert operations_of(costs) == operations_of(meta_costs)
    assert total(costs) == total(meta_costs)


def test_the_switches_of_torch_decide_as_on_a_cpu() -> None:
    class Attention(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with sdpa_kernel(SDPBackend.MATH):
                return nn.functional.scaled_dot_product_attention(x, x, x)

    (_, costs), (_, meta_costs) = run(Attention(), "cpu", heads(4, 5)), run(Attention(), "meta", heads(4, 5))
    assert costs == meta_costs
    assert "bmm" in {cost.operation for cost in costs}


def test_attention_of_any_size_takes_no_memory() -> None:
    model = of_class("Attention", lambda self, x: nn.functional.scaled_dot_product_attention(x, x, x))
    _, (cost,) = run(model, "meta", torch.zeros(1, device="meta").expand(2**20, 8, 2**20, 64).contiguous())
    assert cost.operation == "_scaled_dot_product_flash_attention_for_cpu"


def test_a_vision_transformer_of_windows_and_reduced_keys_costs_the_same() -> None:
    timm = pytest.importorskip("timm")
    for name in ("pvt_v2_b0", "twins_svt_small"):
        model, image = timm.create_model(name, depths=(1, 1, 1, 1)), torch.zeros(1, 3, 64, 64)
        (_, costs), (_, meta_costs) = run(model, "cpu", image), run(model, "meta", image)
        assert total(costs) == total(meta_costs)
        assert operations_of(costs) == operations_of(meta_costs)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("keywords", [{}, {"padding_idx": 1}, {"include_last_offset": True}])
def test_bags_of_embeddings_note_what_they_note_on_a_cpu(mode: str, keywords: dict[str, int]) -> None:
    layer = nn.EmbeddingBag(10, 8, mode=mode, **keywords)
    given = torch.zeros(7, dtype=torch.long), torch.tensor([0, 3, 7])
    (_, costs), (_, meta_costs) = run(layer, "cpu", *given), run(layer, "meta", *given)
    assert costs == meta_costs


class Attention(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.dropout, self.heads, self.head = dropout, nn.Linear(16, 48), nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (one.unflatten(-1, (2, 8)).transpose(1, 2) for one in self.heads(x).chunk(3, -1))
        found = nn.functional.scaled_dot_product_attention(query, key, value, dropout_p=self.dropout)
        return self.head(found.transpose(1, 2).flatten(2)).mean(1)


def step_on(device: str, dropout: float, optimizer: str) -> OperatorCounts:
    with in_phase(Phase.STEP):
        ready = ReadyModel.of(Attention(dropout).to(device), torch.randn(4, 6, 16, device=device))
        return capture(run_first(training_step(ready, Training(optimizer=optimizer), device)), OperatorTuple("net"))


def test_a_training_step_with_attention_has_the_calls_of_a_cpu() -> None:
    here, there = step_on("cpu", 0.0, "sgd"), step_on("meta", 0.0, "sgd")
    calls = [{(one.operator, one.phase): one.occurrences for one in counts.counts} for counts in (here, there)]
    assert calls[0] == calls[1]
    assert (here.total_flop, here.total_memory_bytes) == (there.total_flop, there.total_memory_bytes)


def test_in_a_training_step_attention_with_dropout_is_fused_and_an_optimiser_is_that_of_a_gpu() -> None:
    names = {name for one in step_on("meta", 0.1, "adamw").counts for name, _ in one.operations}
    attention = "_scaled_dot_product_flash_attention_for_cpu"
    assert {attention, f"{attention}_backward", "_foreach_pow", "_foreach_reciprocal_"} <= names
    assert not {"bmm", "_safe_softmax"} & names


def test_nothing_is_left_of_it_afterwards() -> None:
    attention = nn.MultiheadAttention(8, 2, batch_first=True).eval().to("meta")
    run(attention, "meta", SEQUENCE, SEQUENCE, SEQUENCE)
    costs: list[OperationCost] = []
    x = SEQUENCE.to("meta")
    with torch.inference_mode(), CostCounter(costs.append):
        attention(x, x, x)
    assert "_native_multi_head_attention" not in {cost.operation for cost in costs}
