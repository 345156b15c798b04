"""The sources of an EnergyMeter: RAPL's counters with their wrap, and a GPU of a library that plays NVML."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import nvml_stage
import pytest
from powercap import RANGE_UJ, add_domain

from opcost.errors import UserError
from opcost.metering.window_energy import window_energy
from opcost.meters import energy as energy_sources
from opcost.meters.energy import open_rapl
from opcost.meters.gpus import visible_gpus
from opcost.power.ports import GpuError
from opcost.power.trace import Window

ROOT = Path(__file__).parents[2]


def test_packages_and_memory_are_read_at_both_ends_across_a_wrap(tmp_path: Path) -> None:
    packages = [
        add_domain(tmp_path, f"intel-rapl:{number}", f"package-{number}", RANGE_UJ - 1_000_000) for number in (0, 1)
    ]
    memory = add_domain(tmp_path, "intel-rapl:0:0", "dram", 5_000_000)
    add_domain(tmp_path, "intel-rapl:0:1", "core", 0)
    sources, reason = open_rapl(tmp_path)
    assert ([source.device for source in sources], reason) == (["cpu", "dram"], None)
    outer_begin_s = time.time()
    for source in sources:
        source.edge()
    begin_s = time.time()
    time.sleep(0.1)
    for package in packages:
        package.write_text("4000000\n")
    memory.write_text("7000000\n")
    end_s = time.time()
    for source in sources:
        source.edge()
    # A busy machine may wait between an edge's reading and the window: its part of the energy lies outside.
    least = (end_s - begin_s) / (time.time() - outer_begin_s)
    # A read long after the window changes nothing.
    time.sleep(0.05)
    window = Window(begin_s, end_s)
    of_cpu, of_memory = (window_energy(source.readings(window), window) for source in sources)
    for energy, counted_j in ((of_cpu, 10.0), (of_memory, 2.0)):
        assert energy.energy_j is not None
        assert 0.99 * least * counted_j <= energy.energy_j.value <= 1.01 * counted_j
    assert (of_cpu.meter, of_memory.meter) == ("rapl package", "rapl dram")
    for source in sources:
        source.close()


@pytest.mark.parametrize("wrong_j", [0.0, 10.99995, 262_000.0])
def test_a_jump_of_a_counter_leaves_the_windows_around_it_alone(tmp_path: Path, wrong_j: float) -> None:
    package = add_domain(tmp_path, "intel-rapl:0", "package-0", 1_000_000)
    (source,), _ = open_rapl(tmp_path)
    windows = []
    for counter_j in (11.0, wrong_j, wrong_j + 10.0):
        source.edge()
        begin_s = time.time()
        time.sleep(0.1)
        package.write_text(f"{round(counter_j * 1e6)}\n")
        windows.append(Window(begin_s, time.time()))
        source.edge()
    windows.append(Window(windows[0].begin_s, windows[-1].end_s))
    before, inside, after, whole = (window_energy(source.readings(window), window) for window in windows)
    for energy in (before, after):
        assert energy.energy_j is not None, energy.missing_reason
        assert energy.energy_j.value == pytest.approx(10.0, rel=0.05)
    for energy in (inside, whole):
        assert energy.energy_j is None
        assert "the RAPL counter of package-0 jumped from 11 J to " in str(energy.missing_reason)
    source.close()


def test_a_counter_that_is_missing_stands_still_or_vanishes_gives_no_figure(tmp_path: Path) -> None:
    sources, reason = open_rapl(tmp_path)
    assert sources == []
    assert "no RAPL energy counter" in str(reason)
    package = add_domain(tmp_path, "intel-rapl:0", "package-0", 1_000_000)
    (source,), _ = open_rapl(tmp_path)
    window = Window(time.time(), time.time() + 0.05)
    time.sleep(0.06)
    still = window_energy(source.readings(window), window)
    assert (still.energy_j, still.missing_reason) == (None, "rapl package stands still")
    package.unlink()
    gone = window_energy(source.readings(window), window)
    assert gone.energy_j is None
    assert "RAPL cannot be read" in str(gone.missing_reason)
    source.close()


def test_a_source_that_is_named_is_open_and_the_others_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_domain(tmp_path, "intel-rapl:0", "package-0", 0)
    add_domain(tmp_path, "intel-rapl:0:0", "dram", 0)
    opened, _ = open_rapl(tmp_path)
    closed: list[str] = []
    monkeypatch.setattr(type(opened[0]), "close", lambda source: closed.append(source.device))
    monkeypatch.setattr(energy_sources, "open_rapl", lambda: (opened, None))
    (source,) = energy_sources.open_sources(["cpu"])
    assert (source.device, closed) == ("cpu", ["dram"])
    with pytest.raises(UserError, match="no device cuda:9"):
        energy_sources.open_sources(["cpu", "cuda:9"])
    assert closed == ["dram", "cpu", "dram"]


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, {"cuda:0": "GPU-a1", "cuda:1": "GPU-b2"}),
        ("1", {"cuda:0": "GPU-b2"}),
        ("GPU-b,0", {"cuda:0": "GPU-b2", "cuda:1": "GPU-a1"}),
        ("1,7,0", {"cuda:0": "GPU-b2"}),
        ("", {}),
    ],
)
def test_gpus_are_those_that_cuda_shows(
    visible: str | None, expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opcost.meters.nvml.Nvidia.uuids", lambda _: ["GPU-a1", "GPU-b2"])
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    if expected:
        assert visible_gpus(environment) == expected
    else:
        with pytest.raises(GpuError, match="no GPU is visible"):
            visible_gpus(environment)


def test_without_nvml_or_with_a_mig_instance_there_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opcost.meters.nvml.Nvidia.uuids", lambda _: ["GPU-a1"])
    with pytest.raises(GpuError) as found:
        visible_gpus({"CUDA_VISIBLE_DEVICES": "MIG-0"})
    assert found.value.hides_gpu

    def missing(_: object) -> list[str]:
        raise GpuError("NVML: Shared Library Not Found")

    monkeypatch.setattr("opcost.meters.nvml.Nvidia.uuids", missing)
    with pytest.raises(GpuError, match="NVML: Shared Library Not Found") as found:
        visible_gpus({})
    assert not found.value.hides_gpu


METERED = """
import json, time
from opcost import EnergyMeter
with EnergyMeter(above_idle=True) as meter:
    time.sleep(0.3)
    with meter.window("part") as part:
        time.sleep(0.2)
