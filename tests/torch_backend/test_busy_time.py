"""The time of kernels in a trace, and the gaps between them, on several streams too."""

import numpy as np
import pytest

from opcost.torch_backend.cuda_graph import traced_behind


@pytest.mark.parametrize(
    ("spans", "others", "time_ns", "idle_ns"),
    [
        ([(0, 9), (10, 14), (15, 20)], 1, 11, 2),
        ([(0, 9), (10, 20), (12, 14), (19, 25)], 1, 16, 1),
        ([(0, 9), (10, 30), (12, 14), (40, 41)], 1, 32, 11),
        ([(0, 8), (1, 9), (9, 10)], 2, 1, 0),
        ([(0, 10), (5, 15), (12, 14)], 1, 5, 0),
        ([(0, 10), (5, 8)], 1, 0, 0),
        ([(0, 10)], 1, 0, 0),
    ],
    ids=[
        "one after the other",
        "on two streams",
        "one within another",
        "behind two others",
        "that begins before the other ends",
        "that the other outlasts",
        "no kernel",
    ],
)
def test_the_time_behind_others_and_what_of_it_is_idle(
    spans: list[tuple[int, int]], others: int, time_ns: int, idle_ns: int
) -> None:
    rows = np.array([spans, spans], dtype=np.int64) + np.array([0, 1000]).reshape(2, 1, 1)
    found = traced_behind(rows, others)
    assert found.time_s == pytest.approx([time_ns * 1e-9] * 2)
    assert found.idle_s == pytest.approx([idle_ns * 1e-9] * 2)
