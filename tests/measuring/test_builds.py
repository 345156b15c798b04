"""A whole model's builds: the median counts, with what they differ by."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from simulated_machine import simulated_row

from opcost.errors import CannotMeasureError
from opcost.measuring.builds import are_different, median_of_builds
from opcost.measuring.flags import Flag
from opcost.measuring.record import Measurement
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


def test_the_build_with_the_median_time_counts_with_all_of_its_figures() -> None:
    measured = of_builds(taking(1.03), taking(1.0), taking(1.001))
    assert (measured.time_s, measured.energy_j, measured.power_log) == (1.001e-3, 0.4004, "1.001")
    assert measured.builds == 3
    assert measured.builds_time_range_ratio == pytest.approx(0.03 / 1.001)
    assert measured.builds_energy_range_ratio == pytest.approx(0.03 / 1.001)


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


def test_a_disturbed_build_is_replaced() -> None:
    measured = of_builds(taking(1.0), taking(2.0, Flag.OTHER_PROCESS), taking(1.02), taking(1.01))
    assert (measured.power_log, measured.builds, measured.flags) == ("1.01", 3, ())


def test_builds_end_after_two_more_and_those_that_are_not_flagged_count() -> None:
    disturbed = [taking(2.0, Flag.UNEVEN)] * 3
    measured = of_builds(taking(1.02), *disturbed, taking(1.0))
    assert (measured.time_s, measured.builds, measured.flags) == (1.0e-3, 2, ())


def test_flagged_builds_count_if_all_are() -> None:
    measured = of_builds(*(taking(ratio, Flag.METERS_DISAGREE) for ratio in (1.0, 1.4, 1.1, 1.3, 1.2)))
    assert (measured.power_log, measured.builds, measured.flags) == ("1.2", 5, (Flag.METERS_DISAGREE,))


def test_builds_with_energy_count_before_others() -> None:
    without = replace(taking(1.0), energy_j=None, energy_standard_error_j=None, energy_at_reference_j=None)
    measured = of_builds(without, taking(1.1), without)
    assert (measured.energy_j, measured.builds) == (pytest.approx(0.44), 1)


def test_ranges_are_of_measured_energies_unless_all_are_normalised() -> None:
    cold = replace(taking(1.0), energy_at_reference_j=None, energy_at_reference_standard_error_j=None)
    measured = of_builds(taking(1.1), cold, taking(1.1))
    assert measured.builds_energy_range_ratio == pytest.approx(0.1 / 1.1)
    assert measured.energy_at_reference_standard_error_j == USUAL.energy_at_reference_standard_error_j


def test_times_alone_have_a_range_without_energies() -> None:
    without = [
        replace(taking(ratio), energy_j=None, energy_standard_error_j=None, energy_at_reference_j=None, power_w=None)
        for ratio in (1.0, 1.1, 1.2)
    ]
    measured = of_builds(*without)
    assert measured.builds_time_range_ratio == pytest.approx(0.2 / 1.1)
    assert (measured.builds_energy_range_ratio, measured.energy_standard_error_j) == (None, None)


def test_a_model_that_can_be_built_once_keeps_that_build() -> None:
    measured = of_builds(taking(1.0), CannotMeasureError("OutOfMemoryError"))
    assert (measured.time_s, measured.builds, measured.builds_time_range_ratio) == (1e-3, 1, None)
    assert measured.time_standard_error_s == USUAL.time_standard_error_s


def test_a_model_that_cannot_be_built_fails() -> None:
    with pytest.raises(CannotMeasureError, match="OutOfMemoryError"):
        of_builds(CannotMeasureError("OutOfMemoryError"))


@pytest.mark.parametrize(("ratio", "expected"), [(None, False), (0.002, False), (0.011, True)])
def test_builds_differ_from_one_percent(ratio: float | None, expected: bool) -> None:
    assert are_different(ratio) is expected
