"""Optional packages that a stage needs, looked for before any work is done."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from types import MappingProxyType

PREDICT = "predict"

PACKAGES: Mapping[str, tuple[str, ...]] = MappingProxyType({PREDICT: ("sklearn", "scipy", "threadpoolctl")})
"""The modules of each extra of ``pyproject.toml`` that a stage asks for."""


def require(extra: str) -> None:
    """Check that the packages of an extra are installed; none is imported.

    Raises:
        ModuleNotFoundError: one is missing. ``command.run`` says how to install it.
    """
    for name in PACKAGES[extra]:
        if find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
