"""What all tests share: tests marked ``gpu`` run where there is a GPU, and Hypothesis never watches the clock."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# Before torch is imported, and for the scripts that tests start: on a busy machine torch's threads, which spin while
# they wait for each other, make small models ten times slower.
os.environ.setdefault("OMP_NUM_THREADS", "1")

settings.register_profile("opcost", deadline=None)
settings.load_profile("opcost")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--renew-golden", action="store_true", help="write tests/golden/ anew instead of comparing to it")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    gpu_tests = [item for item in items if item.get_closest_marker("gpu")]
    if gpu_tests and not has_gpu():
        for item in gpu_tests:
            item.add_marker(pytest.mark.skip(reason="there is no GPU here"))


def has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()
