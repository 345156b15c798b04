"""Reuse distances and the bytes of weights, as a count of a model finds them."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from opcost.operators.counts import OperatorCounts
from opcost.operators.reuse import FAR_BYTES, Reuse
from opcost.operators.tuples import model_operator
from opcost.torch_backend.capture import capture
from opcost.torch_backend.ready_model import ReadyModel

MB = 10**6
ELEMENTS = 250_000


class Chain(nn.Module):
    def __init__(self, has_views: bool = False, is_kept: bool = False) -> None:
        super().__init__()
        self.has_views, self.is_kept = has_views, is_kept

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, kept = x, []
        for _ in range(5):
            x = torch.relu(x)
            x = x.view(-1, 2).view(-1) if self.has_views else x
            kept += [x] if self.is_kept else []
        return torch.add(x, first)


def counted(model: nn.Module, *inputs: torch.Tensor) -> OperatorCounts:
    return capture(ReadyModel(model.eval(), inputs), model_operator("resnet18", None, (2, 3, 8, 8)))


def reuse_of(counts: OperatorCounts, name: str) -> tuple[Reuse, ...]:
    (found,) = (count.reuse for count in counts.counts if count.operator.short_name == name)
    return found


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("has_views", [False, True])
def test_memory_that_is_freed_is_written_again_and_memory_that_is_kept_is_not(device: str, has_views: bool) -> None:
    x = torch.zeros(ELEMENTS, device=device)
    (addition,) = reuse_of(counted(Chain(has_views), x), "add")
    # Two blocks in turn, and the one of the last result.
    assert addition.inputs == (MB // 2, 2 * MB)
    (addition,) = reuse_of(counted(Chain(has_views, is_kept=True), x), "add")
    assert addition.inputs == (MB // 2, 5 * MB)


def test_code_of_elementwise_kernels_is_that_of_all_shapes_and_calls_without_work_are_no_kernel() -> None:
    class Kinds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dropout, self.first, self.second = nn.Dropout(), nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = torch.relu(self.dropout(torch.relu(x)))
            x = self.second(self.dropout(self.first(x)))
            return torch.relu(x[:, :4])

    counts = counted(Kinds(), torch.zeros(4, 8))
    codes = [reuse.code for count in counts.counts if count.operator.short_name == "relu" for reuse in count.reuse]
    assert sorted(codes) == [0, 0, 1]
    assert [reuse.code for reuse in reuse_of(counts, "Linear")] == [1, 0]


def test_weights_are_as_far_as_the_run_and_few_rows_of_a_table_are_few_bytes() -> None:
    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.linear = nn.Embedding(10_000, 1000), nn.Linear(1000, 1000)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(self.words(x))

    counts = counted(Table(), torch.zeros(100, dtype=torch.int64))
    weights = {count.operator.short_name: count.weight_bytes for count in counts.counts}
    assert weights == {"Embedding": 40 * MB, "Linear": 4_004_000}
    (linear,) = reuse_of(counts, "Linear")
    assert linear.weights is not None
    assert linear.weights < 4 * MB < FAR_BYTES


def test_threads_count_their_memory_without_an_error() -> None:
    class Threads(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with ThreadPoolExecutor(4) as pool:
                return torch.stack(list(pool.map(lambda one: (x * one).relu().sum(), range(40))))

    counts = counted(Threads(), torch.zeros(1000))
    assert all(len(count.reuse) == count.occurrences for count in counts.counts)
