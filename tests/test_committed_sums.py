"""The sums of all committed rows, to the last digit: they need no counting, and no change of the code moves them.

``pytest --renew-golden`` writes the golden file anew. Estimates of what is not measured are left out of it: they rest
on a least-squares fit, whose last digit depends on numpy's build.
"""

import shutil
from pathlib import Path

from opcost.comparing.comparison import OperatorRuns
from opcost.running.request import Request
from opcost.stages.compare import find_comparisons, keep_comparisons
from opcost.storage.database import Database

ROOT = Path(__file__).parent.parent
GOLDEN = ROOT / "tests" / "golden" / "sums.csv"
EXACT = (
    "name key input_data counted time_s time_standard_error_s energy_j energy_standard_error_j full_time_s "
    "full_time_standard_error_s full_energy_j full_energy_standard_error_j reference_temperature_c time_ratio "
    "time_standard_error_ratio energy_ratio energy_standard_error_ratio function_time_s function_energy_j "
    "correction_time_s correction_time_standard_error_s correction_energy_j correction_energy_standard_error_j "
    "eager_device_time_s eager_launch_time_s eager_energy_j kernel_error_ratio absolute_kernel_error_ratio "
    "flop_ratio memory_bytes_ratio summed_operators missing_operators"
).split()


def test_sums_of_all_committed_rows_are_the_same_to_the_last_digit(tmp_path, pytestconfig):
    lines = [",".join(EXACT), *(line for whitelist in ('["*"]', None) for line in sums(tmp_path, whitelist))]
    if pytestconfig.getoption("--renew-golden"):
        GOLDEN.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert lines == GOLDEN.read_text(encoding="utf-8").splitlines()


def sums(folder, whitelist):
    """Yield a line for each sum: of everything, of leaf modules, and on normal values; or by the usual whitelist."""
    measurements = folder / "measurements"
    shutil.copytree(ROOT / "measurements", measurements, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.pkl"))
    if whitelist is not None:
        (measurements / "operator_whitelist.yml").write_text(f"operators: {whitelist}\n")
    runs = [OperatorRuns(), OperatorRuns(counted="leaf"), OperatorRuns(input_data="normal")]
    for run in runs if whitelist else runs[:1]:
        request = Request((), measurements, Database(ROOT / "database"), dry_run=True)
        for report in keep_comparisons(request, find_comparisons(request, run)):
            for row in report.comparisons:
                yield ",".join("" if getattr(row, name) is None else str(getattr(row, name)) for name in EXACT)
