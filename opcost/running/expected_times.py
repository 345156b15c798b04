"""Before a campaign: the time that it takes, from rows, else from FLOPs and bytes; sizes of models; numbers of rows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from opcost.errors import CannotMeasureError, UserError
from opcost.measuring.conditions import Conditions
from opcost.measuring.record import MeasurementRow
from opcost.operators.counts import conditions_key, tuple_key
from opcost.operators.model_rows import ModelOperatorRow
from opcost.operators.tuples import TORCHVISION_MODELS
from opcost.prediction.durations import ExpectedTimes, Size
from opcost.running.plan import Work
from opcost.sources.port import ListedModel
from opcost.sources.registry import published_models, source_of
from opcost.storage.configs import ModelConfig, model_tuple
from opcost.storage.database import Database
from opcost.storage.model_counts import COUNTS
from opcost.storage.table import CsvTable

WHOLLY_READ_BYTES = 2**25
"""The size up to which a table is read as a whole, in a few seconds. Of a larger one only rows of wanted operators are
known."""

GPU_STARTING_S = 22.0
CPU_STARTING_S = 5.0
"""Time to start the process that measures, with torch and the libraries that operators load: an H200, besides its
qualification, 2026-11-30; two cores of a server, 2026-11-23."""

QUALIFICATION_S = 30.0
"""Time to qualify the meters of a board, once under each driver (H200, 2026-11-21)."""

BETWEEN_S = 0.5
"""Time of a repetition besides warm-up, loop and single iterations: meters start and end."""


def starting_s(is_gpu: bool) -> float:
    return GPU_STARTING_S if is_gpu else CPU_STARTING_S


def opening_parts_s(
    database: Database, is_gpu: bool, boards: Collection[str | None], has_meter: bool = True
) -> dict[str, float]:
    """Return the expected times to start processes and, if a board (its UUID) needs it, to qualify meters in s."""
    known = {row.device_uuid for row in database.meter_qualifications.rows()}
    is_due = is_gpu and has_meter and not known.issuperset(boards)
    return {"start": starting_s(is_gpu), **({"qualification": QUALIFICATION_S} if is_due else {})}


def expected_times(
    database: Database,
    table: CsvTable[MeasurementRow],
    rows: Sequence[MeasurementRow],
    works: Sequence[Work],
    conditions: Conditions,
) -> ExpectedTimes:
    """Return the expected times of a campaign that adds to a table, of which ``rows`` are of the wanted operators.

    ``conditions`` are any of the campaign.
    """
    sizes = sizes_in(database.model_operators) | {key: size for work in works for key, size in work.sizes.items()}
    are_models = all(case.operator.is_model for work in works for case in work.cases)
    all_rows = rows_if_few(table) or rows
    is_known = any(row.conditions.device_product == conditions.device_product for row in all_rows)
    operator_rows = rows_if_few(database.operator_measurements) if are_models and not is_known else ()
    return ExpectedTimes(conditions, all_rows, sizes, are_models, operator_rows)


def rows_if_few(table: CsvTable[MeasurementRow]) -> list[MeasurementRow]:
    """Return the rows of a table, none if it is large."""
    return table.rows() if table.size_bytes <= WHOLLY_READ_BYTES else []


def sizes_in(table: CsvTable[ModelOperatorRow], wanted: Callable[[str], bool] | None = None) -> dict[str, Size]:
    """Return the sizes of measured models and their operators by the keys of their tuples.

    ``wanted`` is a test of models' keys, None for all models.
    """
    return {tuple_key(row.key): Size(row.flop, row.memory_bytes, row.weights or 0) for row in table.rows(wanted)}


@dataclass
class RowTally:
    """Counts rows by the key of their conditions, and wants the first ``parsed`` of each."""

    parsed: int = 1
    numbers: Counter[str] = field(default_factory=Counter)

    def __call__(self, key: str) -> bool:
        conditions = conditions_key(key)
        self.numbers[conditions] += 1
        return self.numbers[conditions] <= self.parsed


def numbers_of_rows(table: CsvTable[MeasurementRow]) -> Mapping[Conditions, int]:
    """Return the number of rows under each set of conditions. Raises UserError: a row that is parsed is damaged."""
    tally = RowTally()
    firsts = {row.conditions: conditions_key(row.key) for row in table.rows(tally)}
    return {conditions: tally.numbers[key] for conditions, key in firsts.items()}


FLOP_PER_BYTE = 36
"""The FLOPs of 52 counted models over their bytes (EfficientNet-B0: 4, ResNet-50: 25, ViT-B/16: 150)."""


def size_of(config: ModelConfig, shipped: Mapping[str, Size]) -> Size | None:
    """Return the size of a model as counted, else as shipped by the key of its tuple or published; None if unknown."""
    model = model_tuple(config)
    try:
        counts = COUNTS.read(config)
        return Size(counts.total_flop, counts.total_memory_bytes, counts.parameters)
    except UserError:
        known = shipped.get(model.key)
    # Sources other than torchvision publish no figures.
    if known is not None or not model.operator.startswith(TORCHVISION_MODELS):
        return known
    listed: ListedModel | None
    try:
        listed = source_of(model).listed(model.short_name)
    except ModuleNotFoundError:
        # torch need not be installed where nothing is measured.
        listed = published_models().get(model.short_name)
    except CannotMeasureError:
        return None
    return None if listed is None else published_size(listed, config.input_size)


def published_size(listed: ListedModel, input_size: Sequence[int]) -> Size | None:
    """Return the size of a model by its published facts, scaled to its input; None if unknown."""
    facts = listed.published
    if facts.multiply_adds is None or not input_size:
        return None
    samples = math.prod(input_size) / math.prod(listed.input_size[1:])
    flop = round(2 * facts.multiply_adds * samples)
    return Size(flop, flop // FLOP_PER_BYTE, facts.parameters or 0)
