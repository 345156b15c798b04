"""The layout of every table, and of progress, at 80, 100 and 160 columns: ``tests/golden/tables/``.

``pytest --renew-golden`` writes them again.
"""

import io
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from unittest.mock import patch

import pytest
from committed_tables import committed, of_boards
from rich.cells import cell_len
from rich.console import Console
from simulated_apparatus import RecordedProgress
from simulated_machine import SIMULATED_CONDITIONS
from test_tables import COMPARED

from opcost.comparing.comparison import Remark, RemarkKind
from opcost.comparing.conditions_side_by_side import SideBySide
from opcost.comparing.corrections import Corrections
from opcost.comparing.coverage import Addition, CoveredShare
from opcost.comparing.model_result import ModelResult
from opcost.comparing.predicted_run import PredictedCalls, PredictedRun, Range, Widened, WidthReason
from opcost.measuring.record import ComparisonRow, MeasurementRow
from opcost.operators.counts import Case, OperatorCount, Share
from opcost.operators.model_inputs import Units
from opcost.operators.texts import parse_tuple
from opcost.prediction.needed_memory import NeededMemory
from opcost.reporting.comparison_tables import print_against, print_comparisons, print_kernels
from opcost.reporting.count_tables import (
    print_advice,
    print_census,
    print_count_plans,
    print_counts,
    print_holdings,
    print_rebuilds,
    print_sample,
    print_selections,
)
from opcost.reporting.measurement_tables import print_full_models, print_operator_measurements, print_qualification
from opcost.reporting.model_tables import ABOUT_OPERATORS, print_layers, print_prediction, print_profile
from opcost.reporting.progress_lines import BarProgress, PlainProgress
from opcost.reporting.ranking_tables import print_rankings
from opcost.running.planned_bench import AssumedVersions
from opcost.running.request import Request, RunRequest
from opcost.stages.advise import Advice, ModelAdvice
from opcost.stages.compare import ComparingReport, compare_against
from opcost.stages.count import CensusRow, CountPlan, CountReport, FormulaGap
from opcost.stages.filter import FilterReport, OperatorShare
from opcost.stages.holdings import Holdings
from opcost.stages.holdings import holdings as find_holdings
from opcost.stages.measure_operators import FullModelReport, OperatorsReport, UnitReport
from opcost.stages.model_layers import find_layers
from opcost.stages.predict import Prediction
from opcost.stages.profile import CostOnDevice, ModelProfile, Profile, ProfiledOperator
from opcost.stages.sample_operators import DrawnKind, SampleReport
from opcost.stages.show import Choice, ShowReport
from opcost.stages.show import show as show_models
from opcost.stages.verify import KernelsReport, KindOfOperator, RebuildReport
from opcost.stages.wanted_model import WantedModel
from opcost.storage.configs import ModelFolders

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "tables"
WIDTHS = (80, 100, 160)

SHORT, USUAL, LONG = "vgg16_32x3x224x224", "efficientnet_b0_32x3x224x224", "shufflenet_v2_x0_5_32x3x224x224"
LONGEST = "maskrcnn_resnet50_fpn_v2_and_weights_of_coco_2x3x800x1333"
H200 = ("cuda:0", "NVIDIA H200")
GPU = replace(
    SIMULATED_CONDITIONS,
    device_type="cuda",
    device_product="NVIDIA H200",
    driver_version="580.159.04",
    torch_version="2.11.0+cu130",
    execution="graph",
)
CPU = replace(
    GPU, device_type="cpu", device_product="AMD EPYC 9575F 64-Core Processor", driver_version=None, execution="eager"
)
TUPLE = "torch.nn.Conv2d(64, 64, kernel_size=(3, 3), padding=(1, 1), bias=False) on (float32[32, 64, 56, 56]) eval"


