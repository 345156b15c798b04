"""Predicted training steps: from declared rows of steps, and from committed rows of inference alone."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from committed_models import known_database
from simulated_apparatus import RecordedProgress
from simulated_machine import SIMULATED_CONDITIONS, declared_row

from opcost.comparing.predicted_run import WidthReason
from opcost.errors import UserError
from opcost.measuring.record import MeasurementRow
from opcost.operators.counts import CAPTURED, Case, OperatorCount, OperatorCounts, case_columns, cases_of
from opcost.operators.model_rows import rows_of
from opcost.operators.training import PARTS, Training, whole_case
from opcost.operators.tuples import Phase
from opcost.reporting.model_tables import prediction_object, print_prediction
from opcost.running.request import RunRequest
from opcost.stages.count import count_in_memory
from opcost.stages.make_configs import config_of
from opcost.stages.predict import Prediction, PredictionRequest, predict
from opcost.stages.wanted_model import WantedModel
from opcost.storage.configs import ModelFolders
from opcost.storage.database import Database

ROOT = Path(__file__).parents[2]
CARD = replace(SIMULATED_CONDITIONS, device_type="cuda", device_product="Simulated card", execution="graph")
POWERS_W = {Phase.INFERENCE: 400.0, Phase.FORWARD: 400.0, Phase.BACKWARD: 500.0, Phase.OPTIMIZER: 200.0}

NET = """
import torch
from torch import nn

def build(channels):
    layers = [nn.Conv2d(3, channels, 3), nn.BatchNorm2d(channels), nn.ReLU(), nn.Conv2d(channels, channels, 3)]
    tail = [nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10)]
    return nn.Sequential(*layers, *tail), torch.zeros(16, 3, 32, 32)
"""


def declared_time_s(count: OperatorCount) -> float:
    return 3e-6 + (count.flop or 0) / 2e13 + count.memory_bytes / 2e12


@pytest.fixture
def request_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunRequest:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NET)
    folders = ModelFolders(tmp_path / "mine", ROOT / "measurements")
    return RunRequest((), folders, Database(tmp_path / "database"), allow_code=True)


def step(channels: int, optimizer: str = "sgd") -> WantedModel:
    return WantedModel("net.py:build", training=Training(optimizer=optimizer), arguments=(("channels", channels),))


def counted(request: RunRequest, wanted: WantedModel) -> OperatorCounts:
    return count_in_memory(request, config_of(request.folders, wanted, True), RecordedProgress())


def declare(request: RunRequest, models: Sequence[OperatorCounts], phases: Sequence[Phase] = tuple(Phase)) -> None:
    """Add rows of the models' tuples in some phases, of a declared truth, and the counts."""
    database, rows = request.database, dict[str, MeasurementRow]()
    database.folder.mkdir(exist_ok=True)
    for counts in models:
        database.model_operators.append_missing(rows_of("net", counts, "2026-11-30T00:00:00+00:00"))
        for count in counts.counts:
            for case in cases_of([count], CAPTURED) if count.computes and count.phase in phases else ():
                row = declared(case, declared_time_s(count))
                rows[row.key] = row
    database.operator_measurements.append_missing(rows.values())


def declared(case: Case, time_s: float) -> MeasurementRow:
    energy_j = time_s * POWERS_W.get(case.phase, 400.0)
    row = declared_row(
        case.operator, CARD, case.input_data, phase=case.phase, time_s=time_s, energy_j=energy_j, flags=()
    )
    return replace(row, **case_columns(case))


def truth_s(counts: OperatorCounts, phase: Phase) -> float:
    own = (one for one in counts.counts if one.phase is phase and one.computes)
    return math.fsum(one.occurrences * declared_time_s(one) for one in own)


def predicted(request: RunRequest, wanted: WantedModel, **options: object) -> Prediction:
    wish = PredictionRequest(wanted, **{"device": CARD.device_product, **options})  # type: ignore[arg-type]
    return predict(request, wish, request.database.folder / "cache", RecordedProgress())


