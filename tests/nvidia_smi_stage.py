"""Puts tests/fake_nvidia_smi on the PATH as nvidia-smi, sets its faults, and looks for processes left behind."""

import os
import sys
import time
from pathlib import Path

import pytest

FAKE = Path(__file__).with_name("fake_nvidia_smi")


class NvidiaSmiStage:
    """A folder with the fake, and the settings in its environment."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self._pids = folder / "pids"
        executable = folder / "bin" / "nvidia-smi"
        executable.parent.mkdir(parents=True)
        # This interpreter without its packages starts fast, and is there whatever the PATH says.
        executable.write_text(f"#!{sys.executable} -IS\n{FAKE.read_text(encoding='utf-8')}", encoding="utf-8")
        executable.chmod(0o755)
        monkeypatch.setenv("PATH", str(executable.parent), prepend=os.pathsep)
        monkeypatch.setenv("FAKE_NVIDIA_SMI_PIDS", str(self._pids))
        monkeypatch.delenv("FAKE_NVIDIA_SMI_FAULTS", raising=False)

    def act(self, *faults: str) -> None:
        """Have the next runs show these faults; none for a sound driver."""
        self._monkeypatch.setenv("FAKE_NVIDIA_SMI_FAULTS", ",".join(faults))

    def pids(self) -> list[int]:
        """Return the process ids of all runs so far."""
        return [int(line) for line in self._pids.read_text().split()] if self._pids.exists() else []

    def living(self) -> list[int]:
        """Return the process ids of the runs that are still there; a killed one may take a moment to go."""
        deadline = time.monotonic() + 5
        while True:
            living = [pid for pid in self.pids() if is_alive(pid)]
            if not living or time.monotonic() > deadline:
                return living
            time.sleep(0.02)


def is_alive(pid: int) -> bool:
    """Return whether a process exists and is no zombie."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] not in {"Z", "X"}
