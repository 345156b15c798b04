"""Forms of attention of transformers' models, which its public interface takes by name (``operators.attention``)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask


def register_forms() -> None:
    for name, function in (("copied", _copied), ("packed", _packed), ("unmasked", sdpa_attention_forward)):
        AttentionInterface.register(name, function)
    # A function without one of these gets no mask.
    for name in ("copied", "packed"):
        AttentionMaskInterface.register(name, sdpa_mask)


def _copied(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **given: Any) -> Any:
    """Return the attention of heads that each have their own copy of keys and values, as transformers 5.17 does it."""
    groups = query.shape[1] // key.shape[1]
    # By its module transformers would choose a form itself.
    alone: Any = SimpleNamespace(is_causal=getattr(module, "is_causal", True))
    return sdpa_attention_forward(alone, query, repeat_kv(key, groups), repeat_kv(value, groups), mask, **given)


def _packed(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **given: Any) -> Any:
    """Return the attention of one token, whose heads of equal keys are rows, as transformers 5.24 does it."""
    batch, heads, length, width = query.shape
    if length != 1:
        return sdpa_attention_forward(module, query, key, value, mask, **given)
    rows = query.reshape(batch, key.shape[1], -1, width)
    result = scaled_dot_product_attention(rows, key, value, attn_mask=mask, scale=given.get("scaling"))
    return result.reshape(batch, 1, heads, value.shape[-1]), None
