"""The two steps by which a language model generates text: it reads a prompt, then makes one token after another.

Both are arguments of a model of transformers, so that its tuple, its name in tables and its counts have them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

PREFILL, DECODE = GENERATING = ("prefill", "decode")
"""The modes of a config. A prefill computes the logits of the last position; a decode step is the run for one token of
each text behind a cache."""

DECODE_CONTEXT = "decode_context"
"""The argument with the tokens of each text that a decode step attends to, its own included."""


def generation_arguments(mode: str, context: int | None) -> Mapping[str, bool | int]:
    """Return the arguments by which a model is run in a mode; none in others."""
    if mode == DECODE and context is not None:
        return {DECODE_CONTEXT: context}
    return {PREFILL: True} if mode == PREFILL else {}


def is_generating(arguments: Iterable[tuple[str, object]]) -> bool:
    """Return whether any argument is one of a prefill or a decode step."""
    return any(name in (PREFILL, DECODE_CONTEXT) for name, _ in arguments)


def keys_of(arguments: Iterable[tuple[str, object]]) -> Mapping[str, str]:
    """Return the keys of a config that give the arguments of a prefill or a decode step."""
    own = dict(arguments)
    if DECODE_CONTEXT in own:
        return {"mode": DECODE, "context": str(own[DECODE_CONTEXT])}
    return {"mode": PREFILL} if PREFILL in own else {}
