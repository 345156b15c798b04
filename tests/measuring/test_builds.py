"""A whole model's builds: the median counts, with what they differ by."""

import math
from dataclasses import replace

import pytest
from simulated_machine import simulated_row

from opcost.errors import CannotMeasureError
from opcost.measuring.flags import Flag
from opcost.measuring.procedure import median_of_builds
from opcost.measuring.record import Measurement, are_different
from opcost.operators.tuples import OperatorTuple

USUAL = replace(
    simulated_row(OperatorTuple("torch.nn.ReLU")).measurement,
    time_s=1e-3,
    time_standard_error_s=2e-6,
    power_w=400.0,
    power_standard_error_w=1.0,
    energy_j=0.4,
    energy_standard_error_j=1e-3,
    energy_at_reference_j=0.41,
    energy_at_reference_standard_error_j=1e-3,
)


def taking(ratio: float, *flags: Flag) -> Measurement:
    """Return a measurement whose time and energies are this multiple of the usual ones; its log is named by it."""
    return replace(
        USUAL,
        time_s=ratio * 1e-3,
        energy_j=ratio * 0.4,
        energy_at_reference_j=ratio * 0.41,
        power_log=f"{ratio:g}",
        flags=flags,
    )


def of_builds(*found: Measurement | CannotMeasureError, builds: int = 3) -> Measurement:
    left = list(found)

    def measure_build() -> Measurement:
        one = left.pop(0)
        if isinstance(one, CannotMeasureError):
            raise one
        return one

    measured = median_of_builds(measure_build, builds)
    assert left == []
    return measured


WITHOUT = {"energy_j": None, "energy_standard_error_j": None, "energy_at_reference_j": None, "power_w": None}
UNEVEN, DISAGREEING = Flag.UNEVEN, Flag.METERS_DISAGREE
FAILED = CannotMeasureError("OutOfMemoryError")


@pytest.mark.parametrize(
    ("found", "log", "builds", "flags"),
    [
        pytest.param([taking(1.03), taking(1.0), taking(1.001)], "1.001", 3, (), id="median"),
        pytest.param([taking(1.0), taking(2.0, UNEVEN), taking(1.02), taking(1.01)], "1.01", 3, (), id="replaced"),
        pytest.param([taking(1.02), *[taking(2.0, UNEVEN)] * 3, taking(1.0)], "1", 2, (), id="ends after two more"),
        pytest.param(
            [taking(one, DISAGREEING) for one in (1.0, 1.4, 1.1, 1.3, 1.2)], "1.2", 5, (DISAGREEING,), id="all"
        ),
        pytest.param(
            [replace(taking(1.0), **WITHOUT), taking(1.1), replace(taking(1.0), **WITHOUT)], "1.1", 1, (), id="energy"
        ),
        pytest.param([taking(1.0), FAILED], "1", 1, (), id="can be built once"),
    ],
)
def test_the_build_with_the_median_time_counts(
    found: list[Measurement | CannotMeasureError], log: str, builds: int, flags: tuple[Flag, ...]
) -> None:
    measured = of_builds(*found)
    assert (measured.power_log, measured.builds, measured.flags) == (log, builds, flags)
    assert (measured.time_s, measured.energy_j) == (pytest.approx(float(log) * 1e-3), pytest.approx(float(log) * 0.4))
    if builds == 1:
        assert (measured.builds_time_range_ratio, measured.time_standard_error_s) == (None, USUAL.time_standard_error_s)
    else:
        times_s = sorted(one.time_s for one in found if isinstance(one, Measurement) and one.flags == flags)
        assert measured.builds_time_range_ratio == pytest.approx(
            (times_s[-1] - times_s[0]) / float(log) * 1e3, rel=0.02
        )


def test_a_model_that_cannot_be_built_fails() -> None:
    with pytest.raises(CannotMeasureError, match="OutOfMemoryError"):
        of_builds(FAILED)


def test_errors_have_the_part_of_the_scatter_that_they_do_not_explain() -> None:
    measured = of_builds(taking(0.98), taking(1.0), taking(1.02))
    scatter_s = math.sqrt(2e-5**2 - 2e-6**2)
    assert measured.time_standard_error_s == pytest.approx(math.hypot(2e-6, math.sqrt(math.pi / 6) * scatter_s))
    scatter_j = math.sqrt((0.02 * 0.4) ** 2 - 1e-3**2)
    assert measured.energy_standard_error_j == pytest.approx(math.hypot(1e-3, scatter_j))
    scatter_j = math.sqrt((0.02 * 0.41) ** 2 - 1e-3**2)
    assert measured.energy_at_reference_standard_error_j == pytest.approx(math.hypot(1e-3, scatter_j))


def test_builds_that_agree_within_their_errors_keep_them() -> None:
    measured = of_builds(taking(0.999), taking(1.0), taking(1.001))
    assert measured.time_standard_error_s == USUAL.time_standard_error_s
    assert measured.energy_standard_error_j == USUAL.energy_standard_error_j
    assert measured.power_standard_error_w == USUAL.power_standard_error_w


def test_ranges_are_of_measured_energies_unless_all_are_normalised() -> None:
    cold = replace(taking(1.0), energy_at_reference_j=None, energy_at_reference_standard_error_j=None)
    measured = of_builds(taking(1.1), cold, taking(1.1))
    assert measured.builds_energy_range_ratio == pytest.approx(0.1 / 1.1)
    assert measured.energy_at_reference_standard_error_j == USUAL.energy_at_reference_standard_error_j


def test_times_alone_have_a_range_without_energies() -> None:
    without = [replace(taking(ratio), **WITHOUT) for ratio in (1.0, 1.1, 1.2)]
    measured = of_builds(*without)
    assert measured.builds_time_range_ratio == pytest.approx(0.2 / 1.1)
    assert (measured.builds_energy_range_ratio, measured.energy_standard_error_j) == (None, None)


@pytest.mark.parametrize(("ratio", "expected"), [(None, False), (0.002, False), (0.011, True)])
def test_builds_differ_from_one_percent(ratio: float | None, expected: bool) -> None:
    assert are_different(ratio) is expected
