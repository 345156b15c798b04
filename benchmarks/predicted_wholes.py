"""Predict whole models that were measured after the predictor was made -> a CSV file

The predictor learns from the shipped database only. Models are counted on shapes, as without a GPU.
Example: PYTHONPATH=. python benchmarks/predicted_wholes.py RUN --output FILE
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from opcost.command.options import Parser
from opcost.measuring.record import MeasurementRow
from opcost.operators.texts import parse_operator
from opcost.reporting.terminal import progress_on_stderr
from opcost.running.request import Request
from opcost.stages.predict import PredictionRequest, predict
from opcost.stages.wanted_model import WantedModel
from opcost.storage.caches import cache_folder
from opcost.storage.database import Database
from opcost.summing.energy import EnergyBasis

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class PredictedWhole:
    """A model's measured and predicted costs in s and J, energies at 50 °C, and the ends of the 90 % intervals.

    The ratios are shares of the predicted time: of measured operators, and of those that no measured one is like.
    """

    model: str
    batch_size: int
    device_uuid: str
    time_s: float
    predicted_time_s: float
    lower_time_s: float
    upper_time_s: float
    energy_j: float
    predicted_energy_j: float
    lower_energy_j: float
    upper_energy_j: float
    measured_time_ratio: float
    outside_time_ratio: float


def main() -> None:
    """Print the path of the table."""
    parser = Parser(description=__doc__)
    parser.add_argument("folder", type=Path, help="database with whole models")
    parser.add_argument("--output", type=Path, required=True, help="file of the table")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as own:
        rows = [predicted(row, Path(own)) for row in Database(arguments.folder).full_model_measurements.rows()]
    pd.DataFrame(rows).to_csv(arguments.output, index=False)
    print(arguments.output)


def predicted(row: MeasurementRow, own: Path) -> PredictedWhole:
    """Return the prediction of a measured whole model of torchvision at the batch of its row."""
    request = Request((), own, Database(ROOT / "database"), shipped_measurements=ROOT / "measurements")
    model = row.operator.rpartition(".")[2]
    (image,) = parse_operator(row.operator, row.parameters, row.inputs, row.training_mode).inputs
    wish = PredictionRequest(WantedModel(model, image.shape), row.conditions.device_product)
    run = predict(request, wish, cache_folder(), progress_on_stderr()).run
    energy = EnergyBasis.NORMALISED.energy_of(row)
    return PredictedWhole(
        model=model,
        batch_size=image.shape[0],
        device_uuid=row.circumstances.device_uuid,
        time_s=row.measurement.time_s,
        predicted_time_s=run.time_s.value,
        lower_time_s=run.time_s.lower,
        upper_time_s=run.time_s.upper,
        energy_j=energy.value,
        predicted_energy_j=run.energy_j.value,
        lower_energy_j=run.energy_j.lower,
        upper_energy_j=run.energy_j.upper,
        measured_time_ratio=run.measured_time_ratio,
        outside_time_ratio=run.outside_time_ratio,
    )


if __name__ == "__main__":
    main()
