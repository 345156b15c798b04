"""A model as the work of a power-cap sweep, on the simulated machine, whose power follows the cap."""

from pathlib import Path

import pytest
from simulated_apparatus import RecordedProgress
from simulated_caps import SimulatedLimit
from simulated_machine import Load, SimulatedWorkload
from simulated_sweep import SimulatedSweep

from opcost.errors import UserError
from opcost.metering.cap_rows import Objective, PowerCapRow, Wish
from opcost.stages.power_cap import CapBoard, CapCourse, CapSweepPlan, open_model
from opcost.storage.database import Database

FREE_W, FULL_W = 400.0, 500.0
"""The model's time rises below the first, its power without a cap is the second."""


class LimitOfLoads(SimulatedLimit):
    """A limit that changes the load of a workload on the simulated machine."""

    def __init__(self, workload: SimulatedWorkload) -> None:
        super().__init__()
        self._workload = workload

    def set_w(self, power_w: float) -> None:
        super().set_w(power_w)
        self._workload.load = Load(0.004 * max(1.0, FREE_W / power_w), min(power_w, FULL_W))


def test_a_model_is_built_once_and_measured_at_each_cap(tmp_path: Path) -> None:
    sweep = SimulatedSweep(tmp_path, {32: Load(0.004, FULL_W)})
    request, config = sweep.campaign.request(), sweep.sweep.points[0].config
    table = Database(tmp_path / "caps").power_caps
    with open_model(request, config, uuid_in(sweep), 0.5, sweep.open_bench) as work:
        limit = LimitOfLoads(work.bench._held.workload)
        board = CapBoard("cuda:0", "GPU-1", lambda: pytest.fail("no limit is opened here"))
        plan = CapSweepPlan(Wish(Objective.ED2P), 1, 4)
        found = CapCourse(board, limit, work, plan, table.append).carry_out(RecordedProgress())
    assert sweep.built == [32]
    assert found.work == config.name
    rows: list[PowerCapRow] = table.rows()
    assert rows == list(found.rows)
    assert limit.set_caps_w == [row.cap_w for row in rows]
    # Caps far above the power of a steady load are left out.
    assert max(row.cap_w for row in rows[1:-1]) == pytest.approx(1.05 * FULL_W, abs=3)
    assert found.proposal.cap_w == pytest.approx(FREE_W, rel=0.03)
    assert found.proposal.energy_ratio == pytest.approx(FREE_W / FULL_W, rel=0.03)


def test_another_board_than_the_one_whose_limit_is_set_is_refused(tmp_path: Path) -> None:
    sweep = SimulatedSweep(tmp_path, {32: Load(0.004, FULL_W)})
    request, config = sweep.campaign.request(), sweep.sweep.points[0].config
    opening = open_model(request, config, "GPU-another", 0.5, sweep.open_bench)
    with pytest.raises(UserError, match="number the GPUs in different orders"), opening:
        pass


def test_a_model_that_cannot_be_built_is_one_line(tmp_path: Path) -> None:
    sweep = SimulatedSweep(tmp_path, {}, failing={32: "out of memory"})
    request, config = sweep.campaign.request(), sweep.sweep.points[0].config
    opening = open_model(request, config, uuid_in(sweep), 0.5, sweep.open_bench)
    with pytest.raises(UserError, match="cannot be built: out of memory"), opening:
        pass


def uuid_in(sweep: SimulatedSweep) -> str:
    """Return the UUID of the simulated board."""
    from opcost.measuring.protocol import protocol_for

    with sweep.open_bench(None, sweep.database, True) as bench:
        return bench.circumstances(protocol_for(True, 1.0)).device_uuid
