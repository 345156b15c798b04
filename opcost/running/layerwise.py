"""``LayerwiseEnergy``: time and energy of each layer of a model in a user's own training or inference loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from opcost import html_text
from opcost.columns import by_column
from opcost.errors import UserError
from opcost.estimates import total_if_known
from opcost.metering.layers import (
    BETWEEN,
    UNKNOWN_OWNER,
    KnownCost,
    LoopTotals,
    MeteredKindRow,
    MeteredLayerRow,
    kind_rows,
    layer_rows,
    layer_shares,
)
from opcost.metering.window_energy import WindowResult
from opcost.meters.energy import NoDeviceError, NoEnergy
from opcost.running.energy_meter import EnergyMeter
from opcost.storage.data_files import write_layers
from opcost.storage.database import Database
from opcost.storage.files import user_folders
from opcost.units import UNKNOWN, milli, number_of, percent, printable, watts

if TYPE_CHECKING:
    # Only for types: the name is found without torch, which a loop imports.
    from pandas import DataFrame
    from torch import nn

    from opcost.running.layer_loop import LayerLoop, LoopState


SHOWN = 20
"""The most layers in a table; files have all."""

LAYER_HEAD = ("layer", "class", "calls", "forward ms", "backward ms", "forward mJ", "backward mJ", "mJ", "W", "share")
KIND_HEAD = ("class", "layers", "ms", "mJ", "W", "time share", "energy share", "database mJ")

UNKNOWN_OWNER_REASON = (
    f"{UNKNOWN_OWNER}: backward of calls before the iteration, or by several threads; "
    "a loop that calls the model several times calls step() after their backward"
)


TextTable: TypeAlias = tuple[Sequence[str], Sequence[tuple[str, ...]]]


@dataclass(frozen=True, repr=False)
class LayerwiseResult:
    """The layers of a metered loop.

    ``rows`` add up to the time and the energy of ``window``, times its ``iterations``: each row is a share of them, and
    the last row is the rest, unknown if the layers had to be scaled to the window. ``own_s`` is the time that opcost
    itself took in the loop, on the host. ``uncalled`` are the paths of modules that ran in no marked iteration.
    """

    window: WindowResult
    rows: tuple[MeteredLayerRow, ...]
    iterations: int
    marked: int
    own_s: float
    uncalled: tuple[str, ...] = ()

    @property
    def kinds(self) -> list[MeteredKindRow]:
        return kind_rows(self.rows)

    def to_csv(self, path: str | Path) -> None:
        """Write the rows to a CSV file, which is replaced. Raises UserError: it cannot be written."""
        write_layers(Path(path), self.rows)

    def to_frame(self) -> DataFrame:
        """Return the rows as a data frame."""
        import pandas

        frame: DataFrame = pandas.DataFrame(map(by_column, self.rows))
        return frame

    def __str__(self) -> str:
        """Return tables of the layers and of their classes, per iteration, with the window that they add up to."""
        layers, kinds = (_known(*table) for table in self._tables())
        return "\n".join([*self._heading(), *_lines(layers, 2), *self._notes(), "", *_lines(kinds, 1)])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        layers, kinds = (html_text.table(head, rows) for head, *rows in (_known(*table) for table in self._tables()))
        above, below = ("".join(map(html_text.paragraph, texts)) for texts in (self._heading(), self._notes()))
        return f"{above}{layers}{below}{kinds}"

    def _heading(self) -> list[str]:
        weighted = [row for row in self.rows if row.database_power_w or row.database_backward_power_w]
        backward = sum(row.database_backward_power_w is not None for row in weighted)
        of_backward = f", of {backward} in the backward" if backward else ""
        powers = f"powers of {number_of(len(weighted), 'layer')} are known from rows{of_backward}"
        powers = powers if weighted else "by time alone"
        shares = "no energy" if self.window.energy_j is None else f"shares of energy: {powers}"
        return [
            f"{number_of(self.iterations, 'iteration')} of {self.window}",
            f"{self.marked} of them marked ({percent(self.own_s / self.window.duration_s, 2)} of the time); {shares}",
        ]

    def _notes(self) -> list[str]:
        left = _by_cost(self.rows)[SHOWN:]
        share = percent(total_if_known(map(_share, left)))
        return [
            *([f"and {number_of(len(left), 'layer')} more, of {share} in all"] if left else []),
            *([UNKNOWN_OWNER_REASON] if any(row.layer == UNKNOWN_OWNER for row in self.rows) else []),
            *(row.energy_missing_reason or "" for row in self.rows if row.time_s is None),
        ]

    def _tables(self) -> tuple[TextTable, TextTable]:
        """Return the layers that cost most, and all classes of layers, each as headings and rows."""
        kinds = []
        for kind in self.kinds:
            ratios = percent(kind.time_ratio), percent(kind.energy_ratio)
            figures = milli(kind.time_s), milli(kind.energy_j), _power(kind.power_w), *ratios
            kinds.append((kind.layer_class, str(kind.layers), *figures, milli(kind.database_energy_j)))
        return (LAYER_HEAD, _layer_texts(self.rows)), (KIND_HEAD, kinds)


class LayerwiseEnergy:
    """Meters a loop around a model, and divides its time and energy over the model's layers.

    Each call of the model begins an iteration. A loop that calls it several times before one backward ends iterations
    by ``step`` instead. A sample of the iterations is marked, within a budget of 1 % of the time. In the others, the
    model runs without opcost. Afterwards it is as before, also after an exception.

    Args:
        model: a module on one device; not compiled, not scripted.
        database: the folder of tables with known powers; None for that of the user's home, with the shipped rows.

    Raises UserError: the model is compiled, or on several devices.
    """

    def __init__(self, model: nn.Module, database: str | Path | None = None) -> None:
        from opcost.running.layer_loop import check_model

        check_model(model)
        self._model = model
        self._database = None if database is None else Path(database)
        self._device = ""
        self._loop: LayerLoop | None = None
        self._state: LoopState | None = None
        self._window: WindowResult | None = None
        self._result: LayerwiseResult | None = None

    def __enter__(self) -> LayerwiseEnergy:
        """Begin to meter. Raises UserError: the model is compiled, on several devices, or metered already."""
        from opcost.running.layer_loop import loop_around

        self._device, loop = loop_around(self._model)
        self._window = self._result = None
        self._meter = EnergyMeter([self._device])
        try:
            self._meter.start()
        except UserError as error:
            # Without a meter of the device, times are known all the same.
            reason = error.reason if isinstance(error, NoDeviceError) else str(error)
            self._meter._sources = [NoEnergy(reason, self._device)]
            self._meter.start()
        loop.open()
        self._loop = loop
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        from opcost.running.layer_loop import state_of

        assert self._loop is not None
        # After an exception, a CUDA error may keep the GPU from being awaited.
        errors = () if kind is None else (RuntimeError,)
        try:
            with suppress(*errors):
                self._loop.close(is_failed=kind is not None)
        finally:
            with suppress(*errors):
                self._meter.stop()
            self._meter.close()
            self._window = self._meter.result
        with suppress(*errors):
            self._loop.read()
            self._state = state_of(self._device, self._loop.marks.autocasts)

    def step(self) -> None:
        """End an iteration here, instead of at the next call of the model."""
        if self._loop is None or not self._loop.is_open:
            raise UserError("LayerwiseEnergy: step() outside of its context; call it inside of `with`")
        self._loop.step()

    @property
    def _has_result(self) -> bool:
        return self._loop is not None and self._window is not None and bool(self._loop.times.marked)

    def __repr__(self) -> str:
        return str(self.result) if self._has_result else "<LayerwiseEnergy: no result>"

    def _repr_html_(self) -> str:
        return self.result._repr_html_() if self._has_result else html_text.paragraph(repr(self))

    @property
    def result(self) -> LayerwiseResult:
        """The layers with their costs. Raises UserError: the context has not ended, or the model was not called."""
        if self._result is not None:
            return self._result
        loop, window = self._loop, self._window
        if loop is None or window is None:
            raise UserError("LayerwiseEnergy: result before the end; look at it after the `with` block")
        if not loop.times.marked:
            raise UserError(
                "LayerwiseEnergy: no call of the model ended in the `with` block; run the loop inside of it"
            )
        from opcost.running.layer_loop import known_costs

        known: Mapping[int, KnownCost] = {}
        if self._state is not None:
            database = Database.of(user_folders(database=self._database))
            known = known_costs(loop.marks.calls_of_tuples, self._state, database)
        totals = LoopTotals(window.duration_s, window.energy_j, loop.iterations, loop.times.marked)
        shares = layer_shares(loop.times, dict(zip(loop.marks.paths, loop.marks.classes, strict=True)), known)
        called = {share.layer for share in shares}
        self._result = LayerwiseResult(
            window=window,
            rows=tuple(layer_rows(totals, shares, window.missing_reason)),
            iterations=loop.iterations,
            marked=loop.times.marked,
            own_s=loop.own_s,
            uncalled=tuple(path for path in loop.marks.paths if path and path not in called),
        )
        return self._result


def _by_cost(rows: Sequence[MeteredLayerRow]) -> list[MeteredLayerRow]:
    """Return the layers, those first that take most energy, or time where that is unknown."""
    layers = [row for row in rows if row.layer != BETWEEN]
    return sorted(layers, key=lambda row: (row.time_s if row.energy_j is None else row.energy_j) or 0.0, reverse=True)


def _layer_texts(rows: Sequence[MeteredLayerRow]) -> list[tuple[str, ...]]:
    between = [row for row in rows if row.layer == BETWEEN]
    lines = []
    for row in (*_by_cost(rows)[:SHOWN], *between):
        figures = (row.forward_time_s, row.backward_time_s, row.forward_energy_j, row.backward_energy_j, row.energy_j)
        if row.layer == BETWEEN:
            figures = (row.time_s, None, None, None, row.energy_j)
        texts = row.layer, row.layer_class or "", "" if row.calls is None else f"{row.calls:g}"
        lines.append((*texts, *map(milli, figures), _power(row.power_w), percent(_share(row))))
    return lines


def _share(row: MeteredLayerRow) -> float | None:
    return row.time_ratio if row.energy_ratio is None else row.energy_ratio


def _power(power_w: float | None) -> str:
    return UNKNOWN if power_w is None else watts(power_w).removesuffix(" W")


def _known(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """Return headings and rows without columns of which no value is known."""
    is_known = [any(cell not in ("", UNKNOWN) for cell in column) for column in zip(*rows, strict=True)]
    lines = (zip(line, is_known, strict=True) for line in (head, *rows))
    return [tuple(printable(cell) for cell, known in line if known) for line in lines]


def _lines(table: Sequence[Sequence[str]], texts: int) -> Iterator[str]:
    """Yield aligned lines; the first columns are texts."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for line in table:
        cells = (
            cell.ljust(width) if index < texts else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        yield "  ".join(cells).rstrip()
