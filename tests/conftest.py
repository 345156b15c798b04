"""What all tests share: tests marked ``gpu`` run where there is a GPU, and Hypothesis never watches the clock."""

from __future__ import annotations

import pytest
from hypothesis import settings

settings.register_profile("opcost", deadline=None)
settings.load_profile("opcost")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    gpu_tests = [item for item in items if item.get_closest_marker("gpu")]
    if gpu_tests and not has_gpu():
        for item in gpu_tests:
            item.add_marker(pytest.mark.skip(reason="there is no GPU here"))


def has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()
