"""How a bench is opened: in a child process to measure; for a plan in this process, or from the rows of a product."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from opcost.errors import UserError
from opcost.measuring.setting import DEVICES
from opcost.running.bench import Bench, OpenBench
from opcost.running.planned_bench import open_planned_bench
from opcost.running.request import Request
from opcost.running.worker_bench import open_child_bench
from opcost.storage.database import Database

if TYPE_CHECKING:
    from opcost.running.workloads import ReadyModels


def bench_opener(request: Request) -> OpenBench:
    """Return how a request's device is opened.

    Raises UserError: the device is a product's name, and this is no dry run.
    """
    if not request.is_product:
        return open_local_bench if request.dry_run else open_child_bench
    if not request.dry_run:
        raise UserError(
            f"--device {request.device}: not a device; use {DEVICES} (the name of a product needs --dry-run)"
        )
    return open_planned_bench


@contextmanager
def open_local_bench(
    device: str | None, database: Database, with_meter: bool, ready: ReadyModels | None = None
) -> Iterator[Bench]:
    """Open a device in this process.

    This is enough if nothing is measured, and needed for models that are objects of this process: ``ready``.
    """
    # They import torch.
    from opcost.running.apparatus import open_apparatus
    from opcost.running.qualification import qualified

    with qualified(partial(open_apparatus, ready=ready or {}), device, database, with_meter) as apparatus:
        yield apparatus
