"""The layers of a metered loop as a plain table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opcost.metering.layer_rows import BETWEEN, MeteredKindRow, MeteredLayerRow
from opcost.printable import printable
from opcost.units import UNKNOWN, milli, number_of, percent, watts

SHOWN = 20
"""The most layers in a table; files have all."""

LAYER_HEAD = ("layer", "class", "calls", "forward ms", "backward ms", "forward mJ", "backward mJ", "mJ", "W", "share")
KIND_HEAD = ("class", "layers", "ms", "mJ", "W", "time share", "energy share", "database mJ")


def layer_lines(rows: Sequence[MeteredLayerRow]) -> Iterator[str]:
    """Yield a table of the layers that take most energy, of time where that is unknown, and the time between."""
    layers = sorted((row for row in rows if row.layer != BETWEEN), key=_rank, reverse=True)
    between = [row for row in rows if row.layer == BETWEEN]
    yield from _table(LAYER_HEAD, 2, [_layer_cells(row) for row in (*layers[:SHOWN], *between)])
    if len(layers) > SHOWN:
        yield f"and {number_of(len(layers) - SHOWN, 'layer')} more, of {_share(layers[SHOWN:])} in all"


def kind_lines(kinds: Sequence[MeteredKindRow]) -> Iterator[str]:
    """Yield a table of the classes of layers."""
    yield from _table(KIND_HEAD, 1, [_kind_cells(kind) for kind in kinds])


def _rank(row: MeteredLayerRow) -> float:
    return row.time_s if row.energy_j is None else row.energy_j


def _share(rows: Sequence[MeteredLayerRow]) -> str:
    return percent(sum(row.time_ratio if row.energy_ratio is None else row.energy_ratio for row in rows))


def _layer_cells(row: MeteredLayerRow) -> tuple[str, ...]:
    calls = "" if row.calls is None else f"{row.calls:g}"
    figures = (row.forward_time_s, row.backward_time_s, row.forward_energy_j, row.backward_energy_j, row.energy_j)
    if row.layer == BETWEEN:
        figures = (row.time_s, None, None, None, row.energy_j)
    share = row.time_ratio if row.energy_ratio is None else row.energy_ratio
    return row.layer, row.layer_class or "", calls, *map(milli, figures), _power(row.power_w), percent(share)


def _kind_cells(kind: MeteredKindRow) -> tuple[str, ...]:
    energies = (milli(kind.energy_j), _power(kind.power_w), percent(kind.time_ratio), percent(kind.energy_ratio))
    return kind.layer_class, str(kind.layers), milli(kind.time_s), *energies, milli(kind.database_energy_j)


def _power(power_w: float | None) -> str:
    return UNKNOWN if power_w is None else watts(power_w).removesuffix(" W")


def _table(head: Sequence[str], texts: int, rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield aligned lines; the first columns are texts. Columns without a known value are left out."""
    is_known = [any(cell not in ("", UNKNOWN) for cell in column) for column in zip(*rows, strict=True)]
    shown = [
        tuple(printable(cell) for cell, known in zip(line, is_known, strict=True) if known) for line in (head, *rows)
    ]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for line in shown:
        cells = (
            cell.ljust(width) if index < texts else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        yield "  ".join(cells).rstrip()
