"""The measurement of products with weights from memory, and in the cache on the same board, for cache corrections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from opcost.comparing.cache_chain_rows import is_corrected
from opcost.comparing.weights_from_memory import cases_from_memory, excesses_from_memory
from opcost.measuring.conditions import COLD
from opcost.measuring.protocol import MeasurementProtocol
from opcost.operators.cases import Case, as_counted, of_operators
from opcost.operators.counts import OperatorCounts
from opcost.progress import Progress
from opcost.running.bench import Bench
from opcost.running.campaign import Campaign
from opcost.running.plan import Reason, Work
from opcost.running.request import Request
from opcost.summing.index import Measurements


@dataclass(frozen=True)
class WeightsFromMemory:
    """The measurements of pairs that the database does not have: with weights in the cache and from memory.

    A pair may be of any board, but both rows are of one. A product that has its row in the cache from another board is
    therefore measured both ways.
    """

    campaign: Campaign | None

    @property
    def names(self) -> frozenset[str]:
        return frozenset() if self.campaign is None else frozenset(work.name for work in self.campaign.plan.works)

    @classmethod
    def of(
        cls,
        bench: Bench,
        protocol: MeasurementProtocol,
        request: Request,
        models: Sequence[tuple[Work, OperatorCounts]],
        input_data: str,
    ) -> WeightsFromMemory:
        """Plan the missing pairs of some models, given the work of block 2 for each; none where sums need none."""
        if not (bench.is_gpu and is_corrected(bench.conditions(request.setting))):
            return cls(None)
        works = [
            replace(work, setting=replace(work.setting, cache=cache), cases=cases)
            for work, cases in _missing(bench, request, models, input_data)
            for cache in (work.setting.cache, COLD)
        ]
        if not works:
            return cls(None)
        table = request.database.operator_measurements
        campaign = Campaign(bench, protocol, replace(request, same_board=True), table, works)
        return cls(campaign.without_drift_checks())

    def expected_s(self) -> float:
        """Return the expected time in s, without rows in the cache that block 2 measures anyway."""
        if self.campaign is None:
            return 0.0
        return sum(
            self.campaign.item_s(item)
            for item in self.campaign.plan.items
            if item.setting.cache == COLD or item.reason is Reason.OTHER_BOARD
        )

    def measure(self, progress: Progress) -> None:
        """Measure what is missing; what fails is in ``failures.csv``, and the kind of chain corrects it."""
        if self.campaign is not None and self.campaign.plan.items:
            for _ in self.campaign.run(progress):
                pass


def _missing(
    bench: Bench, request: Request, models: Sequence[tuple[Work, OperatorCounts]], input_data: str
) -> list[tuple[Work, tuple[Case, ...]]]:
    """Return the cases of each model whose operators have no pair yet."""
    wanted = [(work, counts, cases_from_memory(counts, input_data)) for work, counts in models]
    operators = {case.operator for _, _, cases in wanted for case in cases}
    measurements = Measurements(request.database.operator_measurements.rows(of_operators(operators)))
    found = []
    for work, counts, cases in wanted:
        known = excesses_from_memory(counts.counts, measurements, bench.conditions(work.setting))
        missing = tuple(case for case in cases if case.operator not in known)
        if missing:
            found.append((work, as_counted(missing, counts)))
    return found