EFFICIENTNET = {
    "operator": "torchvision.models.efficientnet_b0",
    "conditions": GPU,
    "reference_temperature_c": 50.0,
    "time_s": 0.003442,
    "time_standard_error_s": 7e-6,
    "energy_j": 1.566,
    "energy_standard_error_j": 0.008,
    "full_time_s": 0.003561,
    "full_time_standard_error_s": 1e-6,
    "full_energy_j": 1.616,
    "full_energy_standard_error_j": 0.001,
    "time_ratio": 0.9666,
    "time_standard_error_ratio": 0.002,
    "energy_ratio": 0.9691,
    "energy_standard_error_ratio": 0.005,
    "function_time_s": 0.000246,
    "function_energy_j": 0.118,
    "correction_time_s": 7.1e-5,
    "correction_time_standard_error_s": 1e-6,
    "correction_energy_j": 0.019,
    "correction_energy_standard_error_j": 0.001,
    "power_limit_time_s": 0.0,
    "power_limit_time_standard_error_s": 0.0,
    "power_limit_energy_j": 0.0,
    "power_limit_energy_standard_error_j": 0.0,
    "dropped_time_s": 2.5e-5,
    "dropped_energy_j": 0.003,
    "unmeasured_time_s": 0.0,
    "unmeasured_energy_j": 0.0,
    "unexplained_time_s": 2.3e-5,
    "unexplained_energy_j": 0.028,
    "energy_missing_reason": None,
    "flop_ratio": 1.0,
    "memory_bytes_ratio": 1.0,
    "summed_operators": 111,
    "missing_operators": 0,
    "missing": "",
}


def compared(name: str, **changes: object) -> ComparisonRow:
    """A comparison with values of EfficientNet-B0's size."""
    return replace(COMPARED, name=name, **{**EFFICIENTNET, **changes})


ENERGIES = """
    energy_j energy_standard_error_j full_energy_j full_energy_standard_error_j energy_ratio energy_standard_error_ratio
    function_energy_j dropped_energy_j unmeasured_energy_j unexplained_energy_j correction_time_s correction_energy_j
    reference_temperature_c
"""
NO_ENERGY = dict.fromkeys(ENERGIES.split())
PROTOCOL = {"name": "protocol", "of_sum": "a loop to within 1.00%", "of_whole": "a loop of 3 s", "time_ratio": 1.0}
BOARD = {"name": "device_uuid", "of_sum": "GPU-a", "of_whole": "GPU-b", "time_ratio": 0.364}
FLAGGED = Remark(
    RemarkKind.FLAGGED_OPERATORS, {"time_ratio": 0.123, "operator": "torch.nn.Conv2d", "flags": ("uneven",)}
)


def comparing(*pairs: tuple[ComparisonRow, tuple[Remark, ...]]) -> ComparingReport:
    rows = tuple(row for row, _ in pairs)
    return ComparingReport(rows[0].name, rows, None, remarks=tuple(remarks for _, remarks in pairs))


def comparisons() -> None:
    missing = {"missing_operators": 4, "missing": " | ".join([TUPLE] * 4), "unmeasured_time_s": 0.00036}
    eager = replace(GPU, execution="eager")
    reports = [
        comparing((compared(USUAL), (Remark(RemarkKind.OTHER_CIRCUMSTANCE, PROTOCOL),))),
        comparing(
            (compared(LONG), (Remark(RemarkKind.OTHER_CIRCUMSTANCE, BOARD),)),
            (compared(LONG, conditions=eager, correction_time_s=None, **missing), (FLAGGED,)),
        ),
        comparing((compared(SHORT, unexplained_time_s=-0.0079, time_s=0.0115, time_ratio=3.22), ())),
        ComparingReport("resnet18_32x3x224x224", (), "the whole model is not measured; run opcost measure-models"),
    ]
    print_comparisons(reports, dry_run=True)


