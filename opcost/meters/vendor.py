"""A vendor of GPUs: how its GPUs are found, opened and logged. Imports neither numpy nor a vendor's library."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from opcost.power.log_rows import PowerRow
from opcost.power.ports import DeviceFacts, Gpu, GpuError, GpuLog, Meter

POLLED_INTERVAL_S = 0.1


class GpuVendor:
    """The GPUs of one vendor: how they are listed, opened, found from torch's, and logged.

    ``library`` is the name of its library. ``log_program`` is a program that logs beside it, if there is one.
    ``selections`` are the variables that hide GPUs, one after the other; of each group the first that is set counts.
    """

    library: str
    log_program: str | None = None
    selections: tuple[tuple[str, ...], ...] = (("CUDA_VISIBLE_DEVICES",),)

    def uuids(self) -> list[str]:
        """Return the UUIDs of all GPUs, in the library's order. Raises GpuError: none answers."""
        raise NotImplementedError

    def open(self, uuid_or_index: str) -> Gpu:
        """Return a GPU by its UUID or its index in the library's order. Raises GpuError: there is none."""
        raise NotImplementedError

    def is_of(self, torch: Any) -> bool:
        """Return whether this build of torch runs on GPUs of this vendor."""
        raise NotImplementedError

    def uuid_of(self, properties: Any) -> str:
        """Return the UUID of a GPU from its properties in torch. Raises GpuError: the library does not know it."""
        raise NotImplementedError

    def facts(self, uuid_or_index: str) -> DeviceFacts:
        with closing(self.open(uuid_or_index)) as gpu:
            return gpu.facts()

    def uuid_named(self, uuid_or_index: str) -> str:
        return str(self.facts(uuid_or_index).uuid)

    def check_visible(self, environment: Mapping[str, str]) -> None:
        """Raise GpuError if the environment shows a part of a GPU only, which has no power of its own."""

    def visible(self, environment: Mapping[str, str]) -> list[str]:
        """Return the UUID of each GPU that a program may use, in the order of its names. Raises GpuError: none.

        Without variables that hide GPUs this is the library's order, for NVML that of the PCI bus. CUDA's own order
        differs from it where GPUs of several kinds are in one machine and ``CUDA_DEVICE_ORDER`` is not ``PCI_BUS_ID``.
        """
        uuids = chosen = self.uuids()
        self.check_visible(environment)
        for group in self.selections:
            names = next((environment[variable] for variable in group if variable in environment), None)
            chosen = chosen if names is None else list(_selected(chosen, names))
        if not chosen:
            raise GpuError("no GPU is visible" if uuids else f"{self.library} knows no GPU")
        return chosen

    @contextmanager
    def log(self, uuid_or_index: str, folder: Path, interval_s: float | None = None) -> Iterator[GpuLog]:
        """Open the log of a GPU, which writes into a folder. Raises GpuError: there is none."""
        with closing(self.open(uuid_or_index)) as gpu:
            yield PolledLog(gpu, folder, interval_s or POLLED_INTERVAL_S)


def _selected(uuids: list[str], names: str) -> Iterator[str]:
    """Yield those that are named, by index or the begin of the UUID, before the first unknown name."""
    for name in (name.strip() for name in names.split(",")):
        known = [uuid for index, uuid in enumerate(uuids) if name and (name == str(index) or uuid.startswith(name))]
        if not known:
            return
        yield known[0]


class PolledLog:
    """Implements ``GpuLog`` where no program logs a GPU: each look at it is a row."""

    def __init__(self, gpu: Gpu, folder: Path, interval_s: float) -> None:
        self.batch_interval_s = interval_s
        self._gpu, self._folder = gpu, folder

    def read(self) -> tuple[PowerRow, ...]:
        return (self._gpu.state(),)

    finish = read

    def failure(self) -> str | None:
        return None

    def sources(self) -> tuple[str, ...]:
        return ()

    def meter(self, log_name: str) -> Meter:
        from opcost.meters.log_meters import StateMeter

        return StateMeter(self._gpu, self._folder / f"{log_name}.csv")
