"""The next measurements: which steps are shown, and with which commands."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from opcost.comparing.operator_costs import TupleCost, TupleFlag
from opcost.comparing.remarks import NOTICEABLE_RATIO
from opcost.estimates import Estimate
from opcost.invocation import command
from opcost.operators.cases import ALL
from opcost.reporting.report_sections import Compared, next_steps
from opcost.stages.wanted_model import Proposals

WHOLE_S = 0.01


def candidate(
    name: str, dropped_s: float | None = 0.0, ratio: float = 1.0, device: str = "cuda", counts_all: bool = True
) -> Compared:
    comparison = SimpleNamespace(
        full=SimpleNamespace(measurement=SimpleNamespace(time_s=WHOLE_S)),
        gap=SimpleNamespace(dropped=SimpleNamespace(time_s=dropped_s)),
        cost=SimpleNamespace(missing=()),
        time_ratio=Estimate(ratio, 0.0),
        conditions=SimpleNamespace(execution="graph", device_type=device),
    )
    row = SimpleNamespace(name=name, counted=ALL if counts_all else "modules")
    return cast("Compared", SimpleNamespace(row=row, comparison=comparison, kernels=None))


def measured(
    flag: TupleFlag, relative_error: float | None, loop_s: float | None, time_s: float = 0.001, calls: int = 2
) -> TupleCost:
    circumstances = SimpleNamespace(relative_error=relative_error, loop_s=loop_s)
    use = SimpleNamespace(comparison=0, calls=calls, is_summed=True)
    cost = {"flags": {flag}, "uses": [use], "time_s": Estimate(time_s, 0.0)}
    return cast("TupleCost", SimpleNamespace(**cost, row=SimpleNamespace(circumstances=circumstances)))


def commands(candidates: list[Compared], *tuples: Any) -> list[str]:
    return [step.command for step in next_steps(candidates, tuples)]


@pytest.mark.parametrize(
    ("relative_error", "loop_s", "options"),
    [(0.01, None, " --relative-error 0.01"), (None, 1.0, " --seconds 1"), (None, 30.0, "")],
)
def test_what_is_measured_again_is_so_by_the_protocol_of_the_rest(
    relative_error: float | None, loop_s: float | None, options: str
) -> None:
    doubtful = measured(TupleFlag.FLAGGED, relative_error, loop_s)
    assert commands([candidate("a")], doubtful) == [command("measure", "a", "--execution", "graph") + options]
    on_cpu = commands([candidate("a", device="cpu")], doubtful)
    assert on_cpu == [command("measure", "a", "--device", "cpu") + options]


@pytest.mark.parametrize(("calls", "is_noticed"), [(1, False), (2, True)])
def test_what_is_measured_again_takes_a_noticeable_share_with_all_of_its_calls(calls: int, is_noticed: bool) -> None:
    short = measured(TupleFlag.FLAGGED, 0.01, None, 0.6 * NOTICEABLE_RATIO * WHOLE_S, calls)
    assert bool(commands([candidate("a")], short)) == is_noticed


def test_what_was_imprecise_runs_for_30_s() -> None:
    imprecise = measured(TupleFlag.NOT_PRECISE, 0.01, None)
    assert commands([candidate("a")], imprecise) == [command("measure", "a", "--execution", "graph")]


def test_what_the_whitelist_leaves_out_is_a_step_where_it_is_much() -> None:
    candidates = [
        candidate("much", 0.0006),
        candidate("little", 0.00005),
        candidate("unknown", None),
        candidate("leaf", 0.004, counts_all=False),
    ]
    (step,) = next_steps(candidates, [])
    assert (step.command, step.models) == (command("advise", "much", "--coverage-target", "0.99"), (0,))
    assert "6.0 % of a whole model's time" in step.reason


def test_kernels_are_looked_at_on_gpus() -> None:
    assert commands([candidate("a", ratio=0.9)]) == [command("verify kernels", "a")]
    assert commands([candidate("a", ratio=0.9, device="cpu")]) == []


def test_users_code_and_models_of_a_profile_have_commands_that_run() -> None:
    proposals = Proposals(frozenset({"a", "b"}), {"a": ("net.py:build", "--allow-code")})
    doubtful = measured(TupleFlag.FLAGGED, None, 1.0)
    (step,) = next_steps([candidate("a", device="cpu")], [doubtful], proposals)
    assert step.command == command("profile", "net.py:build", "--allow-code", "--device", "cpu", "--seconds", "1")
    (step,) = next_steps([candidate("b", device="cpu")], [doubtful], proposals)
    assert step.command == command("measure", "b", "--device", "cpu", "--seconds", "1", "--allow-code")
    (step,) = next_steps([candidate("b", ratio=1.1)], [], proposals)
    assert step.command == command("verify kernels", "b", "--allow-code")
