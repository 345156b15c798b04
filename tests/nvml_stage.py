"""Builds tests/fake_nvml.c, and has processes that load it as NVML measure its GPU for a while under given faults.

As a program it is given courses as JSON and prints their outcomes. It forks for each, so that all together take little
longer than one: nearly all of that is sleep.
"""

import json
import math
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

from opcost.errors import UserError
from opcost.meters.gpu_meters import EVERY_TICK_SOURCE, CounterMeter, CounterSampler, PowerSampler, SampleMeter
from opcost.meters.gpus import OtherProcesses
from opcost.meters.nvml import Nvidia
from opcost.meters.opening import JoinedMeter
from opcost.power.ports import GpuError, Meter
from opcost.power.trace import PowerTrace, Window, mean_power

SOURCE = Path(__file__).with_name("fake_nvml.c")
UUID = "GPU-11111111-2222-3333-4444-555555555555"
LIBRARY = "libnvidia-ml.so.1"
BEFORE_S, DURING_S = 0.4, 1.1
LONGEST_S = 20
"""Beyond that a course hangs."""


@dataclass(frozen=True)
class Course:
    """The faults from the begin, and those from some time after a measurement's start on: words of fake_nvml.c.

    ``missing`` are functions that the library lacks; None stands for a file that is no library.
    """

    before: str = ""
    during: str | None = None
    missing: tuple[str, ...] | None = ()


@dataclass(frozen=True)
class Metered:
    """Readings of one meter: of these those that are known, and their mean over the measurement or why not."""

    epoch_s: list[float]
    power_w: list[float]
    mean_w: float | None
    reason: str | None


@dataclass(frozen=True)
class Outcome:
    """Outcome of a course: exit status, all that was printed as errors, and what opcost reported.

    ``refusals`` say why there is no NVML, no sampler, or nothing is to be measured. The measurement was from
    ``begin_s`` to ``end_s`` (epoch).
    """

    status: int
    errors: str
    took_s: float = math.nan
    refusals: list[str] = field(default_factory=list)
    meters: dict[str, Metered] = field(default_factory=dict)
    disturbance: str = ""
    idle_power_w: float | None = None
    begin_s: float = math.nan
    end_s: float = math.nan


def build(folder: Path, missing: tuple[str, ...] | None) -> Path:
    """Put a library into a folder and return that; raise CalledProcessError where it cannot be built."""
    folder.mkdir()
    if missing is None:
        (folder / LIBRARY).write_text("no library")
        return folder
    renamed = [f"-D{name}=missing_{name}" for name in missing]
    # By this name a process that has loaded the library finds it again.
    named = f"-Wl,-soname,{LIBRARY}"
    subprocess.run(["cc", "-shared", "-fPIC", named, *renamed, "-o", folder / LIBRARY, SOURCE], check=True)
    return folder


def start(courses: list[Course], library: Path, folder: Path) -> subprocess.Popen[str]:
    """Start a process that simulates courses with one library; their files go into a new folder."""
    folder.mkdir()
    return subprocess.Popen(
        [sys.executable, __file__, str(folder), json.dumps([asdict(course) for course in courses])],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "LD_LIBRARY_PATH": str(library)},
    )


def outcomes(process: subprocess.Popen[str]) -> list[Outcome]:
    """Return what came of the courses of a process, in their order."""
    output, _ = process.communicate(timeout=3 * LONGEST_S)
    return [
        Outcome(**{**result, "meters": {name: Metered(**meter) for name, meter in result.get("meters", {}).items()}})
        for result in json.loads(output)
    ]


def _main() -> None:
    folder, courses = Path(sys.argv[1]), [Course(**given) for given in json.loads(sys.argv[2])]
    # Before they are forked, since each would take as long.
    import pynvml  # noqa: F401

    names = [folder / str(number) for number in range(len(courses))]
    children = [_forked(name, course) for name, course in zip(names, courses, strict=True)]
    statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    print(json.dumps([_result(name, status) for name, status in zip(names, statuses, strict=True)]))


def _result(name: Path, status: int) -> dict[str, object]:
    answer = name.with_suffix(".json")
    result: dict[str, object] = json.loads(answer.read_text()) if answer.exists() else {}
    return {**result, "status": status, "errors": name.with_suffix(".errors").read_text()}


def _forked(name: Path, course: Course) -> int:
    child = os.fork()
    if child:
        return child
    signal.alarm(LONGEST_S)
    errors = os.open(name.with_suffix(".errors"), os.O_WRONLY | os.O_CREAT)
    os.dup2(errors, sys.stderr.fileno())
    status = 1
    try:
        begin_s = time.monotonic()
        result = _measured(name, course)
        name.with_suffix(".json").write_text(json.dumps({**result, "took_s": time.monotonic() - begin_s}))
        status = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    os._exit(status)


def _measured(name: Path, course: Course) -> dict[str, object]:
    """Open and measure as a campaign does; return the fields of an outcome."""
    name.mkdir()
    faults = name / "faults"
    os.environ["FAKE_NVML_FAULTS"] = str(faults)
    faults.write_text(course.before)
    refusals: list[str] = []
    meters: list[Meter] = []
    idle_power_w = None
    with ExitStack() as stack:
        try:
            gpu = Nvidia().open(UUID)
        except GpuError as error:
            return {"refusals": [str(error)]}
        stack.callback(gpu.close)
        others = OtherProcesses(gpu, os.getpid())
        try:
            others.refuse_if_busy(lambda _: None)
        except UserError as error:
            refusals.append(str(error))
        try:
            samples = stack.enter_context(PowerSampler(gpu))
            idle_power_w = samples.power_before_w
            meters.append(SampleMeter(samples, name, "load"))
        except GpuError as error:
            refusals.append(str(error))
        try:
            counter = CounterSampler(gpu)
            counter.interval_s = EVERY_TICK_SOURCE.update_period_s
            meters.append(CounterMeter(stack.enter_context(counter), name, "load", EVERY_TICK_SOURCE))
        except GpuError as error:
            refusals.append(str(error))
        if not meters:
            return {"refusals": refusals}
        meter, begin_s = JoinedMeter(meters), time.time()
        meter.start()
        time.sleep(BEFORE_S)
        meter.log()
        if course.during is not None:
            _change(faults, course.during)
        time.sleep(DURING_S)
        window = Window(begin_s, time.time())
        trace = meter.stop()
        meters = {one.source.name: asdict(_metered(one, window)) for one in (trace, *trace.checks)}
        disturbance = others.disturbance()
    return {
        "refusals": refusals,
        "meters": meters,
        "disturbance": disturbance,
        "idle_power_w": idle_power_w,
        "begin_s": window.begin_s,
        "end_s": window.end_s,
    }


def _change(faults: Path, words: str) -> None:
    """Change what the library reads at any moment."""
    changed = faults.with_suffix(".changed")
    changed.write_text(words)
    changed.replace(faults)


def _metered(trace: PowerTrace, window: Window) -> Metered:
    rows = zip(trace.epoch_s.tolist(), trace.power_w.tolist(), strict=True)
    known = [(epoch_s, power_w) for epoch_s, power_w in rows if not math.isnan(power_w)]
    mean = mean_power(trace, window.begin_s, window)
    return Metered(
        epoch_s=[epoch_s for epoch_s, _ in known],
        power_w=[power_w for _, power_w in known],
        mean_w=None if mean.estimate_w is None else mean.estimate_w.value,
        reason=mean.missing_reason,
    )


if __name__ == "__main__":
    _main()