def comparisons_of_a_cpu() -> None:
    reason = "28 of 28 operators have no energy: /sys/class/powercap/intel-rapl:0/energy_uj: Permission denied"
    rows = [compared(name, conditions=CPU, energy_missing_reason=reason, **NO_ENERGY) for name in (USUAL, LONG)]
    print_comparisons([comparing((row, ())) for row in rows], dry_run=False)


def comparisons_at_the_power_limit() -> None:
    added = {"power_limit_time_s": 9.6e-5, "power_limit_energy_j": -0.047}
    errors = {"power_limit_time_standard_error_s": 2.4e-5, "power_limit_energy_standard_error_j": 0.012}
    rows = [compared(USUAL), compared(SHORT, unexplained_time_s=-7.3e-5, unexplained_energy_j=0.075, **added, **errors)]
    print_comparisons([comparing((row, ())) for row in rows], dry_run=False)


def comparisons_of_a_long_name() -> None:
    print_comparisons([comparing((compared(name), (FLAGGED,))) for name in (LONGEST, SHORT)], dry_run=False)


def kernels() -> None:
    kinds = (KindOfOperator("Conv2d", 53, 0.004, 0.005, 0.003), KindOfOperator("nms", 1, 0.001, None, 0.0))
    line = "1.2 ms: torch.nn.Conv2d: implicit_convolve_sgemm / cutlass_tensorop_s1688fprop_optimized_tf32_128x128"
    print_kernels([KernelsReport(LONG, 9, 0.005, 0.99, 0.6, kinds, (), (line,))])


def plans_of_counts() -> None:
    weights = "(IMAGENET1K_V1), input float32[32, 3, 224, 224]"
    print_count_plans([CountPlan(name, f"{name} {weights}", False, "cuda:0", 12.0) for name in (USUAL, LONG)])


def counts() -> None:
    sizes = (820, 777, 43, 111, 24_850_000_000, 7_390_000_000, 5_288_548, 24_850_000_000, 7_100_000_000)
    rest = (24_600_000_000, 7_000_000_000, ("fill_", "mm"), "cpu", sizes[4], None, ())
    rows = [CountReport(name, *sizes, *rest) for name in (USUAL, LONG)]
    gaps = (FormulaGap("aten::lstm", 2, 10, 0.125, 0.5), FormulaGap("mine::scale", 1, 10, 0.25, 0.001))
    unknown = replace(rows[0], name="mine", flops=None, counted_flops=None, whitelisted_flops=None, outside=())
    print_counts([*rows, replace(unknown, without_formula=gaps)])


def census() -> None:
    print_census([CensusRow(LONG, 174, 54, 50, 4), CensusRow(None, 10_348, 2_058, 1_050, 1_008)])


def rebuilds() -> None:
    print_rebuilds([RebuildReport(LONG, 111, 109, (f"{TUPLE}: other outputs",), (f"{TUPLE}: why",))])


def samples() -> None:
    kinds = (
        DrawnKind("Conv2d", 905, 12, 36_130_000_000, 326_300_000, True),
        DrawnKind("scaled_dot_product_attention", 4, 3, 15_400_000_000, 32_000_000, False),
        DrawnKind("reshape", 30, 0, 0, 0, True),
    )
    path = f"measurements/{LONG}/grid.yml"
    print_sample(SampleReport(LONG, path, kinds, (TUPLE,) * 15, 20, 379.4, "NVIDIA H200"), dry_run=True)


def selections() -> None:
    operators = (
        OperatorShare("Conv2d", True, 20, Share(53, 0.3, 0.9, 0.5)),
        OperatorShare("scaled_dot_product_attention", False, 2, Share(8, 0.051, 0.0, 0.05)),
    )
    shares = Share(150, 0.949, 1.0, 0.75), Share(8, 0.051, 0.0, 0.05), Share(0, None, 0.0, 0.2)
    print_selections([FilterReport(LONG, 50, 48, 60, *shares, operators)], dry_run=True)


