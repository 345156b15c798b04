"""Paths of calls: which module of a model calls an operator, and in which order."""

import inspect
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torchvision.models import resnet50

from opcost.operators.counts import EVERYTHING, CalledModule, OperatorCounts, at_level, levels_of, select
from opcost.operators.tuples import model_operator
from opcost.storage.counts_file import read_counts, write_counts
from opcost.torch_backend.capture import capture
from opcost.torch_backend.ready_model import ReadyModel
from tests.small_model import SmallModel

MODEL = model_operator("resnet18", None, (2, 4))


def counts_of(model: nn.Module, *inputs: Tensor, composites: tuple[str, ...] = (), **keywords: Any) -> OperatorCounts:
    return capture(ReadyModel(model.eval(), inputs, keywords), MODEL, composites)


def calls_of(counts: OperatorCounts) -> list[tuple[str, str]]:
    """Return the path and the operator of each call, in order."""
    calls = [
        (position, counts.modules[caller].path, count.operator.short_name)
        for count in counts.counts
        for position, caller in zip(count.positions, count.callers, strict=True)
    ]
    assert sorted(position for position, _, _ in calls) == list(range(counts.operator_calls))
    return [(path, name) for _, path, name in sorted(calls)]


class Block(nn.Module):
    """Calls one layer twice, and a function between its layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.activation = nn.Linear(4, 4), nn.Linear(4, 4), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.activation(self.second(self.activation(self.first(x))) + x)
        return found


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(Block(), Block())
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor, *, scale: float = 2.0) -> Tensor:
        return torch.softmax(self.head(self.blocks(x)) * scale, -1)


def test_each_call_has_its_place_and_the_path_of_its_module() -> None:
    block = [("first", "Linear"), ("activation", "ReLU"), ("second", "Linear"), ("", "add"), ("activation", "ReLU")]
    expected = [(f"blocks.{index}.{path}".rstrip("."), name) for index in (0, 1) for path, name in block]
    assert calls_of(counts_of(Net(), torch.ones(2, 4))) == [
        *expected,
        *(("head", "Linear"), ("", "mul"), ("", "softmax")),
    ]


def test_modules_have_their_class_and_parameters_and_those_around_them_are_there() -> None:
    net = Net()
    modules = counts_of(net, torch.ones(2, 4)).modules
    assert tuple(replace(module, input_sizes=None, output_sizes=None) for module in modules) == tuple(
        CalledModule(path, type(module).__name__, sum(weight.numel() for weight in module.parameters()))
        for path, module in net.named_modules()
    )


def test_modules_that_are_no_operators_have_the_sizes_of_their_first_call() -> None:
    def run_wraps(self: Any, x: Tensor, *, more: Mapping[str, Any]) -> dict[str, Any]:
        return {"a": x.flatten() + 1, "b": [x > 0, "text"], "c": [x + number for number in range(9)], "d": more}

    class Calls(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wraps, self.linear = SmallModel(run_wraps), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            self.wraps(x, more={"mask": x > 0, "other": x})
            found: Tensor = self.linear(self.wraps(x[:1], more={})["a"].reshape(1, 4))
            return found

    whole, wraps, linear = counts_of(Calls(), torch.ones(2, 4)).modules
    assert (whole.input_sizes, whole.output_sizes) == ("2x4", "1x2")
    assert (wraps.input_sizes, wraps.output_sizes) == ("2x4, bool 2x4", "8, bool 2x4, 2x4, 2x4, ...")
    assert (linear.input_sizes, linear.output_sizes) == (None, None)


def test_a_shared_module_has_its_first_path_and_functions_have_that_of_their_module() -> None:
    shared = nn.Linear(4, 4)
    model = nn.Sequential(shared, nn.ReLU(), nn.Sequential(shared, shared))
    assert calls_of(counts_of(model, torch.ones(2, 4))) == [
        *(("0", "Linear"), ("1", "ReLU"), ("0", "Linear"), ("0", "Linear"))
    ]
    model = SmallModel(lambda self, x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True)))
    found = calls_of(counts_of(nn.Sequential(nn.Linear(4, 4), model), torch.ones(2, 4)))
    assert found == [("0", "Linear"), *(("1", name) for name in ("pow", "mean", "rsqrt", "mul"))]


def test_a_composite_is_one_call_with_its_own_path() -> None:
    def attends(self: Any, x: Tensor) -> Tensor:
        found: Tensor = self.attention(x, x, x, need_weights=False)[0]
        return found

    counts = counts_of(
        nn.Sequential(SmallModel(attends, attention=nn.MultiheadAttention(8, 2, batch_first=True))), torch.ones(1, 3, 8)
    )
    assert calls_of(counts) == [("0.attention", "MultiheadAttention")]
    assert [module.path for module in counts.modules] == ["", "0", "0.attention"]
    own = counts_of(nn.Sequential(Block(), nn.Linear(4, 4)), torch.ones(2, 4), composites=("Block",))
    assert calls_of(own) == [("0", "Block"), ("1", "Linear")]


def test_calls_after_an_exception_that_the_model_catches_have_their_own_path() -> None:
    def fails(self: Any, x: Tensor) -> Tensor:
        raise ValueError

    def catches(self: Any, x: Tensor) -> Tensor:
        try:
            found: Tensor = self.inner(x)
        except ValueError:
            found = x + 1
        return found

    assert calls_of(
        counts_of(nn.Sequential(SmallModel(catches, inner=nn.Sequential(SmallModel(fails)))), torch.ones(2))
    ) == [("0", "add")]


def test_a_module_sees_its_own_signature_and_keeps_a_forward_of_its_own() -> None:
    seen: list[Mapping[str, inspect.Parameter]] = []

    class Looks(nn.Module):
        def forward(self, x: Tensor, *, factor: float = 2.0) -> Tensor:
            seen.append(inspect.signature(self.forward).parameters)
            return x * factor

    model = nn.Sequential(Looks())
    own = model[0].forward
    object.__setattr__(model[0], "forward", own)
    assert calls_of(counts_of(model, torch.ones(2))) == [("0", "mul")]
    assert list(seen[0]) == ["x", "factor"]
    assert vars(model[0])["forward"] is own


def test_names_that_cannot_be_printed_are_replaced() -> None:
    class Odd(nn.ModuleDict):
        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = self["a\nb"](x)
            return found

    assert calls_of(counts_of(Odd({"a\nb": nn.ReLU()}), torch.ones(2))) == [("a?b", "ReLU")]


def test_selected_counts_keep_the_places_of_their_calls() -> None:
    counts = counts_of(Net(), torch.ones(2, 4))
    kept, dropped = select(counts, ["Linear"]).kept, select(counts, [EVERYTHING]).dropped
    assert {count.positions for count in kept.counts} == {(0, 2, 5, 7), (10,)}
    assert (kept.modules, dropped.counts) == (counts.modules, ())


def test_the_calls_of_resnet50_are_in_the_order_of_execution() -> None:
    model = resnet50().eval()
    ran: list[str] = []
    for path, module in model.named_modules():
        if not list(module.children()):
            module.register_forward_hook(lambda *_, path=path: ran.append(path))
    counts = counts_of(model, torch.zeros(1, 3, 64, 64))
    found = calls_of(counts)
    # Classes begin with a capital.
    assert [path for path, name in found if name[0].isupper()] == ran
    assert found.count(("layer4.2", "add_")) == 1
    assert found[:4] == [("conv1", "Conv2d"), ("bn1", "BatchNorm2d"), ("relu", "ReLU"), ("maxpool", "MaxPool2d")]
    assert found.count(("layer1.0.relu", "ReLU")) == 3


@pytest.mark.parametrize(
    ("path", "level", "expected"),
    [("layer1.0.conv1", 2, "layer1.0"), ("layer1.0", 5, "layer1.0"), ("layer1.0", 0, ""), ("", 3, "")],
)
def test_paths_are_cut_at_a_level(path: str, level: int, expected: str) -> None:
    assert at_level(path, level) == expected
    assert levels_of(at_level(path, level)) <= level


def test_a_class_with_a_line_break_in_its_name_can_be_counted_and_read_again(tmp_path: Path) -> None:
    odd = type("Odd\nName", (nn.Sequential,), {})
    write_counts(tmp_path / "counts", counts_of(nn.Sequential(odd(nn.Linear(4, 4))), torch.zeros(2, 4)))
    assert {module.class_name for module in read_counts(tmp_path / "counts", "").modules} >= {"Odd?Name"}
