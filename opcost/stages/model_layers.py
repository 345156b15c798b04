"""The layers of one model with what they cost, from the counts of a run and the rows of the database."""

from __future__ import annotations

from dataclasses import dataclass, replace

from opcost.comparing.layers import Layers, RunCosts, layers_of
from opcost.comparing.model_result import ModelResult
from opcost.invocation import command
from opcost.measuring.conditions import WARM, Conditions, is_device_name
from opcost.measuring.setting import refuse_unknown
from opcost.operators.counts import OperatorCounts
from opcost.operators.model_rows import ShippedCounts
from opcost.progress import Progress
from opcost.running.request import Request, RunRequest
from opcost.running.shipped_counts import counts_in, identity_of, shipped_counts
from opcost.stages.count import count_in_memory
from opcost.stages.make_configs import config_of
from opcost.stages.profile import ObjectModel, counted_object
from opcost.stages.ranking_data import RankingData, read_ranking_data
from opcost.stages.show import Choice
from opcost.stages.wanted_model import WantedModel, pickled
from opcost.storage.configs import ModelConfig
from opcost.summing.summation import NOTHING_SUMMED


@dataclass(frozen=True)
class LayersReport:
    """The layers of one run of a model, with its result under one set of conditions, None if nothing is measured.

    ``others`` are further devices with rows of the model. ``differs`` says whether the database has other counts of the
    model, so that its sum there is another one. ``measuring`` is the command that measures what has no row.
    """

    name: str
    layers: Layers
    weights: int
    counted_on: str
    result: ModelResult | None
    others: tuple[str, ...] = ()
    differs: bool = False
    measuring: str | None = None

    @property
    def conditions(self) -> Conditions | None:
        return None if self.result is None else self.result.conditions

    @property
    def costs(self) -> RunCosts:
        return RunCosts() if self.result is None else RunCosts.of(self.result)

    @property
    def lacks_rows(self) -> bool:
        return any(call.lacks_row for call in self.layers.calls)


def find_layers(request: RunRequest, wanted: WantedModel, choice: Choice, progress: Progress) -> LayersReport:
    """Return the layers of a model. Nothing is measured or written.

    A model that block 0 has counted is not run. Any other is run once, on shapes if possible. Raises UserError: the
    model does not exist or cannot be counted, its counts have no paths, or no row is of the device.
    """
    config = config_of(request.folders, wanted, request.allow_code)
    shipped = shipped_counts(request.database, [config]).get(config.name)
    counts = pickled(config, shipped) or count_in_memory(request, config, progress)
    calls, shipped_calls = (
        {count.operator.key: count.occurrences for count in one.counts if count.computes}
        for one in (counts, shipped or counts)
    )
    # The database's counts have the input values of a run on the device, and comparisons use them.
    summed = shipped if shipped is not None and calls == shipped_calls else counts
    data = _data(request, config, summed)
    report = layers_report(config, counts, data, choice)
    same = WantedModel.of(config)
    return replace(
        report,
        differs=calls != shipped_calls,
        measuring=command("profile", *same.words) if report.lacks_rows and same is not None else None,
    )


def layers_of_object(request: RunRequest, own: ObjectModel, choice: Choice) -> LayersReport:
    """Return the layers of an object, which runs once on its own device. Raises UserError: it cannot be counted."""
    with counted_object(request, own) as counted:
        config, counts = counted.config, counted.counts
        data = _data(counted.request, config, counts)
        return layers_report(config, counts, data, choice)


def _data(request: Request, config: ModelConfig, counts: OperatorCounts) -> RankingData:
    in_place = {identity_of(config): ShippedCounts(counts, "")}
    return read_ranking_data(request, [config], (), {**counts_in(request.database.model_operators), **in_place})


def layers_report(config: ModelConfig, counts: OperatorCounts, data: RankingData, choice: Choice) -> LayersReport:
    """Return the layers of a model from its counts with paths.

    ``data`` is of this model alone. Of several conditions, a GPU comes before a CPU, a sum before none, then a whole,
    most bytes in the sum, and the newest row. Raises UserError: no row is of the device.
    """
    if choice.device is not None and not is_device_name(choice.device):
        refuse_unknown(choice.device, (one.device_product for one in data.newest))

    def rank(one: ModelResult) -> tuple[bool, bool, bool, float, str]:
        is_gpu, ratio = one.conditions.device_type != "cpu", one.cost.memory_bytes_ratio or 0.0
        return is_gpu, bool(one.cost.parts), one.whole is not None, ratio, data.newest[one.conditions]

    usual = (one for one in data.newest if one.cache == WARM and one.execution == choice.execution_on(one.device_type))
    found = [one for conditions in usual if choice.means(conditions) for one in data.results(conditions)]
    result = max(found, key=rank, default=None)
    products = {one.conditions.device_product for one in found}
    return LayersReport(
        name=config.name,
        layers=layers_of(counts, NOTHING_SUMMED if result is None else result.cost),
        weights=counts.parameters,
        counted_on=counts.device_type,
        result=result,
        others=() if result is None else tuple(sorted(products - {result.conditions.device_product})),
    )