def operator_measurements() -> None:
    failed = ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 12.25 GiB. GPU 0 has 141 GiB in all",)
    steps_s = {"building": 2480.0, "warming_up": 1470.0, "looping": 3200.0, "reading_meters": 140.0}
    parts_s = {"start": 15.0, "drift_checks": 31.0}
    numbers = (1100, 1148, 1010, 137, 1, 33, 20.0, 7530.0, steps_s, 46.0)
    print_operator_measurements(
        [OperatorsReport(LONG, *numbers, True, failed, 2, ("no meter",), {}, *H200, parts_s)], False
    )


def plans_of_operator_measurements() -> None:
    planned = {"missing": 136, "flagged": 2}
    numbers = (110, 148, 10, 0, 0, 138, 7530.0, 0.0, {}, 46.0)
    parts_s = {"start": 15.0, "qualification": 30.0, "drift_checks": 1.0}
    assumed = AssumedVersions("2.11.0+cu130", "580.159.04")
    plan = OperatorsReport(LONG, *numbers, False, (), 0, (), planned, *H200, parts_s, assumed)
    print_operator_measurements([plan], True)


def full_models() -> None:
    measured = (0.003561, 1.616, 453.8, True, False, 0.0, 12.3, {}, 15.0, None, {}, *H200, {"start": 15.0})
    reason = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 12.25 GiB. GPU 0 has 141 GiB in all"
    failed = (None, None, None, False, True, 33.0, 4.0, {}, 15.0, reason, {}, *H200)
    print_full_models([FullModelReport(USUAL, *measured), FullModelReport(LONG, *failed)], dry_run=False)


def qualification() -> None:
    rows = committed().meter_qualifications.rows()
    print_qualification([row for row in rows if row.device_uuid and row.device_uuid.startswith("GPU-e47b156c")])


def advice() -> None:
    additions = tuple(
        Addition(name, CoveredShare(0.03, 0.02))
        for name in ("scaled_dot_product_attention", "LayerNorm", "GELU", "pad", "Permute")
    )
    models = (
        ModelAdvice(USUAL, 0.99, 0.991, 1.0, 0.0, 0.968, 0.975, True, ()),
        ModelAdvice(LONG, 0.871, None, 0.4, 0.12, None, None, False, additions),
    )
    mean = ModelAdvice(None, 0.93, 0.991, 0.7, 0.06, None, None, False, additions)
    smallest = ("Conv2d", "Linear", "BatchNorm2d", "scaled_dot_product_attention", "LayerNorm", "add", "ReLU", "GELU")
    print_advice(Advice(0.99, GPU, (0.89, 1.0, 1.37), models, mean, smallest, ("Hardswish",)), is_written=False)


@cache
def shown(*names: str, sort: str = "energy") -> ShowReport:
    request = Request(names, ModelFolders(ROOT / "measurements"), committed())
    return show_models(request, Choice(sort, device="H200"))


def ranking() -> None:
    """Models of the committed rows: a sum, a flagged whole, one unlike its sum, a flagged incomplete sum, one sound."""
    report = shown("resnet18", "resnet50", "shufflenet_v2_x0_5", "vit_b_16", "swin_t")
    (device,) = report.rankings
    changes = (
        {"source": "sum", "expected_time_error_ratio": 0.013, "expected_energy_error_ratio": 0.023},
        {"is_flagged": True, "is_whole_flagged": True},
        {"is_unexplained": True},
        {"is_flagged": True, "is_sum_flagged": True, "is_missing": True, "memory_bytes_ratio": 0.97},
    )
    models = list(device.models)
    for index, change in enumerate(changes):
        models[index] = replace(models[index], row=replace(models[index].row, **change))
    changed = replace(report, rankings=(replace(device, models=tuple(models)),))
    print_rankings(changed, "energy")


def operators_of_a_model() -> None:
    print_rankings(shown("swin_t"), "energy")


def operators_with_long_texts() -> None:
    print_rankings(shown("resnet50"), "energy")


