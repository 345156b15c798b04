"""Find out, once for each card and its software, what a call takes longer in cold caches."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import torch

from opcost.bench import Bench, measured_row
from opcost.cold_calls import ColdCallsRow, cold_calls_row, cold_calls_under
from opcost.conditions import GRAPH
from opcost.csv_database import CsvTable
from opcost.errors import CannotMeasureError
from opcost.operators import META
from opcost.ports import protocol_for
from opcost.request import COLD_CALLS
from opcost.subjects import Subject
from opcost.torch_capture import capture
from opcost.torch_small_operators import SMALL_OPERATORS, SmallOperators, small_input
from opcost.units import millijoules, milliseconds

PRECISION = "torch-default"
RELATIVE_ERROR = 0.005
"""Half of what operators are usually asked for: a small difference of two large figures is wanted."""


def cold_calls_in(database: Path) -> CsvTable[ColdCallsRow]:
    """Return the table of what calls take longer in cold caches."""
    return CsvTable(database / COLD_CALLS, ColdCallsRow)


def find_cold_calls(bench: Bench, database: Path) -> ColdCallsRow | None:
    """Measure what calls take longer in cold caches and keep it; None where nothing runs in CUDA graphs, or it fails.

    Eager runs wait for the host so often that caches hardly count.
    """
    if not _runs_graphs(bench):
        return None
    protocol = protocol_for(True, relative_error=RELATIVE_ERROR)
    circumstances = bench.circumstances(protocol)
    try:
        *alone, chain = (
            measured_row(bench, subject, PRECISION, protocol, circumstances)
            for subject in (*subjects(), Subject(SMALL_OPERATORS))
        )
    except CannotMeasureError as error:
        logging.getLogger(__name__).warning("what calls take longer in cold caches is not known: %s", error)
        return None
    row = cold_calls_row(alone, chain)
    cold_calls_in(database).append(row)
    return row


def find_cold_calls_if_unknown(bench: Bench, database: Path) -> None:
    """Find out what calls take longer in cold caches, where a database does not know it of this card and software."""
    rows = cold_calls_in(database).rows()
    if _runs_graphs(bench) and bench.has_meter and cold_calls_under(rows, bench.conditions(PRECISION)) is None:
        log = logging.getLogger(__name__)
        log.warning("what calls take longer in cold caches is found out first: 20 s, once")
        found = find_cold_calls(bench, database)
        if found is not None:
            log.warning("a call takes %s longer there, and %s", milliseconds(found.time_s), millijoules(found.energy_j))


def _runs_graphs(bench: Bench) -> bool:
    return bench.is_gpu and bench.conditions(PRECISION).execution == GRAPH


def subjects() -> Iterator[Subject]:
    """Yield the small operators, once for each call."""
    with torch.device(META):
        model = SmallOperators().eval()
    for count in capture(model, (small_input(META),), SMALL_OPERATORS).counts:
        if count.memory_bytes:
            yield from [Subject(count.operator)] * count.occurrences
