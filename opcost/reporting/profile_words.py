"""The words for a profile's FLOPs and bytes, on terminals and in notebooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opcost.units import gigaflop, megabytes

if TYPE_CHECKING:
    from opcost.stages.profile import ModelProfile


def work_in_words(model: ModelProfile) -> str:
    """Return the FLOPs and bytes of a run: ``4.1 GFLOP, 97 MB moved``."""
    least = "at least " if model.flop_missing_reason is not None else ""
    return f"{least}{gigaflop(model.flop)}, {megabytes(model.memory_bytes)} moved"
