"""Conversion of cells from tables of former versions.

Up to version 0.2 a row had no flags, and programs looked for phrases in its notes. Each phrase is converted to the flag
that replaces it. A phrase must match a note from its beginning, so that torch's own messages do not match.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from opcost.measuring.flags import Flag, flags_of
from opcost.measuring.record import MeasurementRow

SEPARATOR = "|"
"""Separator of an enum's members in one cell."""

Cells = dict[str, str]

PHRASES = {
    Flag.UNEVEN: r"uneven: the median chunk took ",
    Flag.METERS_DISAGREED_BEFORE: r"meters disagree: .* in the sentinel before$",
    Flag.METERS_DISAGREE: r"meters disagree: [\d.]+ W and [\d.]+ W$",
    Flag.THERMAL_SLOWDOWN: r"thermal slowdown for ",
    Flag.OTHER_PROCESS: r"another process (came to the GPU meanwhile|or more took )",
    Flag.NO_TEMPERATURE: r"no temperature: the device's log has no row in the loop$",
    Flag.CLOCKS_STILL_LOW: r"clocks still low from the load before for ",
    Flag.OUT_OF_MEMORY_IN_CAPTURE: r"memory ran out in the capture: libraries may run other algorithms$",
    Flag.IMPRECISE: r"not within [\d.]+% (after [\d.e+]+ s|once the overhead is subtracted)$",
    Flag.POWER_CAPPED: r"clocks held down by the power limit for ",
    Flag.POWER_CAP_UNKNOWN: r"at the power limit, and nothing tells of clocks$",
    Flag.AT_POWER_LIMIT: r"at the power limit of \d+ W: slower where it lasts$",
    Flag.DUTY_CYCLE: r"below the power limit in a duty cycle of at most \d+ %$",
    Flag.NO_KERNEL: r"runs nothing on the device$",
    Flag.MODIFIES_INPUT: r"in place: (added and subtracted in turn|writes the same values each time)$"
    r"|in-place (kernel run into another tensor|operator run out of place)$",
    Flag.RAN_WARM: r"in place: as warm$|no weights: as warm$|not chained: ",
    Flag.NOT_FINITE: r"its output holds NaN or infinity$",
}
OVERHEAD = "of the overhead: "
_DUTY_CYCLE = re.compile(r"in a duty cycle of at most (\d+) %")


def measurement_cells(cells: Cells) -> Cells:
    """Return the cells of a measurement with flags and duty cycle, which former versions wrote as notes."""
    if "flags" in cells or "notes" not in cells:
        return cells
    notes = [note.removeprefix(OVERHEAD) for note in cells["notes"].split("; ")]
    found = flags_of(flag for flag, phrase in PHRASES.items() for note in notes if re.match(phrase, note))
    share = _DUTY_CYCLE.search(cells["notes"]) if Flag.DUTY_CYCLE in found else None
    duty_cycle = "" if share is None else repr(int(share[1]) / 100)
    return cells | {"flags": SEPARATOR.join(flag.value for flag in found), "duty_cycle": duty_cycle}


UPGRADES: Mapping[type[Any], Callable[[Cells], Cells]] = {MeasurementRow: measurement_cells}
"""Conversions by row type, for rows in which more than new columns has changed."""
