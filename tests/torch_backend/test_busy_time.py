"""The time in which kernels of a trace run, of several streams too."""

import numpy as np
import pytest

from opcost.torch_backend.cuda_graph import busy_s


@pytest.mark.parametrize(
    ("spans", "busy_ns"),
    [
        ([(10, 14), (15, 20)], 9),
        ([(10, 20), (12, 14), (19, 25)], 15),
        ([(10, 30), (12, 14), (40, 41)], 21),
        ([(10, 10)], 0),
        ([], 0),
    ],
    ids=["one after the other", "on two streams", "one within another", "an empty kernel", "no kernel"],
)
def test_kernels_that_overlap_count_once(spans: list[tuple[int, int]], busy_ns: int) -> None:
    cycles = np.array([spans, spans], dtype=np.int64).reshape(2, -1, 2) + np.array([0, 1000]).reshape(2, 1, 1)
    assert busy_s(cycles) == pytest.approx([busy_ns * 1e-9] * 2)
