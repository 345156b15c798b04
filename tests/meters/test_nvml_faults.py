"""Faults of NVML and of its reports, simulated by a library that is loaded in its place (tests/fake_nvml.c).

In all cases: no traceback, no hang, and what is unknown is empty, with the reason, and never 0.
"""

import shutil
import subprocess
from dataclasses import astuple, dataclass

import nvml_stage
import pytest
from nvml_stage import Course, Metered, Outcome

from opcost.meters.gpu_meters import LONGEST_GAP_S
from opcost.meters.log_meters import power_trace
from opcost.meters.nvidia_smi import parse_log
from opcost.meters.nvml import COUNTER, SAMPLES, SAMPLES_SOURCE
from opcost.power.trace import DeviceState, Window, device_state

POWER_W = 400.0
LONGEST_S = 8.0
"""Of a course, which measures for a second and a half, on a busy machine."""

ERROR_RATIOS = {SAMPLES: 0.01, COUNTER: 0.15}
"""How far means may be off: on a busy machine a tick of the counter is found late."""

LOST, NOT_SUPPORTED = "NVML: GPU is lost", "NVML: Not Supported"
NOT_THERE = "NVML: Function Not Found"
NO_SAMPLE = "NVML kept no power sample in the 0.2 s after the measurement"
STILL = "NVML's energy counter stands still"
OTHERS = "another process used the GPU: 1000001 or 1000002"


@dataclass(frozen=True)
class Expected:
    """Expected end of a course. ``refusals`` are why there is no NVML, no meter, or nothing shall be measured.

    Of ``samples`` and ``counter`` it says why they have no power: empty where they have it, None where there is no
    such meter.
    """

    samples: str | None = ""
    counter: str | None = ""
    refusals: tuple[str, ...] = ()
    disturbance: str = ""


def no_nvml(*refusals: str) -> Expected:
    return Expected(None, None, refusals)


COURSES = {
    "sound": (Course(), Expected()),
    "no driver": (Course("nvmlInitWithFlags=9"), no_nvml("NVML: Driver Not Loaded")),
    "library and driver of two versions": (
        Course("nvmlInitWithFlags=18"),
        no_nvml("NVML: RM has detected an NVML/RM version mismatch."),
    ),
    "a file that is no library": (Course(missing=None), no_nvml("NVML: NVML Shared Library Not Found")),
    "a library that cannot begin": (Course(missing=("nvmlInitWithFlags",)), no_nvml(NOT_THERE)),
    "gpu lost before": (Course("device=15"), no_nvml(LOST)),
    "gpu lost meanwhile": (Course("", "device=15"), Expected(LOST, LOST)),
    "gpu lost for good": (Course("", "device=15 nvmlShutdown=15"), Expected(LOST, LOST)),
    "an end that is refused": (Course("nvmlShutdown=999"), Expected()),
    "no such gpu, and an end that is refused": (
        Course("nvmlDeviceGetHandleByUUID=6 nvmlShutdown=999"),
        no_nvml("NVML: Not Found"),
    ),
    "an error that only the library knows": (Course("", "device=27"), Expected("NVML: Not Ready", "NVML: Not Ready")),
    "no samples": (Course("nvmlDeviceGetSamples=3"), Expected(None, "", (NOT_SUPPORTED,))),
    "no counter": (Course("nvmlDeviceGetTotalEnergyConsumption=3"), Expected("", None, (NOT_SUPPORTED,))),
    "no processes and no load": (
        Course("nvmlDeviceGetComputeRunningProcesses_v3=3 nvmlDeviceGetUtilizationRates=3"),
        Expected(),
    ),
    "nothing but a gpu": (Course("device=3 nvmlDeviceGetHandleByUUID=0"), no_nvml(NOT_SUPPORTED, NOT_SUPPORTED)),
    "a library without samples, processes, load and end": (
        Course(
            missing=(
                "nvmlDeviceGetSamples",
                "nvmlDeviceGetComputeRunningProcesses_v3",
                "nvmlDeviceGetUtilizationRates",
                "nvmlShutdown",
            )
        ),
        Expected(None, "", (NOT_THERE,)),
    ),
    "a library without a counter and names of errors": (
        Course("", "device=27", missing=("nvmlDeviceGetTotalEnergyConsumption", "nvmlErrorString")),
        Expected("NVML: NVML Error with code 27", None, (NOT_THERE,)),
    ),
    "no sample ever": (Course("samples_empty"), Expected(NO_SAMPLE)),
    "samples end": (Course("", "samples_empty"), Expected(NO_SAMPLE)),
    "samples begin late": (Course("samples_empty", "samples_restart"), Expected("have a gap")),
    "samples twice": (Course("samples_repeated"), Expected()),
    "newest sample first": (Course("samples_reversed"), Expected()),
    "samples dated back": (Course("samples_jump_back"), Expected()),
    "samples dated ahead": (Course("samples_ahead"), Expected()),
    "samples by another clock": (Course("samples_of_uptime"), Expected(NO_SAMPLE)),
    "samples of another type": (Course("", "samples_type=0"), Expected("of an unknown type (0)")),
    "samples of 0 W": (Course("samples_mw=0"), Expected(None, "", ("NVML: impossible power samples of 0 W",))),
    "samples of all bits": (
        Course("", "samples_mw=4294967295"),
        Expected("NVML: impossible power samples of 4.29497e+06 W"),
    ),
    "some samples of 0 W": (Course("every_fifth_sample_mw=0"), Expected()),
    "some samples of all bits": (Course("every_fifth_sample_mw=4294967295"), Expected()),
    "counter still": (Course("counter_still"), Expected(counter=STILL)),
    "counter stops": (Course("", "counter_still"), Expected(counter=STILL)),
    "counter runs backwards": (
        Course("counter_backwards"),
        Expected(counter="energy counter gives an impossible power of -"),
    ),
    "counter begins again": (
        Course("", "counter_restart"),
        Expected(counter="energy counter gives an impossible power of -"),
    ),
    "counter leaps": (Course("counter_leaps"), Expected(counter="gives an impossible power of")),
    "in use": (
        Course("busy_percent=40 processes=2"),
        Expected(refusals=("the GPU is in use 40% of the time (processes: 1000001, 1000002)",)),
    ),
    "in use for more than all of the time": (Course("busy_percent=4294967295"), Expected()),
    "others come": (Course("", "processes=2"), Expected(disturbance=OTHERS)),
}

