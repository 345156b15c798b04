"""A Dask scheduler and workers of ``opcost worker`` as processes of this host; their benches are simulated."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

HERE = Path(__file__).parent
ENVIRONMENT = {
    "PYTHONPATH": f"{HERE.parent}{os.pathsep}{HERE}",
    "DASK_DISTRIBUTED__WORKER__PRELOAD": json.dumps(["simulated_workers"]),
}
SCHEDULER = "-m", "distributed.cli.dask_scheduler", "--no-dashboard", "--host", "127.0.0.1", "--port", "0"


@dataclass
class Cluster:
    """Processes by name: ``scheduler``, and a device for each ``opcost worker``; the scheduler's file."""

    folder: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def file(self) -> Path:
        return self.folder / "scheduler.json"

    def start(self, name: str) -> None:
        file = "--scheduler-file", str(self.file)
        command = [*SCHEDULER] if name == "scheduler" else ["-m", "opcost", "worker", "--device", name]
        with open(self.folder / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, *command, *file], stdout=log, stderr=log, env=os.environ | ENVIRONMENT
            )

    def kill_worker(self, device: str) -> bool:
        """Kill the process of a worker, which its nanny starts again; return whether it was there."""
        with suppress(psutil.Error):
            for child in psutil.Process(self.processes[device].pid).children():
                if "resource_tracker" not in " ".join(child.cmdline()):
                    child.kill()
                    return True
        return False

    def end(self) -> None:
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()


@contextmanager
def running_cluster(folder: Path, devices: Sequence[str]) -> Iterator[Cluster]:
    cluster = Cluster(folder)
    try:
        for name in ("scheduler", *devices):
            cluster.start(name)
        yield cluster
    finally:
        cluster.end()
