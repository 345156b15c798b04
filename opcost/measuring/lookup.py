"""Rows of an operator that stand for each other: a condition that cannot touch its dtypes does not part them.

This holds for look-up only. Keys have all conditions. Only what follows from the dtypes is claimed: TF32 is a way to
multiply float32, and reductions in bf16 or fp16 are of products in these dtypes. Products take operands of one dtype.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from functools import cache, lru_cache
from operator import attrgetter
from typing import Final, TypeAlias

from opcost.measuring.conditions import Conditions
from opcost.measuring.precisions import AUTOCAST_DTYPES
from opcost.operators.counts import COMPOSITES
from opcost.operators.tuples import FLOAT32, Constant, OperatorTuple, TensorSpec, nested

LookupKey: TypeAlias = tuple[object, ...]
"""Values that are equal if rows of one operator on the same input data stand for each other."""

TF32_FIELDS = frozenset({"precision", "matmul_tf32", "cudnn_tf32"})
"""The conditions that choose between TF32 and fp32. Without autocast, a precision means dtypes and these switches."""

FIELDS_OF_DTYPE = {
    "bfloat16": frozenset({"matmul_bf16_reduction"}),
    "float16": frozenset({"matmul_fp16_reduction", "matmul_fp16_accumulation"}),
}
"""The conditions that touch products in a dtype only."""

WITHOUT_TF32 = frozenset({*FIELDS_OF_DTYPE, "bool", "int16", "int32", "int64"})
"""Dtypes that TF32 does not touch. Those of 8 bits are left out, because libraries multiply them in other ways."""

CALCULATING_IN_OTHER_DTYPES = frozenset(
    {*COMPOSITES, "scaled_dot_product_attention", "multi_head_attention_forward", "TransformerDecoderLayer"}
)
"""Operators that may multiply in another dtype than that of their tensors: plain attention in 16 bits uses float32."""

_OF_TORCH: Final = "torch."
_DTYPE = re.compile(rf"{re.escape(_OF_TORCH)}(bool|(?:b?float|complex|u?int)\d\w*)")
_NAMES = tuple(field.name for field in fields(Conditions))
OPERATORS_KEPT = 65536


def lookup_key(operator: OperatorTuple, conditions: Conditions) -> LookupKey:
    """Return a key that is equal for conditions under which rows of an operator stand for each other.

    All conditions of a whole model matter, and all under autocast, which changes dtypes on the way.
    """
    is_changed_inside = operator.is_model or conditions.precision in AUTOCAST_DTYPES
    without = frozenset[str]() if is_changed_inside else irrelevant_fields(operator)
    return _getter_of_others(without)(conditions)


@cache
def _getter_of_others(without: frozenset[str]) -> Callable[[Conditions], LookupKey]:
    # Sums ask for thousands of keys.
    return attrgetter(*(name for name in _NAMES if name not in without))


@lru_cache(OPERATORS_KEPT)
def irrelevant_fields(operator: OperatorTuple) -> frozenset[str]:
    """Return the names of the conditions that cannot change how an operator runs without autocast."""
    dtypes = dtypes_of(operator)
    if not dtypes:
        return frozenset()
    others = (names for dtype, names in FIELDS_OF_DTYPE.items() if dtype not in dtypes)
    return frozenset[str]().union(*others, TF32_FIELDS if dtypes <= WITHOUT_TF32 else ())


def dtypes_of(operator: OperatorTuple) -> frozenset[str]:
    """Return the dtypes of an operator's tensors: ``bfloat16``; none if it may use others inside, or has no tensor."""
    if not operator.operator.startswith(_OF_TORCH) or operator.short_name in CALCULATING_IN_OTHER_DTYPES:
        return frozenset()
    parameters = dict(operator.parameters)
    values = [*operator.inputs, *(value for _, value in operator.keyword_inputs), *parameters.values()]
    found = set[str]()
    for value in nested(values):
        if isinstance(value, TensorSpec):
            found.add(value.dtype)
        elif isinstance(value, Constant):
            found.update(_DTYPE.findall(value.name))
    weights = parameters.get("dtype")
    if isinstance(weights, str):
        found.add(weights)
    elif not operator.is_function and not operator.floating_inputs:
        # Weights in float32 are not named.
        found.add(FLOAT32)
    return frozenset(found)