def operators_by_saving() -> None:
    print_rankings(shown("vit_b_16", sort="saving"), "saving", top=4)


def layers() -> None:
    request = RunRequest((), ModelFolders(ROOT / "measurements"), committed())
    print_layers(find_layers(request, WantedModel("resnet18_32x3x32x32"), Choice(), RecordedProgress()), 1)


@cache
def against(name: str, board: str, conditions: str) -> list[SideBySide]:
    return compare_against(Request((name,), ModelFolders(ROOT / "measurements"), of_boards(board)), [conditions])


def models_under_two_conditions() -> None:
    """One model with operators that cost more, and one of which operators are not measured under both."""
    print_against(against("vit_b_16_amp-bf16", "2f9d", "precision=fp32"))
    print_against(against("efficientnet_b0_bf16", "7e56", "precision=fp32"))


def models_under_two_memory_formats() -> None:
    print_against(against("*bf16_channels_last", "2f9d", "memory_format=contiguous"))


def plain_progress() -> None:
    stream, now_s = io.StringIO(), [0.0]
    progress = PlainProgress(stream, lambda: now_s[0])
    progress.start(120, [40.0] * 120)
    for (name, result), now_s[0] in zip(RESULTS, (40.0, 160.0), strict=True):
        progress.begin(name)
        progress.finish(result)
    now_s[0] = 240.0
    progress.fail("out of memory")
    print(stream.getvalue(), end="")


RESULTS = (
    ("ReLU(inplace=True) on float32[32, 64, 112, 112]", "0.05123 ms  19.91 mJ"),
    (TUPLE, "0.1234 ms  61.70 mJ  (uneven, imprecise)"),
)


@cache
def held() -> list[Holdings]:
    configs = ("resnet50", "swin_t", "vgg13_bn", "swin3d_s")
    return find_holdings(Request(configs, ModelFolders(ROOT / "measurements"), committed()), device="H200")


def holdings() -> None:
    """Committed rows, and the same at another power limit with names and numbers of any length."""
    usual, eager = (
        next(one for one in held() if (one.conditions.execution, one.conditions.cache) == (execution, "warm"))
        for execution in ("graph", "eager")
    )
    limited = replace(
        eager.conditions, device_power_limit_w=400.0, other_switches="torch.backends.cudnn.enabled = False"
    )
    partial = (replace(eager.partial[0], name=LONGEST, missing=1), *eager.partial)
    print_holdings([usual, eager, replace(eager, conditions=limited, partial=partial, expected_s=123456.0)])


def lines_of_operators(*, has_rows: bool) -> tuple[ProfiledOperator, ...]:
    """Operators with short and long texts, the last one without a row."""
    convolution = "in_channels=64, out_channels=128, kernel_size=(3, 3), stride=(2, 2), padding=(1, 1), bias=False"
    lines = (
        ProfiledOperator(
            "torch.nn.Conv2d", convolution, "float32[32, 64, 56, 56]", "eval", 4, 29_600_000_000, 206_100_000
        ),
        ProfiledOperator("torch.nn.ReLU", "", "bfloat16[32, 64, 112, 112]:channels_last", "eval", 17, 0, 590_900_000),
        ProfiledOperator(
            "torch.Tensor.add_", "", "float32[32, 64, 56, 56], float32[32, 64, 56, 56]", None, 2, 0, 154_100_000
        ),
    )
    costs = ((1.213e-3, 0.7123, 0.71, 0.73), (4.95e-4, 0.2634, 0.29, 0.27), (None, None, None, None))
    names = ("time_s", "energy_j", "time_ratio", "energy_ratio")
    pairs = zip(lines, costs, strict=True)
    measured = (replace(line, **dict(zip(names, cost, strict=True))) for line, cost in pairs)  # type: ignore[arg-type]
    return tuple(measured) if has_rows else lines


