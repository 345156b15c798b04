"""The precisions that a config may ask for, and their dtypes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

Precision: TypeAlias = Literal["torch-default", "fp32", "tf32", "bf16", "fp16", "amp-bf16"]
"""The precisions that a config may ask for; ``torch_backend.switches`` sets them."""

DTYPES: Mapping[str, str] = {"bf16": "bfloat16", "fp16": "float16"}
"""The dtype of weights and inputs in a precision that is not ``float32``."""

AUTOCAST_DTYPES: Mapping[str, str] = {"amp-bf16": "bfloat16"}
"""The dtype of autocast in a precision that uses it."""

TORCH_DEFAULT: Final = "torch-default"
"""torch's default precision: TF32 in cuDNN's convolutions, fp32 in matrix products."""
