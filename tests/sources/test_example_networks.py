"""The networks of docs/examples: nothing of them is uncounted, and each operator runs alone as in its model."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from opcost.operators.tuples import OperatorTuple
from opcost.torch_backend.alone import difference
from opcost.torch_backend.capture import capture, run_first
from opcost.torch_backend.ready_model import ReadyModel

PATH = Path(__file__).parents[2] / "docs" / "examples" / "networks.py"


@pytest.fixture(scope="module")
def networks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("networks", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def smaller(model: nn.Module, inputs: Any, name: str) -> ReadyModel:
    """Return a network on a part of its input, which a CPU runs in a moment."""
    if name == "graph":
        nodes, edges = inputs
        return ReadyModel.of(model.eval(), (nodes[:500], edges[:, :2000] % 500))
    if name == "mamba":
        return ReadyModel.of(model.eval(), inputs[:2, :8])
    return ReadyModel.of(model.eval(), inputs[:2])


@pytest.mark.parametrize("name", ["lstm", "gru", "graph", "spectral", "forces", "mamba"])
def test_each_network_is_counted_and_rebuilt_wholly(networks: ModuleType, name: str) -> None:
    torch.manual_seed(0)
    ready = run_first(smaller(*getattr(networks, name)(), name))
    counts = capture(ready, OperatorTuple("file.network"))
    assert counts.outside == ()
    assert counts.flop_missing_reason is None
    assert counts.flop == counts.total_flop > 0
    assert counts.memory_bytes == counts.total_memory_bytes
    different = [count.operator.short_name for count in counts.counts if difference(count, "cpu") is not None]
    assert different == []


def test_a_layer_of_gates_has_the_flops_of_its_matrices(networks: ModuleType) -> None:
    ready = smaller(*networks.lstm(), "lstm")
    counts = capture(run_first(ready), OperatorTuple("file.network"))
    (layer,) = [count for count in counts.counts if count.operator.short_name == "LSTM"]
    steps = ready.tensors[0].numel()
    assert layer.flop == 2 * steps * 2 * 4 * 512 * (512 + 512)