def model_profile(name: str, *, has_rows: bool) -> ModelProfile:
    size = (32, 3, 224, 224)
    work = (29_600_000_000, 951_100_000, 11_690_000)
    config = f"measurements/{name}/summary.yml"
    return ModelProfile(name, config, size, *work, "cuda", lines_of_operators(has_rows=has_rows))


def profiles() -> None:
    units = (UnitReport(LONG, OPERATORS_REPORT, WHOLE_REPORT),)
    own = replace(model_profile(LONG, has_rows=True), conditions=GPU, comparison=comparing((compared(LONG), ())))
    print_profile(Profile(PROFILE_REQUEST, ROOT, (own,), units), ("shufflenet_v2_x0_5",), top=3)


def profiles_without_measuring() -> None:
    cpu = CostOnDevice(CPU, 1.0, 0.4561, None, None, None, None, None)
    gpu = CostOnDevice(GPU, 0.94, 4.9e-3, 2.9, 3.1e-4, 0.12, None, None)
    whole = CostOnDevice(
        replace(GPU, device_product="NVIDIA H100 80GB HBM3"), 1.0, 4.9e-3, 2.9, None, None, 5.1e-3, 3.1
    )
    known = replace(model_profile(LONG, has_rows=False), known=(whole, gpu, cpu))
    models = (known, model_profile(SHORT, has_rows=False))
    print_profile(Profile(PROFILE_REQUEST, ROOT, models), ("shufflenet_v2_x0_5", "--precision", "bf16"), top=2)


PROFILE_REQUEST = RunRequest((), ModelFolders(ROOT / "measurements"), committed(ROOT / "database"))
OPERATORS_REPORT = OperatorsReport(
    LONG, 3, 3, 0, 3, 0, 0, 0.0, 9.0, {}, 15.0, False, (), 0, (), {}, *H200, {"start": 15.0}
)
WHOLE_REPORT = FullModelReport(
    LONG, 0.003561, 1.616, 453.8, True, False, 0.0, 12.3, {}, 15.0, None, {}, *H200, {"start": 15.0}
)


def predicted_calls(text: str, time_s: float, deviation: float) -> PredictedCalls:
    operator = parse_tuple(text)
    count = OperatorCount(operator, 12, 59_000_000_000, 194_000_000)
    return PredictedCalls(Case(operator), count, "product", 12, time_s, 5.0, deviation, 0.1, *(False,) * 3)


def prediction_of(
    *calls: PredictedCalls, needed: int, written: str | None = None, whole: MeasurementRow | None = None
) -> Prediction:
    time, energy = Range(0.05683, 0.02959, 0.1091), Range(39.03, 21.38, 71.25)
    of_run = [] if calls else [Widened(WidthReason.UNCORRECTED), Widened(WidthReason.FEW_WHOLES)]
    of_calls = [Widened(reason, 0.123, ("Linear", "add", "GELU", "cat")) for reason in ABOUT_OPERATORS if calls]
    corrections = Corrections({}) if calls else None
    named = {"name": "vit_b_16_64x3x224x224", "input_size": (64, 3, 224, 224), "units": Units(64)}
    result = ModelResult(GPU, whole, corrections=corrections, **named)
    shares = (0.1, 0.05) if calls else (1.0, 0.0)
    run = PredictedRun(time, energy, *shares, calls, result, (*of_calls, *of_run))
    memory = NeededMemory(346_000_000, needed, 141_000_000_000)
    return Prediction(run, 3060, memory, written)