print(json.dumps([[result.label, result.energy_j, result.missing_reason, result.devices[0].meter,
                   result.devices[0].above_idle_j, result.duration_s] for result in meter.results]))
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nvml_stage.build(tmp_path_factory.mktemp("nvml") / "library", ())


def metered(
    library: Path, tmp_path: Path, faults: str
) -> list[tuple[str, float | None, str | None, str, float, float]]:
    """Return what a program meters on a GPU of 400 W with these faults (see fake_nvml.c)."""
    (tmp_path / "faults").write_text(faults)
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(library),
        "FAKE_NVML_FAULTS": str(tmp_path / "faults"),
        "CUDA_VISIBLE_DEVICES": "0",
    }
    command = [sys.executable, "-c", METERED]
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 0, result.stderr
    return [tuple(line) for line in json.loads(result.stdout)]


@pytest.mark.parametrize(
    ("faults", "meter"),
    [
        ("", "NVML power samples, scaled by NVML energy counter"),
        ("counter_still", "NVML power samples"),
        ("counter_backwards", "NVML power samples"),
        ("counter_leaps", "NVML power samples"),
        ("nvmlDeviceGetTotalEnergyConsumption=3", "NVML power samples"),
        ("samples_reversed", "NVML power samples, scaled by NVML energy counter"),
        ("samples_repeated", "NVML power samples, scaled by NVML energy counter"),
    ],
)
def test_a_window_has_the_gpus_energy_by_the_meters_that_work(
    library: Path, tmp_path: Path, faults: str, meter: str
) -> None:
    for label, energy_j, reason, name, above_j, duration_s in metered(library, tmp_path, faults):
        assert (reason, name) == (None, meter), label
        assert energy_j == pytest.approx(400.0 * duration_s, rel=0.03)
        # The simulated GPU draws as much when idle.
        assert above_j == pytest.approx(0.0, abs=3.0)


@pytest.mark.parametrize("faults", ["device=3", "samples_of_uptime counter_still"])
def test_without_a_meter_or_with_samples_of_another_time_there_are_no_figures_but_a_reason(
    library: Path, tmp_path: Path, faults: str
) -> None:
    for _, energy_j, reason, *_ in metered(library, tmp_path, faults):
        assert (energy_j, bool(reason)) == (None, True)
        assert faults != "device=3" or str(reason).startswith("NVML: ")


TWO_GPUS = """
#define nvmlDeviceGetCount_v2 one_count
#define nvmlDeviceGetHandleByIndex_v2 one_handle
#include "{source}"
#undef nvmlDeviceGetCount_v2
#undef nvmlDeviceGetHandleByIndex_v2
int nvmlDeviceGetCount_v2(unsigned *count) {{ *count = 2; return SUCCESS; }}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle)
{{
    *handle = &first_tick;
    return index == {lost} ? 15 : SUCCESS; /* GPU is lost */
}}
"""


def program(**environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program that meters 1.2 s on all devices."""
    code = (
        "import time; from opcost import EnergyMeter\n"
        "with EnergyMeter() as meter: time.sleep(1.2)\n"
        "print(meter.result.energy_j, meter.result.missing_reason)"
    )
    given = {**os.environ, **environment}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True, check=True, timeout=60)


@pytest.mark.parametrize("lost", [0, 1])
def test_a_lost_gpu_leaves_the_metering_of_the_others_alone(tmp_path: Path, lost: int) -> None:
    source = tmp_path / "two.c"
    source.write_text(TWO_GPUS.format(source=nvml_stage.SOURCE, lost=lost))
    command = ["cc", "-shared", "-fPIC", f"-Wl,-soname,{nvml_stage.LIBRARY}", source, "-o"]
    subprocess.run([*command, tmp_path / nvml_stage.LIBRARY], check=True)
    result = program(LD_LIBRARY_PATH=str(tmp_path))
    assert float(result.stdout.split()[0]) == pytest.approx(400 * 1.2, rel=0.1)
    assert result.stderr.splitlines() == [f"GPU {lost} is left out: NVML: GPU is lost"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nvmlInit = 1", "has no NVMLError: it is not NVIDIA's; `pip install --force-reinstall nvidia-ml-py`"),
        ("print 'of Python 2'", "the module pynvml cannot be imported (SyntaxError); `pip install"),
    ],
)
def test_another_package_named_pynvml_is_one_line(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "pynvml.py").write_text(text)
    result = program(PYTHONPATH=os.pathsep.join((str(tmp_path), str(ROOT))))
    (line,) = result.stderr.splitlines()
    assert reason in line


def test_a_mig_instance_is_named(library: Path) -> None:
    result = program(LD_LIBRARY_PATH=str(library), CUDA_VISIBLE_DEVICES="MIG-11111111-2222-3333-4444-555555555555")
    (line,) = result.stderr.splitlines()
    assert "CUDA_VISIBLE_DEVICES names a MIG instance: MIG is on: the power of one instance cannot be measured" in line
