"""Kinds of attention by their texts, and calls that a back end cannot run."""

import pytest

from opcost.operators.attention import form_and_backend, refusal
from opcost.operators.texts import parse_tuple


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("flash", (None, "flash")),
        ("torch-default", (None, "torch-default")),
        ("unmasked", ("unmasked", "torch-default")),
        ("eager", ("eager", "torch-default")),
        ("unmasked:flash", ("unmasked", "flash")),
        ("copied:math", ("copied", "math")),
    ],
)
def test_a_kind_is_a_form_a_back_end_or_both(kind: str, expected: tuple[str | None, str]) -> None:
    assert form_and_backend(kind) == expected


@pytest.mark.parametrize("kind", ["", ":", "flsh", "flash:unmasked", "unmasked:flash:math", "unmasked:flsh"])
def test_another_text_is_refused_with_what_there_is(kind: str) -> None:
    with pytest.raises(ValueError, match=r"is no kind of attention; use flash, .*; sdpa, .*; or both"):
        form_and_backend(kind)


def attention_on(inputs: str) -> str:
    return f"torch.nn.functional.scaled_dot_product_attention on ({inputs})"


MASKED = "bfloat16[2, 4, 1, 64], bfloat16[2, 4, 8, 64], bfloat16[2, 4, 8, 64], attn_mask=bool[2, 1, 1, 8]"
PLAIN = "{0}[2, 4, 8, 64], {0}[2, 4, 8, 64], {0}[2, 4, 8, 64]"
GROUPED = "bfloat16[2, 4, 8, 64], bfloat16[2, 2, 8, 64], bfloat16[2, 2, 8, 64], enable_gqa=True"


@pytest.mark.parametrize(
    ("call", "refused"),
    [
        (attention_on(MASKED), {"flash": "it has a mask"}),
        # Also by its place.
        (attention_on(MASKED.replace("attn_mask=", "")), {"flash": "it has a mask"}),
        (attention_on(PLAIN.format("bfloat16")), {}),
        (attention_on(PLAIN.format("bfloat16") + ", attn_mask=None"), {}),
        (attention_on(PLAIN.format("float32")), {"flash": "it is in float32", "cudnn": "it is in float32"}),
        (attention_on(GROUPED), {"efficient": "it has fewer heads of keys than of queries"}),
        ("torch.Tensor.matmul on (float32[2, 2], float32[2, 2])", {}),
    ],
)
def test_a_back_end_refuses_calls_by_their_form(call: str, refused: dict[str, str]) -> None:
    backends = "torch-default", "flash", "efficient", "cudnn", "math"
    found = {one: refusal(parse_tuple(call), one) for one in backends}
    assert {one: reason for one, reason in found.items() if reason} == refused
