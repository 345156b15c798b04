"""Operator tuples between and beyond those of the database, drawn and written as a list of tuples for block 2."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from statistics import fmean

from opcost.columns import grouped
from opcost.errors import CannotMeasureError, UserError
from opcost.measuring.conditions import WARM
from opcost.measuring.protocol import usual_protocol
from opcost.measuring.record import MeasurementRow
from opcost.measuring.setting import is_meant, refuse_unknown
from opcost.operators.counts import CAPTURED, EVERYTHING, OperatorCount, case_key, cases_of_count, tuple_key
from opcost.operators.grids import MAXIMUM_POINTS, GridPoint
from opcost.operators.tuples import META, OperatorTuple, is_under_autocast
from opcost.prediction.durations import ExpectedTimes, Size
from opcost.prediction.sampling import Wish, sample, usual_kinds
from opcost.running.expected_times import sizes_in, starting_s
from opcost.running.request import Request
from opcost.running.shipped_counts import TableCounts, counts_in, counts_of_operators
from opcost.storage.configs import GRID_NAME, load_whitelist
from opcost.storage.files import replace_file
from opcost.storage.schemas import tuples_text
from opcost.storage.yaml_files import MAXIMUM_BYTES, shown
from opcost.torch_backend.alone import DEPENDING_ON_VALUES, count_point
from opcost.units import duration, some_of

KINDS_SHOWN = 8
"""The most kinds that a message lists."""

_NAME = re.compile(r"[A-Za-z0-9_][\w.-]*")


@dataclass(frozen=True)
class DrawnKind:
    """The known and drawn tuples of a kind, and the largest drawn call; block 1 drops what is not ``whitelisted``."""

    kind: str
    known: int
    drawn: int
    flop: int
    memory_bytes: int
    whitelisted: bool


@dataclass(frozen=True)
class SampleReport:
    """A drawn list, how many tuples were wanted, and the time to measure them on a product, None without rows."""

    name: str
    path: str
    kinds: tuple[DrawnKind, ...]
    tuples: tuple[str, ...]
    wanted: int
    expected_s: float | None
    device_product: str | None


def sample_operators(
    request: Request, name: str, wish: Wish, most_s: float | None = None, dry_run: bool = False
) -> SampleReport:
    """Draw operator tuples, and write them to a ``grid.yml`` with a name in the user's own folder.

    The request's device is a part of the name of the product whose rows give the expected time, None for the one with
    the most rows. A ``wish`` without kinds is for the usual ones. ``most_s`` is the most time in s that measuring them
    may take, None for any. Raises UserError: an argument or a table has a mistake, or nothing can be drawn.
    """
    if not _NAME.fullmatch(name):
        raise UserError(f"{shown(name)} is not the name of a folder; use letters, digits, dots, dashes and underscores")
    if not request.folders.is_free(name):
        raise UserError(f"{request.folders.path_of(name).parent}: exists already; use another NAME, or remove it")
    if wish.number > MAXIMUM_POINTS:
        remedy = "draw several lists, each with another NAME and --seed"
        raise UserError(f"--number {wish.number}: a list has {MAXIMUM_POINTS} tuples at most; {remedy}")
    database = request.database
    database.must_exist()
    rows = database.operator_measurements.rows()
    models = {
        identity: one
        for identity, one in counts_in(database.model_operators).items()
        # No list of tuples runs under autocast. Drawn tuples would widen the ranges that the next ones are drawn from.
        if not (is_under_autocast(one.counts.model) or one.counts.model.is_grid)
    }
    known = {
        key: count
        for (key, _), count in counts_of_operators(models).items()
        if count.operator.short_name not in DEPENDING_ON_VALUES
    }
    numbers = Counter(count.operator.short_name for count in known.values())
    kinds = _kinds(wish.kinds, numbers) or _usual_kinds(models, rows, numbers)
    measured = {tuple_key(row.key) for row in rows}
    drawn = sample(known.values(), replace(wish, kinds=kinds), _counted, measured)
    if not drawn:
        raise UserError(f"--kind {' '.join(kinds)}: no tuple with other sizes is valid; name another kind")
    path = request.folders.own / name / GRID_NAME
    chosen, expected_s, product = _within(request, most_s, rows, drawn)
    text = _text(wish, [count.operator for count in chosen])
    if not dry_run:
        replace_file(path, text)
    whitelist = load_whitelist(request.folders.whitelist) if request.folders.whitelist.exists() else ()
    of_kinds = []
    for kind in kinds:
        own = [count for count in chosen if count.operator.short_name == kind]
        flop = max((count.flop or 0 for count in own), default=0)
        memory_bytes = max((count.memory_bytes for count in own), default=0)
        is_whitelisted = not {kind, EVERYTHING}.isdisjoint(whitelist)
        of_kinds.append(DrawnKind(kind, numbers[kind], len(own), flop, memory_bytes, is_whitelisted))
    return SampleReport(
        name=name,
        path=str(path),
        kinds=tuple(of_kinds),
        tuples=tuple(str(count.operator) for count in chosen),
        wanted=len(chosen) if len(chosen) < len(drawn) else wish.number,
        expected_s=expected_s,
        device_product=product,
    )


def _kinds(asked: Sequence[str], known: Mapping[str, int]) -> tuple[str, ...]:
    for kind in asked:
        if kind not in known:
            close = difflib.get_close_matches(kind, known, n=3)
            most = sorted(known, key=lambda one: -known[one])
            remedy = f"did you mean {' or '.join(close)}?" if close else f"there are {some_of(most, KINDS_SHOWN)}"
            raise UserError(f"--kind {kind}: the database has no tuple of it to begin with; {remedy}")
    return tuple(dict.fromkeys(asked))


def _usual_kinds(models: TableCounts, rows: Sequence[MeasurementRow], known: Mapping[str, int]) -> tuple[str, ...]:
    measured = grouped(rows, lambda row: case_key(row.key))
    cases = (
        (case, calls)
        for model in models.values()
        for count in model.counts.counts
        for case, calls in cases_of_count(count, CAPTURED)
    )
    kinds = usual_kinds(
        (case.operator, calls * fmean(row.measurement.time_s for row in measured[case.key]))
        for case, calls in cases
        if case.key in measured and case.operator.short_name in known
    )
    if not kinds:
        raise UserError("the database has no row of a model's operator; name the kinds to draw, such as --kind Conv2d")
    return kinds


def _counted(operator: OperatorTuple) -> OperatorCount | None:
    try:
        return count_point(GridPoint(operator), META).counts[0]
    except CannotMeasureError:
        return None


def _text(wish: Wish, operators: Sequence[OperatorTuple]) -> bytes:
    comments = [
        f"Operator tuples between and beyond those of models, drawn with seed {wish.seed}, up to {wish.beyond_ratio:g}",
        'times beyond the known sizes. docs/usage.md explains the keys under "Lists of tuples".',
    ]
    text = tuples_text(operators, comments).encode()
    if len(text) > MAXIMUM_BYTES:
        most = wish.number * MAXIMUM_BYTES // len(text) // 10 * 10
        remedy = f"draw {most}, and other lists with another NAME and --seed"
        raise UserError(f"--number {wish.number}: the list would be larger than {MAXIMUM_BYTES // 1000} kB; {remedy}")
    return text


def _within(
    request: Request, limit_s: float | None, rows: Sequence[MeasurementRow], drawn: Sequence[OperatorCount]
) -> tuple[Sequence[OperatorCount], float | None, str | None]:
    """Return the first tuples that can be measured in the time, with that in s and its product, None without rows."""
    device = request.device
    warm = (row.conditions for row in rows if row.conditions.cache == WARM)
    numbers = Counter(one for one in warm if is_meant(device, one))
    if not numbers:
        if device is not None:
            refuse_unknown(device, (row.conditions.device_product for row in rows))
        if limit_s is not None:
            raise UserError("--gpu-seconds: the database has no rows, so that this time is unknown; use --number")
        return drawn, None, None
    products = Counter(one.device_product for one in numbers.elements())
    product = max(products, key=lambda one: products[one])
    conditions = max((one for one in numbers if one.device_product == product), key=lambda one: numbers[one])
    is_gpu = conditions.device_type != "cpu"
    protocol = usual_protocol((row.circumstances for row in rows if row.conditions == conditions), is_gpu)
    times = ExpectedTimes(conditions, rows, sizes_in(request.database.model_operators))
    sizes = (Size(count.flop, count.memory_bytes) for count in drawn)
    own_s = (times.unmeasured_s(one, conditions.execution, protocol) for one in sizes)
    sums_s = list(accumulate(own_s, initial=starting_s(is_gpu)))[1:]
    fitting = drawn if limit_s is None else drawn[: sum(one <= limit_s for one in sums_s)]
    if not fitting:
        raise UserError(f"--gpu-seconds {limit_s:g}: one tuple takes {duration(sums_s[0])} with the start; give more")
    return fitting, sums_s[len(fitting) - 1], product
