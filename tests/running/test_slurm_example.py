"""The example for Slurm, with programs in the place of Slurm's, and simulated devices."""

import os
import subprocess
import sys
from pathlib import Path

from dask_cluster import ENVIRONMENT
from fatal_bench import operator
from simulated_apparatus import SimulatedCampaign

SCRIPT = Path(__file__).parents[2] / "docs" / "examples" / "slurm" / "measure.sh"
PROGRAMS = {
    "sbatch": 'shift 4\nSLURM_JOB_ID=7 exec bash "$@"',
    # Two nodes, each of which has another GPU.
    "srun": '"$@" --device cuda:0 &\n"$@" --device cuda:1 &\ntrap "kill $(jobs -p | tr "\\n" " ")" TERM\nwait\nwait',
    "opcost": 'exec "$PYTHON" -m opcost "$@"',
    "dask": 'exec "$PYTHON" -m dask "$@" --host 127.0.0.1 --port 0',
}


def test_a_job_measures_on_the_gpus_of_its_nodes_and_leaves_nothing(tmp_path: Path) -> None:
    campaign = SimulatedCampaign(tmp_path, {})
    campaign.add_model("a", {operator("Slow", width): 1 for width in range(1, 11)})
    for name, lines in PROGRAMS.items():
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/bash\n{lines}\n")
        program.chmod(0o755)
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, **ENVIRONMENT, "PATH": path, "PYTHON": sys.executable}
    folders = ["--measurements", str(campaign.measurements), "--database", str(campaign.database.folder)]
    command = ["sbatch", "--nodes", "2", "--time", "00:10:00", str(SCRIPT), "a", "--seconds", "1", *folders]
    job = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert job.returncode == 0, job.stderr
    rows = campaign.database.operator_measurements.rows()
    assert len(rows) == len({row.key for row in rows}) == 10
    assert not list(tmp_path.glob("opcost-scheduler-*"))
