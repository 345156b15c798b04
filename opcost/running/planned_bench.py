"""A bench for plans only: a device that this machine need not have, as the rows of the database know it."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from opcost import __version__
from opcost.errors import UserError
from opcost.measuring.conditions import EAGER, GRAPH, Circumstances, Conditions
from opcost.measuring.protocol import MeasurementProtocol
from opcost.measuring.record import Measurement, MeasurementRow
from opcost.measuring.setting import Setting
from opcost.operators.cases import Case
from opcost.running.drift_check import STEADY_LOAD
from opcost.storage.database import Database

SAMPLED_BYTES = 2**20
"""The size of a table from which a sample of its rows is read for the conditions."""


@dataclass(frozen=True)
class PlannedBench:
    """Implements ``Bench`` for a product, on a board that no row is of; it cannot measure.

    ``rows`` are those of the product, at least one.
    """

    device: str
    rows: Sequence[MeasurementRow]

    @property
    def is_gpu(self) -> bool:
        """Whether the product is a GPU."""
        return self.rows[0].conditions.device_type == "cuda"

    @property
    def has_meter(self) -> bool:
        """Whether a row has an energy."""
        return any(row.measurement.energy_j is not None for row in self.rows)

    @property
    def drift_case(self) -> Case | None:
        """The case of the drift checks."""
        return STEADY_LOAD if self.is_gpu else None

    def conditions(self, setting: Setting) -> Conditions:
        """Return the conditions with the most rows in a setting, the newest of several.

        If no row is in this setting, they are those of another setting with this one's precision, execution and cache.
        """
        execution = setting.execution or (GRAPH if self.is_gpu else EAGER)
        wanted = setting.precision, execution, setting.cache
        counts = Counter(row.conditions for row in self.rows)
        newest = {row.conditions: row.measurement.ended_at for row in self.rows}
        found = max(counts, key=lambda one: (_setting_of(one) == wanted, counts[one], newest[one]))
        return replace(found, precision=setting.precision, execution=execution, cache=setting.cache)

    def circumstances(self, protocol: MeasurementProtocol) -> Circumstances:
        """Return the circumstances on an unknown board and host."""
        is_precise = protocol.relative_error is not None
        return Circumstances(
            device_uuid=None,
            host_cpu="",
            python_version="",
            opcost_version=__version__,
            torchvision_version=None,
            warm_up_s=protocol.warm_up_s,
            loop_s=None if is_precise else protocol.loop_s,
            relative_error=protocol.relative_error,
        )

    def measure(self, case: Case, setting: Setting, protocol: MeasurementProtocol, log_name: str) -> Measurement:
        """Raise an error: there is no device."""
        raise AssertionError(f"{self.device}: a plan measures nothing")


@contextmanager
def open_planned_bench(device: str | None, database: Database, with_meter: bool) -> Iterator[PlannedBench]:
    """Yield a bench of a product that the database has rows of.

    Raises:
        UserError: it has none.
    """
    operators, models = database.operator_measurements, database.full_model_measurements
    is_large = operators.size_bytes > SAMPLED_BYTES
    # A sixteenth of the operators shows the usual conditions, in a fraction of a second.
    for wanted in (_is_in_sample, None) if is_large else (None,):
        rows = [*operators.rows(wanted), *models.rows()]
        products = sorted({row.conditions.device_product for row in rows})
        found = [product for product in products if product.lower() == str(device).lower()]
        if found:
            yield PlannedBench(found[0], [row for row in rows if row.conditions.device_product == found[0]])
            return
    raise UserError(f"--device {device}: {_remedy(str(device), products)}")


def _is_in_sample(key: str) -> bool:
    return key.startswith("0")


def _remedy(device: str, products: Sequence[str]) -> str:
    if not products:
        return "the database has no rows of any device; name cpu, cuda or cuda:N"
    close = difflib.get_close_matches(device.lower(), [product.lower() for product in products], n=1, cutoff=0.4)
    question = "".join(f" (did you mean {product}?)" for product in products if product.lower() in close)
    return (
        f"the database has no rows of it, but of {', '.join(products)}{question}; "
        "for another product name a similar one, with --same-board"
    )


def _setting_of(conditions: Conditions) -> tuple[str, str, str]:
    return conditions.precision, conditions.execution, conditions.cache
