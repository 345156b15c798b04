"""A counted tuple is rebuilt and run alone, and whether that is what was counted; block 2 flags what is not."""

import re
from dataclasses import replace

import pytest
import torch
from torch import nn

from opcost.measuring.flags import Flag, Flags
from opcost.measuring.setting import Setting
from opcost.operators.counts import CAPTURED, OperatorCount, OperatorCounts, as_counted, cases_of
from opcost.operators.tuples import Constant, OperatorTuple, TensorSpec, model_operator
from opcost.running.apparatus import Workloads
from opcost.torch_backend.alone import Difference, difference, replay_device
from opcost.torch_backend.capture import capture
from opcost.torch_backend.ready_model import ReadyModel


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (
            OperatorCount(OperatorTuple("torch.nn.ReLU", (), (TensorSpec((2,), "float32"),)), 1, 0, 0, 5),
            "outputs float32",
        ),
        (OperatorCount(OperatorTuple("torch.nn.NoSuch"), 1, 0, 0), "is no module class"),
        (OperatorCount(OperatorTuple("torch.Tensor.no_such", mode=None), 1, 0, 0), "has no function"),
        (
            OperatorCount(OperatorTuple("torch.matmul", (), (TensorSpec((2,), "float32"), 3), mode=None), 1, 0, 0),
            "Error",
        ),
    ],
)
def test_a_difference_is_reported(count: OperatorCount, words: str) -> None:
    found = difference(count, "cpu")
    assert found is not None
    assert words in found.text
    assert found.flag is Flag.NOT_AS_COUNTED


RELU = OperatorTuple("torch.relu", (), (TensorSpec((2,), "float32"),), mode=None)
COUNT = OperatorCount(RELU, 1, 0, 16, TensorSpec((2,), "float32"), operations=(("relu", 1),))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, None),
        # Counts of version 0.2 do not know their operations.
        ({"operations": ()}, None),
        ({"operations": (("clone", 1), ("relu", 2))}, "operations relu, not clone, 2 relu"),
        ({"flop": 4}, "0 FLOPs, not 4"),
        ({"flop": None, "without_formula": ("aten::relu",)}, "0 FLOPs, not unknown"),
        ({"memory_bytes": 24}, "16 bytes, not 24"),
    ],
)
def test_operations_flops_and_bytes_are_compared(changed: dict[str, object], words: str | None) -> None:
    expected = None if words is None else Difference(words, Flag.NOT_AS_COUNTED)
    assert difference(replace(COUNT, **changed), "cpu") == expected  # type: ignore[arg-type]


def test_outputs_are_worded_as_in_a_tuples_text() -> None:
    specs = TensorSpec((2,), "float32", identity=1), TensorSpec((2, 3), "int64", (1, 2))
    expected = Difference(f"outputs float32[2], not ({specs[0]}, {specs[1]})", Flag.NOT_AS_COUNTED)
    assert difference(replace(COUNT, outputs=specs), "cpu") == expected


@pytest.mark.parametrize(
    ("changed", "flag"),
    [
        ({}, Flag.VALUE_DEPENDENT),
        ({"operations": (("_to_copy", 1), ("relu", 1))}, Flag.NOT_AS_COUNTED),
        ({"operations": (("clone", 1),)}, Flag.NOT_AS_COUNTED),
        ({"outputs": TensorSpec((2,), "float64")}, Flag.NOT_AS_COUNTED),
        ({"operator": replace(RELU, operator="torch.Tensor.no_such")}, Flag.NOT_AS_COUNTED),
        ({"operator": RELU}, Flag.NOT_AS_COUNTED),
    ],
)
def test_a_copy_to_the_device_that_alone_is_none_depends_on_what_no_tuple_has(
    changed: dict[str, object], flag: Flag
) -> None:
    spec = TensorSpec((2,), "float32")
    copy = OperatorTuple("torch.Tensor.to", (), (spec, Constant("device")), mode=None)
    count = OperatorCount(copy, 1, 0, 16, spec, operations=(("_to_copy", 1),))
    found = difference(replace(count, **changed), "cpu")  # type: ignore[arg-type]
    assert found is not None
    assert found.flag is flag


