"""Kinds of attention: torch's back ends, and the forms in which models of transformers call them.

A kind is written ``FORM``, ``BACKEND`` or ``FORM:BACKEND``, such as ``unmasked:flash``.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

from opcost.operators.tuples import OperatorTuple, TensorSpec

Backend: TypeAlias = Literal["torch-default", "flash", "efficient", "cudnn", "math"]
"""The back ends of ``scaled_dot_product_attention`` that a config may ask for: torch's own choice, or one alone."""

ANY_BACKEND: Final = "torch-default"
BACKENDS = tuple(one for one in get_args(Backend) if one != ANY_BACKEND)

FORMS = ("sdpa", "copied", "packed", "unmasked", "eager")
"""Calls as transformers makes them, with keys and values copied to all heads, with the heads of one token's query as
rows, and without a mask, which the only token behind a full cache does not need; or plain products."""

IMPLEMENTATION = "attn_implementation"
"""The argument of a model of transformers that is its form."""

SDPA = "scaled_dot_product_attention"

PLACES = ("query", "key", "value", "attn_mask")
"""The names of the first inputs of ``scaled_dot_product_attention``."""


def form_and_backend(kind: str) -> tuple[str | None, str]:
    """Return the form, None for that of the model, and the back end of a kind. Raises ValueError: it is none."""
    form, _, backend = kind.partition(":") if ":" in kind or kind in FORMS else ("", "", kind)
    if (form and form not in FORMS) or (backend and backend not in get_args(Backend)) or not form + backend:
        known = f"{', '.join(BACKENDS)}; {', '.join(FORMS)}; or both as in unmasked:flash"
        raise ValueError(f"{kind!r} is no kind of attention; use {known}")
    return form or None, backend or ANY_BACKEND


def refusal(operator: OperatorTuple, backend: str) -> str | None:
    """Return why a back end cannot run a call of attention on any GPU, None if nothing of its form is a reason.

    Source: ``aten/src/ATen/native/transformers/cuda/sdp_utils.cpp`` of torch 2.11. A card, or a version of cuDNN, may
    have further reasons.
    """
    if operator.short_name != SDPA:
        return None
    given = {**dict(zip(PLACES, operator.inputs, strict=False)), **dict(operator.keyword_inputs)}
    query, key = given["query"], given["key"]
    if not isinstance(query, TensorSpec) or not isinstance(key, TensorSpec):
        return None
    if backend == "flash" and given.get("attn_mask") is not None:
        return "it has a mask"
    if backend in {"flash", "cudnn"} and query.dtype not in {"float16", "bfloat16"}:
        return f"it is in {query.dtype}"
    if backend == "efficient" and query.shape[:-2] != key.shape[:-2]:
        return "it has fewer heads of keys than of queries"
    return None