each_course = pytest.mark.parametrize("name", COURSES)


@pytest.fixture(scope="session")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """Outcomes of all courses; those with one library are simulated by one process.

    Courses in which this machine was too busy to read the counter often enough are simulated again, up to two times.
    """
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler (cc) to build the library that plays NVML")
    folder = tmp_path_factory.mktemp("nvml")
    libraries = {
        missing: nvml_stage.build(folder / f"library-{number}", missing)
        for number, missing in enumerate(dict.fromkeys(course.missing for course, _ in COURSES.values()))
    }
    found: dict[str, Outcome] = {}
    for repetition in range(3):
        wanted = [name for name in COURSES if name not in found or is_starved(found[name])]
        started: dict[tuple[str, ...], subprocess.Popen[str]] = {}
        for number, (missing, library) in enumerate(libraries.items()):
            named = {name: COURSES[name][0] for name in wanted if COURSES[name][0].missing == missing}
            if named:
                courses = folder / f"courses-{repetition}-{number}"
                started[tuple(named)] = nvml_stage.start(list(named.values()), library, courses)
        for names, process in started.items():
            found.update(zip(names, nvml_stage.outcomes(process), strict=True))
    return found


def is_starved(outcome: Outcome) -> bool:
    return any("fresh readings" in (metered.reason or "") for metered in outcome.meters.values())


@each_course
def test_no_fault_ends_in_a_traceback_or_a_hang(outcomes: dict[str, Outcome], name: str) -> None:
    outcome = outcomes[name]
    warnings = [COURSES[name][1].disturbance] if outcome.disturbance else []
    assert outcome.status == 0, outcome.errors
    assert [line.partition(";")[0] for line in outcome.errors.splitlines()] == warnings
    assert outcome.took_s < LONGEST_S


@each_course
def test_each_fault_has_its_outcome_and_what_is_unknown_its_reason(outcomes: dict[str, Outcome], name: str) -> None:
    _, expected = COURSES[name]
    outcome = outcomes[name]
    assert len(outcome.refusals) == len(expected.refusals)
    assert all(refusal.startswith(words) for refusal, words in zip(outcome.refusals, expected.refusals, strict=True))
    assert outcome.disturbance == expected.disturbance
    for meter, reason in ((SAMPLES, expected.samples), (COUNTER, expected.counter)):
        metered = outcome.meters.get(meter)
        assert (metered is None) == (reason is None)
        if metered is not None and reason is not None:
            assert has_power(metered, ERROR_RATIOS[meter]) if reason == "" else has_none(metered, reason)
    assert outcome.idle_power_w in (None, pytest.approx(POWER_W, rel=0.01))


@each_course
def test_samples_are_all_those_of_a_measurement_or_none(outcomes: dict[str, Outcome], name: str) -> None:
    outcome = outcomes[name]
    metered = outcome.meters.get(SAMPLES)
    if metered is None or metered.reason is not None:
        return
    epoch_s = metered.epoch_s
    gaps_s = [later - earlier for earlier, later in zip([outcome.begin_s, *epoch_s], epoch_s, strict=False)]
    # Samples of two moments are apart by the ring's period, but for some that were left out.
    assert min(gaps_s[1:]) > SAMPLES_SOURCE.update_period_s / 2
    assert max(gaps_s) < LONGEST_GAP_S
    assert outcome.end_s - epoch_s[-1] < LONGEST_GAP_S


def has_power(metered: Metered, error_ratio: float) -> bool:
    assert metered.reason is None
    return metered.mean_w == pytest.approx(POWER_W, rel=error_ratio) and min(metered.power_w) > 0


def has_none(metered: Metered, reason: str) -> bool:
    return metered.mean_w is None and not metered.power_w and metered.reason is not None and reason in metered.reason


def test_a_state_that_a_driver_does_not_report_is_empty() -> None:
    """Temperatures, clocks and why clocks are throttled come from nvidia-smi's log."""
    fields = "timestamp, power.draw.instant [W], temperature.gpu, clocks.sm [MHz], clocks_event_reasons.active"
    lines = [f"2026/11/04 10:23:45.{100 * row}, {400 + row}.00, [N/A], [N/A], [Not Supported]" for row in range(1, 9)]
    trace = power_trace([row.values for row in parse_log([fields, *lines])], None)
    assert trace.power_w.tolist() == [401.0, 402.0, 403.0, 404.0, 405.0, 406.0, 407.0, 408.0]
    state = device_state(trace, Window(float(trace.epoch_s[0]), float(trace.epoch_s[-1])))
    assert astuple(state) == (None,) * len(astuple(DeviceState(None, None, None, None)))