@pytest.mark.parametrize("counted", [True, False])
def test_a_number_that_an_operator_reads_from_a_tensor_is_no_difference(counted: bool) -> None:
    operator = OperatorTuple("torch.Tensor.__contains__", (), (TensorSpec((1, 2), "int64"), 7), mode=None)
    assert difference(OperatorCount(operator, 1, 0, 21, counted), "cpu") is None
    expected = Difference("outputs False, not 1", Flag.NOT_AS_COUNTED)
    assert difference(OperatorCount(operator, 1, 0, 21, 1), "cpu") == expected


@pytest.mark.parametrize(
    ("counted_on", "device", "found"),
    [
        ("meta", "cuda:1", "meta"),
        ("cuda", "cuda:1", "cuda:1"),
        ("cpu", "cuda:1", "cpu"),
        ("meta", "cpu", "meta"),
        ("cpu", "cpu", "cpu"),
        ("cuda", "cpu", None),
    ],
)
def test_a_tuple_is_replayed_on_the_kind_of_device_that_it_was_counted_on(
    counted_on: str, device: str, found: str | None
) -> None:
    assert replay_device(counted_on, device) == found


# What block 2 measures


class Net(nn.Module):
    """Has a conjugate, of which a tuple does not say that it is one, and a mask, whose values are in no tuple."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size = torch.fft.rfft(x).conj().resolve_conj().abs()
        return size[size < 0]


class Moving(nn.Module):
    """Moves a tensor to the device of another. A tuple does not have the device of each tensor."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.arange(8.0, device="cpu").to(x.device)


def counts_of(module: nn.Module, device: str = "cpu") -> OperatorCounts:
    return capture(ReadyModel(module, (torch.randn(4, 8, device=device),), {}), model_operator("net", None, (4, 8)))


def measured(counts: OperatorCounts, precision: str = "torch-default") -> dict[str, tuple[Flags, str]]:
    """Return the flags and notes of each operator's workload, by its short name; of those without any none."""
    found = {}
    for case in as_counted(cases_of(counts.counts, CAPTURED), counts):
        with Workloads("cpu")(case, Setting(precision=precision)) as workload:
            found[case.operator.short_name] = tuple(workload.flags), workload.notes
    return {name: found_of for name, found_of in found.items() if found_of != ((), "")}


def test_what_does_alone_what_was_counted_has_no_flag_and_what_does_not_has_one_with_the_reason() -> None:
    counts = counts_of(Net())
    assert len(counts.counts) == 5
    found = measured(counts)
    assert found.pop("resolve_conj") == ((Flag.NOT_AS_COUNTED,), "not as counted: operations none, not clone")
    flags, notes = found.pop("__getitem__")
    assert flags == (Flag.VALUE_DEPENDENT,)
    # A random mask lets through about a half of 20 elements.
    assert re.fullmatch(r"not as counted: outputs float32\[\d+\], not float32\[0\]", notes)
    assert found == {}


def test_what_was_counted_on_shapes_is_compared_on_shapes() -> None:
    flags = (Flag.VALUE_DEPENDENT,)
    assert measured(counts_of(Moving(), "meta")) == {"to": (flags, "not as counted: operations none, not _to_copy")}
    assert measured(counts_of(Moving())) == {}


def test_a_tuple_is_compared_in_the_precision_of_its_model() -> None:
    linear = nn.Linear(8, 2)
    assert measured(counts_of(linear), "amp-bf16")["Linear"][0] == (Flag.NOT_AS_COUNTED,)
    assert measured(counts_of(linear)) == {}


def test_what_was_counted_on_a_device_that_is_not_here_is_not_compared() -> None:
    assert measured(replace(counts_of(Net()), device_type="cuda")) == {}


def test_a_case_without_a_count_is_not_compared() -> None:
    counts = counts_of(Net())
    for case in cases_of(counts.counts, CAPTURED):
        with Workloads("cpu")(case, Setting()) as workload:
            assert tuple(workload.flags) == ()
