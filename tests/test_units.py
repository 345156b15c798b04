import pytest
from hypothesis import given
from hypothesis import strategies as st

from opcost import units


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (units.milliseconds(0.0012345), "1.234 ms"),
        (units.milliseconds(0.00099996), "1.000 ms"),
        (units.milliseconds(1.5e-7), "0.0001500 ms"),
        (units.milliseconds(12.3456), "12346 ms"),
        (units.milliseconds(0.0), "0 ms"),
        (units.millijoules(0.3), "300.0 mJ"),
        (units.millijoules(-0.0525), "-52.50 mJ"),
        (units.watts(684.66), "684.7 W"),
        (units.percent(0.98765), "98.8 %"),
        (units.percent(0.0), "0.0 %"),
        (units.percent(-0.0004), "0.0 %"),
        (units.ratio(1.00049), "1.000"),
        (units.gigaflop(3.6e9), "3.600 GFLOP"),
        (units.gigaflop(1), "0.000000001 GFLOP"),
        (units.megabytes(102_228_128), "102.2 MB"),
        (units.gigabytes(141e9), "141 GB"),
        (units.some_of(["a"]), "a"),
        (units.some_of(["a", "b", "c"]), "a, b, c"),
        (units.some_of(["a", "b", "c", "d"]), "a, b, c and 1 more"),
    ],
)
def test_values_are_shown_in_the_unit_that_people_read(text, expected):
    assert text == expected


SHOWN = "milliseconds millijoules watts percent ratio gigaflop megabytes".split()


@pytest.mark.parametrize("name", SHOWN)
def test_unknown_values_are_a_dash(name):
    assert getattr(units, name)(None) == "-"


@pytest.mark.parametrize(
    ("time_s", "expected"),
    [
        (0, "0 s"),
        (45.4, "45 s"),
        (59.6, "1 min 0 s"),
        (200, "3 min 20 s"),
        (3599.4, "59 min 59 s"),
        (3599.6, "1 h 0 min"),
        (7500, "2 h 5 min"),
        (100_000, "27 h 46 min"),
    ],
)
def test_durations(time_s, expected):
    assert units.duration(time_s) == expected


@given(st.floats(1e-8, 1e6))
def test_text_keeps_four_significant_digits_and_has_no_exponent(time_s):
    number, unit = units.milliseconds(time_s).split(" ")
    assert unit == "ms"
    assert "e" not in number
    assert float(number) == pytest.approx(1e3 * time_s, rel=5.01e-4)
    assert len(number.replace(".", "").lstrip("0")) >= 4
