"""The cost of tokens, on a terminal and for programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import compress
from typing import TYPE_CHECKING, Any

from opcost.operators.attention import ANY_BACKEND
from opcost.operators.generation import DECODE, PREFILL
from opcost.reporting.tables import (
    DOUBTFUL,
    Column,
    Table,
    doubt_mark,
    print_line,
    print_note,
    print_origin,
    print_table,
)
from opcost.units import UNKNOWN, gigabytes, milli, percent, significant

if TYPE_CHECKING:
    # Only for types: these modules import torch.
    from opcost.comparing.predicted_run import Range
    from opcost.stages.tokens import RequestCost, TokenCost, TokenReport

TITLES = {
    PREFILL: "Prefill of a prompt, logits of its last token",
    DECODE: "Decode step, one token of each text",
}


def _share(one: TokenCost, part: str) -> str:
    return percent(next((value for key, value in one.shares.items() if key.value == part), None), 0)


def _interval(energy_j: Range | None, text: Callable[[float], str]) -> str:
    return UNKNOWN if energy_j is None else f"{text(energy_j.lower)} to {text(energy_j.upper)}"


KINDS: Table[TokenCost] = (
    Column("attention by", lambda one: one.point.attention, "left"),
    Column("run as", lambda one: one.point.execution or "", "left"),
)
"""Columns of what a command asks for several of."""

TABLE: Table[TokenCost] = (
    Column("batch", lambda one: str(one.point.batch)),
    Column("context", lambda one: str(one.point.context)),
    Column("ms/run", lambda one: milli(one.time_s.value) + doubt_mark(one.is_too_much)),
    Column("tokens/s", lambda one: significant(one.tokens_per_s), drop=1),
    Column(
        "mJ/token",
        lambda one: UNKNOWN if one.energy_of_token_j is None else milli(one.energy_of_token_j.value),
        energy_j=lambda one: None if one.energy_of_token_j is None else one.energy_of_token_j.value,
    ),
    Column("90 % interval", lambda one: _interval(one.energy_of_token_j, milli), drop=3),
    Column(
        "tokens/J",
        lambda one: UNKNOWN if one.energy_of_token_j is None else significant(1 / one.energy_of_token_j.value),
        drop=4,
    ),
    Column("W", lambda one: UNKNOWN if one.power_w is None else f"{one.power_w:.0f}", drop=2),
    Column("attention", lambda one: _share(one, "attention"), drop=5),
    Column("products", lambda one: _share(one, "products"), drop=5),
    Column("rest", lambda one: _share(one, "rest"), drop=5),
    Column("idle", lambda one: percent(one.idle_ratio, 0), drop=6),
    Column("weights", lambda one: percent(one.weights_ratio, 0), drop=7),
    Column("cache", lambda one: percent(one.cache_ratio, 0), drop=7),
    Column("known as", lambda one: "measured" if one.is_measured else "predicted", "left", drop=1),
)


KINDS_OF_REQUESTS: Table[RequestCost] = (
    Column("attention by", lambda one: one.attention, "left"),
    Column("run as", lambda one: one.execution or "", "left"),
)

REQUESTS: Table[RequestCost] = (
    Column("prompt", lambda one: str(one.size.prompt)),
    Column("made", lambda one: str(one.size.made)),
    Column("batch", lambda one: str(one.batch)),
    Column("s", lambda one: significant(one.time_s.value)),
    Column("J", lambda one: UNKNOWN if one.energy_j is None else significant(one.energy_j.value)),
    Column("90 % interval", lambda one: _interval(one.energy_j, significant), drop=1),
    Column("prefill, of time", lambda one: percent(one.prefill_time_ratio, 0), drop=2),
    Column("of energy", lambda one: percent(one.prefill_energy_ratio, 0), drop=2),
)


def print_tokens(report: TokenReport) -> None:
    points = [one.point for one in report.costs]
    kinds = any(one.attention != ANY_BACKEND for one in points), len({one.execution for one in points}) > 1
    for mode, title in TITLES.items():
        lines = [one for one in report.costs if one.point.mode == mode]
        where = ", ".join([report.device_product, report.precision, *([] if kinds[1] else [report.execution])])
        print_table(f"{title}: {report.name} on {where}", (*compress(KINDS, kinds), *TABLE), lines)
    if report.requests:
        columns = (*compress(KINDS_OF_REQUESTS, kinds), *REQUESTS)
        print_table("One request: its prompt read alone, its tokens made in a batch of such", columns, report.requests)
    kind = "energy" if any(one.energy_ratios for one in report.costs) else "time"
    print_note(
        f"Attention, matrix products and the rest: shares of the {kind} of all operators. Idle: the card's idle "
        "power times the time, of the energy. Weights and cache: shares of the bytes that operators read and write.",
        f"Attention is as {_libraries(report)} calls it with a static cache; a server's may be another.",
    )
    unknown = {one.point.attention for one in report.costs if not one.is_attention_known} - {ANY_BACKEND}
    if unknown:
        names = ", ".join(sorted(unknown))
        print_line(f"{DOUBTFUL} Attention by {names} has no row: it is predicted as that of any kind; --measure it.")
    for mode, kind, reason in report.refused:
        print_line(f"Left out: {mode}, {kind}: {reason}.")
    if predicted := [one.outside_time_ratio for one in report.costs if not one.is_measured and one.outside_time_ratio]:
        share = percent(max(predicted), 0)
        print_line(f"Up to {share} of the time is predicted for operators unlike all measured ones.")
    for one in report.costs:
        if one.is_too_much:
            of_texts, least = f"{one.point.mode} of {one.point.batch} x {one.point.context}", gigabytes(one.least_bytes)
            print_line(f"{DOUBTFUL} {of_texts}: needs at least {least} of memory, more than there is.")
    print_origin()


def _libraries(report: TokenReport) -> str:
    """Return the versions of the library that runs are of, and a warning if wholes ran with others than are counted."""
    counted, measured = (sorted({one.libraries[place] or "" for one in report.costs} - {""}) for place in (0, 1))
    others = " or ".join(one for one in measured if counted and one not in counted)
    warning = f" (measured runs are of {others}, which may run other operators)" if others else ""
    return (" or ".join(counted) or "this version of transformers") + warning


def tokens_object(report: TokenReport) -> dict[str, Any]:
    """Return the costs for JSON, in SI units."""
    return {**asdict(report), "costs": [{**asdict(one), **_derived(one)} for one in report.costs]}


def _derived(one: TokenCost) -> dict[str, Any]:
    names = "tokens_per_s", "energy_of_token_j", "power_w"
    return {"tokens": one.point.tokens, **{name: getattr(one, name) for name in names}}


def token_lines(report: TokenReport) -> Iterator[dict[str, object]]:
    """Yield a line for each point with plain values, for a data frame."""
    for one in report.costs:
        energy_j, of_token_j = one.energy_j, one.energy_of_token_j
        yield {
            **asdict(one.point),
            **_derived(one),
            "time_s": one.time_s.value,
            "energy_j": None if energy_j is None else energy_j.value,
            "energy_of_token_j": None if of_token_j is None else of_token_j.value,
            "energy_of_token_lower_j": None if of_token_j is None else of_token_j.lower,
            "energy_of_token_upper_j": None if of_token_j is None else of_token_j.upper,
            **{f"{part.value}_ratio": value for part, value in one.shares.items()},
            "idle_ratio": one.idle_ratio,
            "weights_ratio": one.weights_ratio,
            "cache_ratio": one.cache_ratio,
            "is_measured": one.is_measured,
        }


def request_lines(report: TokenReport) -> Iterator[dict[str, object]]:
    """Yield a line for each request in each batch with plain values, for a data frame."""
    for one in report.requests:
        time_s, energy_j = one.time_s, one.energy_j
        yield {
            **asdict(one.size),
            "batch": one.batch,
            "attention": one.attention,
            "execution": one.execution,
            "time_s": time_s.value,
            "energy_j": None if energy_j is None else energy_j.value,
            "energy_lower_j": None if energy_j is None else energy_j.lower,
            "energy_upper_j": None if energy_j is None else energy_j.upper,
            "prefill_time_ratio": one.prefill_time_ratio,
            "prefill_energy_ratio": one.prefill_energy_ratio,
        }