def predictions() -> None:
    linear = "torch.nn.Linear(in_features=768, out_features=3072) on (float32[64, 197, 768]) eval"
    attention = (
        "torch.nn.MultiheadAttention(embed_dim=768, num_heads=12, batch_first=True) on "
        "(float32[64, 197, 768]#0, float32[64, 197, 768]#0, float32[64, 197, 768]#0, need_weights=False) eval"
    )
    calls = (predicted_calls(attention, 0.02253, 0.199), predicted_calls(linear, 0.01536, 0.046))
    with patch("opcost.stages.predict.version_of", lambda _: None):
        print_prediction(prediction_of(*calls, needed=310_000_000))
        print_prediction(prediction_of(*calls, needed=310_000_000_000, written="measurements/vit_next/grid.yml"))
        print_prediction(prediction_of(needed=310_000_000))
    wholes = committed().full_model_measurements.rows()
    whole = next(row for row in wholes if row.operator.endswith(".vit_b_16") and "[64" in row.inputs)
    with patch("opcost.stages.predict.version_of", lambda _: "2.14.1"):
        print_prediction(prediction_of(*calls, needed=310_000_000, whole=whole))


TABLES = (
    *(advice, census, comparisons, comparisons_of_a_cpu, comparisons_at_the_power_limit, comparisons_of_a_long_name),
    *(counts, full_models, holdings, kernels, layers, models_under_two_conditions, models_under_two_memory_formats),
    *(operator_measurements, operators_by_saving, operators_of_a_model, operators_with_long_texts, plain_progress),
    *(plans_of_counts, plans_of_operator_measurements, predictions, profiles, profiles_without_measuring),
    *(qualification, ranking, rebuilds, samples, selections),
)


def at_all_widths(show: Callable[[int], str]) -> str:
    """Return what is shown at each width; no line of it is longer."""
    parts = []
    for width in WIDTHS:
        lines = [line.rstrip() for line in show(width).splitlines()]
        assert [line for line in lines if cell_len(line) > width] == []
        parts.append("\n".join([f"{f' {width} columns ':=^{width}}", *lines, ""]))
    return "\n".join(parts)


def compare_to_golden(name: str, text: str, config: pytest.Config) -> None:
    path = GOLDEN / f"{name}.txt"
    if config.getoption("--renew-golden"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text, "meant? then: pytest --renew-golden"


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.__name__)
def test_a_table_has_its_layout(
    table: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    pytestconfig: pytest.Config,
) -> None:
    monkeypatch.setattr("sys.argv", ["/somewhere/opcost", "command", "shufflenet*", "efficientnet_b0*", "--dry-run"])

    # Elsewhere commands have the path of an environment.
    for module in ("comparison_tables", "model_tables", "tables"):
        monkeypatch.setattr(f"opcost.reporting.{module}.command", lambda *words: " ".join(["opcost", *words]))

    def show(width: int) -> str:
        monkeypatch.setenv("COLUMNS", str(width))
        table()
        return capsys.readouterr().out

    compare_to_golden(table.__name__, at_all_widths(show), pytestconfig)


def test_the_bar_has_its_layout(pytestconfig: pytest.Config) -> None:
    def show(width: int) -> str:
        console = Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None, legacy_windows=False)
        now_s = [0.0]
        bar = BarProgress(console, now=lambda: now_s[0])
        bar.start(120, [40.0] * 120)
        for name, result in RESULTS:
            bar.begin(name)
            now_s[0] += 40.0
            bar.finish(result)
            now_s[0] += 40.0
        bar.fail("out of memory")
        bar.end()
        assert isinstance(console.file, io.StringIO)
        drawn = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "\n", console.file.getvalue())
        return "\n".join(line for line in drawn.splitlines() if line.strip())

    compare_to_golden("bar", at_all_widths(show), pytestconfig)


@pytest.mark.parametrize(("name", "is_said"), [("torch.ops.quantized.linear_dynamic", True), ("torch.sin", False)])
def test_a_prediction_says_that_quantised_operations_may_not_exist_on_a_gpu(
    name: str, is_said: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    print_prediction(prediction_of(predicted_calls(f"{name} on (float32[8, 64])", 0.1, 0.1), needed=1))
    assert ("may not exist on a GPU: linear_dynamic." in capsys.readouterr().out) == is_said
