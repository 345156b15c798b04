"""What kind of values a floating input has, as far as they change what an operator costs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class InputValues:
    """Values to draw: ``zeros_ratio`` of them are zero, the others normal with standard deviation ``spread``.

    ``is_nonnegative`` folds the negative ones over, as after a ReLU.
    """

    zeros_ratio: float = 0.0
    spread: float = 1.0
    is_nonnegative: bool = False


NORMAL = InputValues()
