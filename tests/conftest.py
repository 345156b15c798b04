"""Shared by all tests: a temporary folder, logs that end, GPU tests only where there is a GPU, no Hypothesis clock."""

import gc
import os
import signal
import tempfile
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import seeds
from hypothesis import settings
from parsed_once import INSTEAD_OF
from run_logs import ended_logs

# Before torch is imported, and for the scripts that tests start: on a busy machine torch's threads, which spin while
# they wait for each other, make small models ten times slower.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell starts background jobs with SIGINT ignored, and nohup with SIGHUP, and what they start inherits that: scripts
# under test would not be interrupted.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

SECOND_TIER = (
    "test_figures.py test_pages.py test_without_torch.py test_coverage.py test_replay.py "
    "test_committed_sums.py test_malformed_files.py test_library_models.py test_machinery.py "
    "test_report_page.py test_killed_campaigns.py test_other_work.py test_strange_models.py test_claims.py "
    "test_wheel.py test_benchmarks.py test_independent_sums.py test_show.py "
    "test_allow_code.py test_own_models.py test_profile.py test_holdings.py test_api.py test_predict.py "
    "test_sample_operators.py test_sweep_command.py test_cache_chains.py test_durations.py test_model_layers.py "
    "test_worker_bench.py test_worker_process.py test_follow_power.py test_log_power.py test_power_cap.py "
    "test_guarded_limit.py test_compat.py test_packaging.py test_dask_workers.py test_slurm_example.py "
    "test_notebook.py test_site.py test_container.py"
).split()
"""Pages, wheel, browser, processes and their kills, models of libraries and users, all shipped rows, the tests' own
machinery: ``--quick`` leaves them out, and tests with the marker ``second_tier``."""

LONG_FILES = [
    *SECOND_TIER,
    *(
        "test_procedure.py test_pipeline.py test_energy_sources.py "
        "test_table.py test_capture.py test_count.py test_nvidia_smi_meter.py test_amd_smi.py "
        "test_profile_object.py test_golden_tables.py test_measured_project.py"
    ).split(),
]
"""Those that take more than ten seconds: they are run first, so that no process waits for another at the end."""

settings.register_profile("opcost", deadline=None)
settings.register_profile("quick", deadline=None, max_examples=40)


def pytest_configure(config: pytest.Config) -> None:
    """Give the tests, and the scripts that they start, a temporary folder of their own.

    A campaign's lock on its device is in the temporary folder: tests need not wait for a user's campaign, nor it for
    them. Folders of ``tmp_path`` stay where pytest has them, and are kept for a look after a failure.
    """
    patch = pytest.MonkeyPatch()
    patch.setenv("PYTEST_DEBUG_TEMPROOT", os.environ.get("PYTEST_DEBUG_TEMPROOT") or tempfile.gettempdir())
    folder = tempfile.TemporaryDirectory(prefix="opcost-tests-", ignore_cleanup_errors=True)
    patch.setenv("TMPDIR", folder.name)
    patch.setattr(tempfile, "tempdir", folder.name)
    # Scripts read and write no files of the user who runs the tests.
    patch.setenv("OPCOST_HOME", f"{folder.name}/home")
    is_quick = config.getoption("--quick")
    settings.load_profile("quick" if is_quick else "opcost")
    if is_quick or config.getoption("--all-seeds"):
        patch.setenv(seeds.VARIABLE, seeds.QUICK if is_quick else seeds.ALL)
    # While modules are imported there is nothing to collect.
    gc.disable()
    config.add_cleanup(folder.cleanup)
    config.add_cleanup(lambda: end_left_processes(config, folder.name))
    config.add_cleanup(patch.undo)


def end_left_processes(config: pytest.Config, folder: str) -> None:
    """End what tests beyond their time limit have left: the limit ends their worker, not its children."""
    if not config.pluginmanager.has_plugin("dsession"):
        return
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if f"TMPDIR={folder}".encode() in environment.read_bytes():
                os.kill(int(environment.parent.name), signal.SIGKILL)


@pytest.fixture(scope="session", autouse=True)
def what_ships_is_parsed_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, function in INSTEAD_OF.items():
            patch.setattr(name, function)
        yield


@pytest.fixture(autouse=True)
def logs_end() -> Iterator[None]:
    """A test in which a script's ``main`` ran leaves no log."""
    with ended_logs():
        yield


@pytest.fixture(autouse=True)
def no_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables have the width of a log: ``COLUMNS`` is that of the terminal that runs the tests."""
    monkeypatch.delenv("COLUMNS", raising=False)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--renew-golden", action="store_true", help="write tests/golden/ instead of comparing to it")
    parser.addoption("--all-seeds", action="store_true", help="run all seeds and inputs of simulations, not a part")
    parser.addoption("--quick", action="store_true", help="leave out the second tier")
    parser.addoption(
        "--no-skips", action="store_true", help="a test that is skipped fails, unless it needs a GPU or containers"
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if config.getoption("--quick") and collection_path.name in SECOND_TIER else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--quick"):
        items[:] = [item for item in items if not item.get_closest_marker("second_tier")]
    items.sort(key=lambda item: LONG_FILES.index(item.path.name) if item.path.name in LONG_FILES else len(LONG_FILES))
    gpu_tests = [item for item in items if item.get_closest_marker("gpu")]
    if gpu_tests and not has_gpu():
        for item in gpu_tests:
            item.add_marker(pytest.mark.skip(reason="there is no GPU here"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if item.config.getoption("--no-skips") and not any(map(item.get_closest_marker, ("container", "gpu"))):
        fail_if_skipped(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if collector.config.getoption("--no-skips"):
        fail_if_skipped(report)
    return report


def fail_if_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.skipped and isinstance(report.longrepr, tuple):
        *_, reason = report.longrepr
        report.outcome, report.longrepr = "failed", reason


def pytest_collection_finish() -> None:
    """Spare the collector the modules, which stay."""
    gc.enable()
    gc.freeze()
    # A collection goes through all rows of tables that tests keep.
    gc.set_threshold(20_000, 20, 20)


def pytest_sessionfinish() -> None:
    """Let go of them: a library of torch's complains of what is never freed."""
    gc.unfreeze()


def has_gpu() -> bool:
    # Torch is a long import.
    if not [*Path("/dev").glob("nvidia*"), *Path("/dev").glob("dxg")]:
        return False
    import torch

    return torch.cuda.is_available()
