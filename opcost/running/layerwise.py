"""``LayerwiseEnergy``: time and energy of each layer of a model in a user's own training or inference loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

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


@dataclass(frozen=True)
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

    def __str__(self) -> str:
        """Return tables of the layers and of their classes, per iteration, with the window that they add up to."""
        weighted = [row for row in self.rows if row.database_power_w or row.database_backward_power_w]
        backward = sum(row.database_backward_power_w is not None for row in weighted)
        of_backward = f", of {backward} in the backward" if backward else ""
        powers = f"powers of {number_of(len(weighted), 'layer')} are known from rows{of_backward}"
        powers = powers if weighted else "by time alone"
        shares = "no energy" if self.window.energy_j is None else f"shares of energy: {powers}"
        is_unknown = any(row.layer == UNKNOWN_OWNER for row in self.rows)
        kinds = []
        for kind in self.kinds:
            ratios = percent(kind.time_ratio), percent(kind.energy_ratio)
            figures = milli(kind.time_s), milli(kind.energy_j), _power(kind.power_w), *ratios
            kinds.append((kind.layer_class, str(kind.layers), *figures, milli(kind.database_energy_j)))
        lines = [
            f"{number_of(self.iterations, 'iteration')} of {self.window}",
            f"{self.marked} of them marked ({percent(self.own_s / self.window.duration_s, 2)} of the time); {shares}",
            *_layer_lines(self.rows),
            *([UNKNOWN_OWNER_REASON] if is_unknown else []),
            *(row.energy_missing_reason or "" for row in self.rows if row.time_s is None),
            "",
            *_table(KIND_HEAD, 1, kinds),
        ]
        return "\n".join(lines)


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


def _layer_lines(rows: Sequence[MeteredLayerRow]) -> Iterator[str]:
    """Yield a table of the layers that take most energy, or time where that is unknown."""
    layers = [row for row in rows if row.layer != BETWEEN]
    layers.sort(key=lambda row: (row.time_s if row.energy_j is None else row.energy_j) or 0.0, reverse=True)
    between = [row for row in rows if row.layer == BETWEEN]
    lines = []
    for row in (*layers[:SHOWN], *between):
        figures = (row.forward_time_s, row.backward_time_s, row.forward_energy_j, row.backward_energy_j, row.energy_j)
        if row.layer == BETWEEN:
            figures = (row.time_s, None, None, None, row.energy_j)
        texts = row.layer, row.layer_class or "", "" if row.calls is None else f"{row.calls:g}"
        lines.append((*texts, *map(milli, figures), _power(row.power_w), percent(_share(row))))
    yield from _table(LAYER_HEAD, 2, lines)
    if len(layers) > SHOWN:
        share = total_if_known(_share(row) for row in layers[SHOWN:])
        yield f"and {number_of(len(layers) - SHOWN, 'layer')} more, of {percent(share)} in all"


def _share(row: MeteredLayerRow) -> float | None:
    return row.time_ratio if row.energy_ratio is None else row.energy_ratio


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
