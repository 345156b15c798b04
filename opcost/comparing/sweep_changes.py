"""The curves of a sweep as pieces: constant at first, then linear or quadratic, with breaks where another piece begins.

Each piece is fitted by least squares of relative residuals. The number of pieces, their kinds and the breaks minimise
the Bayesian information criterion, n ln(s²) + k ln(n), with s² the mean squared relative residual and k the number of
coefficients and breaks (Schwarz, Annals of Statistics 6 (1978), 461-464; Yao, Statistics & Probability Letters 6
(1988), 181-189, for the number of breaks). Pieces need not meet: a curve may jump.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from opcost.comparing.sweep_sizes import SweepFigures, SweepSizeRow
from opcost.estimates import FloatArray
from opcost.measuring.evaluation import AT_THE_LIMIT_RATIO
from opcost.measuring.sweep_record import SweepKernelRow
from opcost.measuring.throttling import HARDLY_THROTTLED_RATIO
from opcost.units import megabytes, percent

LEAST_RESIDUAL = 0.01
"""The relative residual (root mean square) that no fit is credited to be below: a smaller one is noise of builds, up to
1.8 % (``docs/log/repeatability.md``), and breaks would follow it."""

MOST_PIECES = 4


class PieceKind(Enum):
    """The form of a piece. The value is the word that people read."""

    CONSTANT = "constant"
    LINEAR = "linear"
    QUADRATIC = "quadratic"

    @property
    def degree(self) -> int:
        return (PieceKind.CONSTANT, PieceKind.LINEAR, PieceKind.QUADRATIC).index(self)

    @property
    def fewest(self) -> int:
        """The fewest points: one more than the coefficients, so that a piece says something of its points."""
        return self.degree + 2


@dataclass(frozen=True)
class Piece:
    """A piece of a curve from its first to its last point, both included, by their place.

    ``coefficients`` are those of x^0, x^1, x^2. ``residual_ratio`` is the root mean square of relative residuals.
    """

    kind: PieceKind
    first: int
    last: int
    coefficients: tuple[float, ...]
    residual_ratio: float

    @property
    def points(self) -> int:
        return self.last - self.first + 1

    def at(self, x: float) -> float:
        return math.fsum(coefficient * x**power for power, coefficient in enumerate(self.coefficients))


def pieces_of(x: Sequence[float], y: Sequence[float]) -> tuple[Piece, ...]:
    """Return the pieces of a curve in order; none for fewer than three points.

    A constant piece can only be the first one: later, costs grow with the input.

    Args:
        x: in ascending order, shape (n,).
        y: above 0, shape (n,).
    """
    xs, ys = np.array(x, dtype=float), np.array(y, dtype=float)
    count = len(xs)
    if count < PieceKind.LINEAR.fewest:
        return ()
    # The best chain of pieces up to each point, for each number of pieces and of coefficients: squares add up.
    chains: list[dict[tuple[int, int], _Chain]] = [{(0, 0): _Chain(0.0, ())}, *({} for _ in range(count))]
    for first, last in _spans(count):
        for piece in _fits(xs, ys, first, last):
            for chain in list(chains[first].values()):
                _extend(chains[last + 1], chain, piece)
    found = chains[count].values()
    return min(found, key=lambda chain: _criterion(chain, count)).pieces if found else ()


@dataclass(frozen=True)
class _Chain:
    """Pieces one after the other, and the sum of their squared relative residuals."""

    squares: float
    pieces: tuple[Piece, ...]

    @property
    def coefficients(self) -> int:
        return sum(piece.kind.degree + 1 for piece in self.pieces)


def _extend(chains: dict[tuple[int, int], _Chain], chain: _Chain, piece: Piece) -> None:
    """Add the chain with a further piece, unless one of as many pieces and coefficients is better."""
    if len(chain.pieces) == MOST_PIECES or (chain.pieces and piece.kind is PieceKind.CONSTANT):
        return
    longer = _Chain(chain.squares + piece.points * piece.residual_ratio**2, (*chain.pieces, piece))
    key = len(longer.pieces), longer.coefficients
    if key not in chains or longer.squares < chains[key].squares:
        chains[key] = longer


def _spans(count: int) -> Iterator[tuple[int, int]]:
    least = PieceKind.CONSTANT.fewest
    return ((first, last) for first in range(count) for last in range(first + least - 1, count))


def _fits(xs: FloatArray, ys: FloatArray, first: int, last: int) -> Iterator[Piece]:
    """Yield the piece of each kind that has enough points, and does not fall."""
    x, y = xs[first : last + 1], ys[first : last + 1]
    for kind in PieceKind:
        if len(x) < kind.fewest:
            continue
        # Scaled, because powers of pixels differ by many orders of magnitude.
        scale = float(x[-1])
        powers = np.vander(x / scale, kind.degree + 1, increasing=True)
        scaled, *_ = np.linalg.lstsq(powers / y[:, None], np.ones(len(y)), rcond=None)
        residuals = powers @ scaled / y - 1
        coefficients = tuple(float(one) / scale**power for power, one in enumerate(scaled))
        if kind is not PieceKind.CONSTANT and coefficients[-1] <= 0:
            continue
        yield Piece(kind, first, last, coefficients, float(np.sqrt(np.mean(residuals**2))))


def _criterion(chain: _Chain, count: int) -> float:
    parameters = chain.coefficients + len(chain.pieces) - 1
    return count * math.log(max(chain.squares / count, LEAST_RESIDUAL**2)) + parameters * math.log(count)


NOTICEABLE_SHARE = 0.1
"""The share of a size's kernel time in kernels that the size below does not launch, from which they are another
kernel."""

SHORT_KERNEL_S = 5e-6
"""The mean time of a kernel below which launches, not work, take the time: 2 us between two kernels of a graph, and
5 us for each launch from Python."""

IDLE_RATIO = 0.8
"""The share of an iteration in kernels below which a device mostly waits for launches."""


class Change(Enum):
    """A difference between the sizes above a break and below it. The value is the text that people read."""

    OTHER_KERNEL = "another kernel"
    POWER_LIMIT = "the power limit"
    CACHE_SIZE = "the cache's size"
    LAUNCH_BOUND_BELOW = "launch-bound below"


@dataclass(frozen=True)
class NamedChange:
    """A change, and the figures that show it, as people read them."""

    change: Change
    evidence: str


@dataclass(frozen=True)
class Break:
    """Two neighbouring sizes between which a curve has a break.

    ``jump_ratio`` is the value above over the one that the former piece would have there, None if that is below 0.
    Without ``changes`` the data name none; ``missing`` says which data are unknown.
    """

    before: int
    after: int
    jump_ratio: float | None
    changes: tuple[NamedChange, ...]
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class Curve:
    """A cost over the sizes, in pieces, with the breaks between them."""

    quantity: str
    sizes: tuple[int, ...]
    pieces: tuple[Piece, ...]
    breaks: tuple[Break, ...]


COSTS: Mapping[str, Callable[[SweepFigures], float | None]] = {
    "time": lambda figures: figures.time_s,
    "energy": lambda figures: figures.energy_j,
}


def curves_of(rows: Sequence[SweepSizeRow], kernels: Sequence[SweepKernelRow]) -> tuple[Curve, ...]:
    """Return the measured curves of time and energy; those with too few sizes have no pieces and are left out.

    Args:
        rows: the sizes in ascending order.
        kernels: of these sizes, as far as they were profiled.
    """
    found = []
    for quantity, cost in COSTS.items():
        known = [(row, value) for row in rows if (value := cost(row.figures)) is not None]
        pieces = pieces_of([row.place.size for row, _ in known], [value for _, value in known])
        if pieces:
            sizes = tuple(row.place.size for row, _ in known)
            breaks = tuple(_breaks([row for row, _ in known], [value for _, value in known], pieces, kernels))
            found.append(Curve(quantity, sizes, pieces, breaks))
    return tuple(found)


def _breaks(
    rows: Sequence[SweepSizeRow], values: Sequence[float], pieces: Sequence[Piece], kernels: Sequence[SweepKernelRow]
) -> Iterator[Break]:
    for former, later in itertools.pairwise(pieces):
        places = range(later.first, later.last)
        first = next(
            (place for place in places if abs(former.at(rows[place].place.size) / values[place] - 1) > LEAST_RESIDUAL),
            later.last,
        )
        before, after = rows[first - 1], rows[first]
        expected = former.at(after.place.size)
        by_side = [[one for one in kernels if one.place.key == row.place.key] for row in (before, after)]
        changes = (
            _other_kernel(*by_side),
            _power_limit(before, after),
            _cache_size(before, after),
            _launch_bound_below(before, after),
        )
        yield Break(
            before=before.place.size,
            after=after.place.size,
            jump_ratio=values[first] / expected if expected > 0 else None,
            changes=tuple(change for change in changes if change is not None),
            missing=tuple(_missing(before, after, by_side)),
        )


def _missing(before: SweepSizeRow, after: SweepSizeRow, kernels: Sequence[Sequence[object]]) -> Iterator[str]:
    if not all(kernels):
        yield "kernels"
    if None in (before.figures.power_w, after.figures.power_w):
        yield "power"
    if None in (before.work.largest_call_bytes, after.work.largest_call_bytes, after.figures.cache_bytes):
        yield "cache"


def _other_kernel(before: Sequence[SweepKernelRow], after: Sequence[SweepKernelRow]) -> NamedChange | None:
    """Return the largest kernel above that is not launched below, if such kernels take a noticeable share."""
    total_s = sum(row.kernel_time_s for row in after)
    names = {row.kernel for row in before}
    new = [row for row in after if row.kernel not in names]
    share = sum(row.kernel_time_s for row in new) / total_s if total_s and names else 0.0
    if share < NOTICEABLE_SHARE:
        return None
    largest = max(new, key=lambda row: row.kernel_time_s)
    return NamedChange(
        Change.OTHER_KERNEL,
        f"{percent(share, 0)} of the kernel time is in kernels that are not launched below, "
        f"most in {short_kernel_name(largest.kernel)}",
    )


def _power_limit(before: SweepSizeRow, after: SweepSizeRow) -> NamedChange | None:
    if _is_at_limit(before) is not False or not _is_at_limit(after):
        return None
    powers = [row.figures.power_w for row in (before, after)]
    known = " and ".join("unknown" if power is None else f"{power:.0f} W" for power in powers)
    return NamedChange(Change.POWER_LIMIT, f"{known}, limit {after.conditions.device_power_limit_w:.0f} W")


def _is_at_limit(row: SweepSizeRow) -> bool | None:
    """Return whether a size is at the power limit, None if that is unknown."""
    limit_w, power_w, capped = row.conditions.device_power_limit_w, row.figures.power_w, row.figures.power_capped_ratio
    if limit_w is None or power_w is None:
        return None
    return power_w >= AT_THE_LIMIT_RATIO * limit_w or (capped or 0.0) > HARDLY_THROTTLED_RATIO


def _cache_size(before: SweepSizeRow, after: SweepSizeRow) -> NamedChange | None:
    below, above = before.work.largest_call_bytes, after.work.largest_call_bytes
    cache = after.figures.cache_bytes
    if below is None or above is None or cache is None or not below <= cache < above:
        return None
    evidence = f"the largest call has {megabytes(below)} and {megabytes(above)}, the cache {megabytes(cache)}"
    return NamedChange(Change.CACHE_SIZE, evidence)


def _launch_bound_below(before: SweepSizeRow, after: SweepSizeRow) -> NamedChange | None:
    if not _is_launch_bound(before) or _is_launch_bound(after) is not False:
        return None
    times_s = [(row.figures.time_s or 0.0) / row.work.kernels for row in (before, after) if row.work.kernels]
    texts = " and ".join(f"{1e6 * time_s:.1f} µs" for time_s in times_s)
    return NamedChange(Change.LAUNCH_BOUND_BELOW, f"an iteration takes {texts} per kernel")


def _is_launch_bound(row: SweepSizeRow) -> bool | None:
    """Return whether launches take most of the time of a size, None if its kernels are unknown."""
    time_s, work = row.figures.time_s, row.work
    if time_s is None or not work.kernels or work.kernels_time_s is None:
        return None
    return time_s / work.kernels < SHORT_KERNEL_S or work.kernels_time_s / time_s < IDLE_RATIO


@dataclass(frozen=True)
class BreakLine:
    """A piece of a curve as a line of a table; the break is the one that precedes it."""

    quantity: str
    kind: str
    first_size: int
    last_size: int
    residual_ratio: float
    jump_ratio: float | None
    changes: str
    missing: str


def lines_of(curves: Sequence[Curve]) -> list[BreakLine]:
    """Return a line for each piece of each curve."""
    found = []
    for curve in curves:
        for place, piece in enumerate(curve.pieces):
            at = curve.breaks[place - 1] if place else None
            found.append(
                BreakLine(
                    quantity=curve.quantity,
                    kind=piece.kind.value,
                    first_size=curve.sizes[piece.first],
                    last_size=curve.sizes[piece.last],
                    residual_ratio=piece.residual_ratio,
                    jump_ratio=None if at is None else at.jump_ratio,
                    changes="" if at is None else words_of(at),
                    missing="" if at is None else ", ".join(at.missing),
                )
            )
    return found


def words_of(one: Break) -> str:
    """Return what changes at a break, for people."""
    named = "; ".join(f"{change.change.value} ({change.evidence})" for change in one.changes)
    return named or "no change in the data names it"


_CUTLASS = re.compile(r"cutlass::Kernel2?<(\w+)>")
"""The kernel of CUTLASS that runs any other one: only its argument names the other."""


def short_kernel_name(name: str) -> str:
    """Return the qualified name of a kernel's function.

    Args:
        name: as the profiler gives it, demangled.
    """
    named = _CUTLASS.sub(r"\1", name.replace("(anonymous namespace)::", ""))
    words = _without_template_arguments(named).partition("(")[0].split()
    return words[-1] if words else name


def _without_template_arguments(name: str) -> str:
    depth, kept = 0, []
    for character in name:
        depth += character == "<"
        if depth == 0:
            kept.append(character)
        depth -= character == ">" and depth > 0
    return "".join(kept)