def test_a_step_is_predicted_from_the_rows_of_others_with_its_parts(
    request_of: RunRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    declare(request_of, [counted(request_of, step(channels)) for channels in (8, 16, 24, 32, 48, 64, 80, 96, 128)])
    found, counts = predicted(request_of, step(56)), counted(request_of, step(56))
    assert found.samples > 100
    assert found.run.outside_time_ratio < 0.05
    assert [one.phase for one in found.phases] == list(PARTS)
    for one in found.phases:
        assert one.time_s.value == pytest.approx(truth_s(counts, one.phase), rel=0.1)
        assert one.time_s.has(truth_s(counts, one.phase))
        assert one.power_w == pytest.approx(POWERS_W[one.phase], rel=0.05)
    assert found.time_s.value == pytest.approx(math.fsum(one.time_s.value for one in found.phases))
    shown = json.loads(json.dumps(prediction_object(found), default=vars))
    assert [one["source"] for one in shown["phases"].values()] == ["predicted"] * 3
    capsys.readouterr()
    print_prediction(found)
    assert "Parts of the step" in capsys.readouterr().out


def test_a_step_without_rows_of_any_backward_has_a_wide_interval_and_says_why(request_of: RunRequest) -> None:
    models = [counted(request_of, step(channels)) for channels in (8, 16, 24, 32, 48, 64, 80, 96, 128)]
    declare(request_of, models, phases=(Phase.FORWARD,))
    found, counts = predicted(request_of, step(56)), counted(request_of, step(56))
    forward, backward, optimizer = found.phases
    reasons = {one.reason: one for one in found.run.widened}
    assert "convolution_backward" in reasons[WidthReason.NEW_KINDS].operators
    widths = [one.time_s.upper / one.time_s.lower for one in (forward, backward, optimizer)]
    assert widths[0] < 2 < min(widths[1:])
    assert all(one.time_s.has(truth_s(counts, one.phase)) for one in found.phases)


def test_a_measured_step_is_the_answer_with_its_parts_as_they_were_measured(request_of: RunRequest) -> None:
    wanted = step(16)
    counts = counted(request_of, wanted)
    declare(request_of, [counts])
    times_s = {Phase.STEP: 1e-3, Phase.FORWARD: 3e-4, Phase.BACKWARD: 6e-4, Phase.OPTIMIZER: 1e-4}
    whole = whole_case(counts.model)
    rows = [declared(replace(whole, phase=phase), time_s) for phase, time_s in times_s.items()]
    request_of.database.full_model_measurements.append_missing(rows)
    found = predicted(request_of, wanted)
    assert (found.whole is not None, found.time_s.value) == (True, 1e-3)
    assert {one.phase: one.time_s.value for one in found.phases} == {phase: times_s[phase] for phase in PARTS}
    assert found.run.time_s.value == pytest.approx(math.fsum(truth_s(counts, phase) for phase in PARTS), rel=0.01)


def test_a_step_whose_backward_is_another_on_a_gpu_is_refused(request_of: RunRequest, tmp_path: Path) -> None:
    declare(request_of, [counted(request_of, step(16))])
    recurrent = "import torch\ndef build():\n    return torch.nn.GRU(8, 4), torch.zeros(5, 2, 8)\n"
    (tmp_path / "gru.py").write_text(recurrent)
    with pytest.raises(UserError, match="the backward of GRU is another on a GPU than where it was counted; run "):
        predicted(request_of, WantedModel("gru.py:build", training=Training("mse")))


def test_committed_rows_of_inference_answer_for_a_step_with_a_wide_interval(
    request_of: RunRequest, tmp_path: Path
) -> None:
    (tmp_path / "committed").mkdir()
    request = replace(request_of, database=known_database(tmp_path / "committed"))
    found = predicted(request, WantedModel("resnet18", training=Training()), device="H200", batch=8)
    reasons = {one.reason: one for one in found.run.widened}
    assert "convolution_backward" in reasons[WidthReason.NEW_KINDS].operators
    assert WidthReason.FEW_WHOLES in reasons
    assert found.time_s.upper > 1.5 * found.time_s.value
