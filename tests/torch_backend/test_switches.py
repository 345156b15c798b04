"""Switches of torch: all are put back, each one that changes kernels is recorded, and models cannot leave any set."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torchvision.models._api import BUILTIN_MODELS

from opcost.errors import CannotBuildError
from opcost.measuring.conditions import ATTENTION_FIELDS
from opcost.measuring.precisions import TORCH_DEFAULT
from opcost.measuring.setting import Setting
from opcost.operators.counts import Case
from opcost.operators.tuples import model_operator
from opcost.running.apparatus import Workloads
from opcost.sources.models import resolve
from opcost.torch_backend.switches import (
    FP32_PRECISIONS,
    SWITCHES,
    Switch,
    kept_switches,
    other_switches,
    reported_switches,
    switched,
    tf32_switches,
    torch_state,
)

OTHER_TEXTS = {
    "none": "tf32",
    "tf32": "ieee",
    "highest": "medium",
    "auto": "native",
    "default": "magma",
    "cublas": "cublaslt",
    "cpu": "meta",
}
UNCHANGEABLE = ("torch.backends.opt_einsum.",)
"""Switches of a package that need not be installed."""

MISNAMED = "torch.backends.mkldnn.fp32_precision = {}"
"""The attribute sets another switch (torch 2.14)."""

MODEL = model_operator("my_own", None, (1, 3, 8, 8))


def another(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, tuple):
        return (False, False)
    if isinstance(value, torch.dtype):
        return torch.bfloat16
    return OTHER_TEXTS[value] if isinstance(value, str) else value + 1


def values() -> list[Any]:
    return [switch.value for switch in SWITCHES]


changeable = [switch for switch in SWITCHES if not switch.statement.startswith(UNCHANGEABLE)]
OTHER_VALUES = {switch.statement: another(switch.value) for switch in changeable}
SET_BY_A_PRECISION = {"torch.set_float32_matmul_precision({})", *(switch.statement for switch in FP32_PRECISIONS)}


def of_each(*switches: Switch) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("switch", switches, ids=lambda switch: switch.statement)


def change(switch: Switch) -> None:
    switch.write(OTHER_VALUES[switch.statement])


def fail() -> None:
    raise ZeroDivisionError


@of_each(*(switch for switch in changeable if switch.statement != MISNAMED))
def test_a_switch_is_named_by_the_statement_that_sets_it(switch: Switch) -> None:
    value = OTHER_VALUES[switch.statement]
    with kept_switches():
        exec(switch.set_to(value))
        assert switch.value == value


@of_each(*changeable)
def test_a_switch_is_put_back(switch: Switch) -> None:
    before = values()
    with kept_switches() as changes:
        change(switch)
        assert changes == []
    assert switch.set_to(OTHER_VALUES[switch.statement]) in changes
    assert values() == before


@of_each(*(switch for switch in changeable if switch.statement not in SET_BY_A_PRECISION))
def test_a_switch_that_is_not_at_its_default_is_in_the_conditions(switch: Switch) -> None:
    before = torch_state("cpu")
    with kept_switches():
        change(switch)
        assert torch_state("cpu") != before
    assert torch_state("cpu") == before


@given(st.lists(st.sampled_from(changeable), max_size=8))
def test_switches_are_put_back_after_any_changes_and_errors(changed: list[Switch]) -> None:
    before = values()

    def change_all() -> None:
        with kept_switches():
            for switch in changed:
                change(switch)
            fail()

    with pytest.raises(ZeroDivisionError):
        change_all()
    assert values() == before


def test_one_back_end_of_attention_alone_is_set_and_put_back() -> None:
    fields = tuple(ATTENTION_FIELDS.values())
    before = torch_state("cpu")
    for backend, own in ATTENTION_FIELDS.items():
        with switched(TORCH_DEFAULT, backend):
            assert [field for field in fields if torch_state("cpu")[field]] == [own]
    with switched(TORCH_DEFAULT):
        assert torch_state("cpu") == before


@pytest.mark.parametrize("name", ["torch-default", "fp32", "tf32", "bf16"])
@given(changed=st.lists(st.sampled_from(FP32_PRECISIONS), max_size=4))
def test_a_precision_means_the_same_whatever_was_set_before(name: str, changed: list[Switch]) -> None:
    def fp32_values() -> tuple[dict[str, Any], list[Any]]:
        with switched(name):
            return torch_state("cpu"), values()

    expected = fp32_values()
    with kept_switches():
        for switch in changed:
            change(switch)
        assert fp32_values() == expected


@pytest.mark.parametrize(
    ("name", "expected"), [("torch-default", (False, True)), ("fp32", (False, False)), ("tf32", (True, True))]
)
def test_a_precision_sets_both_switches_and_sets_them_back_also_after_an_error(
    name: str, expected: tuple[bool, bool]
) -> None:
    before = tf32_switches()
    with switched(name):
        assert tf32_switches() == expected
    assert tf32_switches() == before == (False, True)
    with pytest.raises(ZeroDivisionError), switched(name):
        fail()
    assert tf32_switches() == before


def test_conditions_without_other_switches_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert torch_state("cpu")["other_switches"] is None
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    assert torch_state("cpu")["other_switches"] == other_switches() == "CUBLAS_WORKSPACE_CONFIG=:16:8"


def test_switches_of_reductions_are_empty_at_their_default() -> None:
    assert torch_state("cpu")["matmul_bf16_reduction"] is None
    with kept_switches():
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        assert torch_state("cpu")["matmul_bf16_reduction"] is False


# Models of users


class SetsInEachRun(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.backends.cudnn.benchmark = True
        return x


class SetsInItsFirstRun(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.has_run = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.has_run:
            torch.set_default_dtype(torch.float64)
        self.has_run = True
        return x


def sets_when_built() -> nn.Module:
    # This way to set TF32 and the older one exclude each other: torch refuses to read the older switch afterwards.
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    torch.backends.cudnn.conv.fp32_precision = "ieee"
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cuda.enable_math_sdp(False)
    return nn.ReLU()


@pytest.mark.parametrize("builder", [sets_when_built, SetsInItsFirstRun])
def test_what_a_model_sets_does_not_last(monkeypatch: pytest.MonkeyPatch, builder: Callable[..., nn.Module]) -> None:
    monkeypatch.setitem(BUILTIN_MODELS, "my_own", builder)
    before = values()
    with switched(TORCH_DEFAULT):
        of_its_row = values()
    with Workloads("cpu")(Case(MODEL), Setting()) as workload:
        assert values() == of_its_row
        workload.run(1)
    assert values() == before


def test_a_model_that_sets_switches_in_each_run_has_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BUILTIN_MODELS, "my_own", SetsInEachRun)
    before = values()
    with pytest.raises(CannotBuildError, match=r"^my_own sets .* when it runs: torch.backends.cudnn.benchmark = True$"):
        resolve(MODEL).with_inputs("cpu")
    assert values() == before


def test_what_was_put_back_is_reported(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setitem(BUILTIN_MODELS, "my_own", sets_when_built)
    resolve(MODEL).with_inputs("cpu")
    (line,) = caplog.messages
    assert line.startswith("my_own sets switches of torch, which are put back: ")
    for statement in (
        "torch.backends.cudnn.conv.fp32_precision = 'ieee'",
        "torch.backends.cuda.enable_math_sdp(False)",
    ):
        assert statement in line


def test_nothing_is_reported_if_nothing_was_set(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), reported_switches("my_own"):
        torch.backends.cudnn.benchmark = False
    assert caplog.messages == []


def test_what_is_set_before_an_error_is_reported_too(caplog: pytest.LogCaptureFixture) -> None:
    before = values()

    def change_threads() -> None:
        with reported_switches("my_own"):
            torch.set_num_threads(torch.get_num_threads() + 1)
            fail()

    with pytest.raises(ZeroDivisionError):
        change_threads()
    assert values() == before
    assert len(caplog.messages) == 1
