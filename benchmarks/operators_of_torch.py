"""Count each entry of torch's own catalogue of operators, run its tuples again alone, and compare -> a page

The catalogue is ``op_db`` of ``torch.testing``, with which torch tests itself. Of each entry one sample is called as a
model would call it, on a CPU. An entry passes if all of its operations are in tuples with known FLOPs, and its tuples
dispatch the same ATen operations with the same outputs, FLOPs and bytes when each is rebuilt and runs alone.
Example: PYTHONPATH=. python benchmarks/operators_of_torch.py --output build/operators_of_torch.md
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Any

import torch
from tables import markdown
from torch import nn

from opcost.command.options import Parser
from opcost.operators.counts import OperatorCounts
from opcost.operators.tuples import OperatorTuple
from opcost.torch_backend.alone import difference
from opcost.torch_backend.capture import capture, run_first
from opcost.torch_backend.ready_model import ReadyModel

COMMAND = "PYTHONPATH=. python benchmarks/operators_of_torch.py --output build/operators_of_torch.md"
DTYPES = (torch.float32, torch.complex64, torch.int64, torch.bool, torch.float64, torch.bfloat16)
"""The dtype of the sample is the first of these that the entry supports on a CPU."""

SAMPLES = 20
"""The first of so many samples that computes anything is called."""

LONGEST_REASON = 150

MODEL = OperatorTuple("catalogue.Call", (), ())


class Outcome(Enum):
    """The result for one entry. The value is the text in the page."""

    SAME = "same operations, outputs, FLOPs and bytes"
    NOTHING = "computes nothing: views and allocations"
    DIFFERS = "differs"
    NOT_COUNTED = "not counted"
    NOT_HERE = "does not run on a CPU"


PASSING = (Outcome.SAME, Outcome.NOTHING)


@dataclass(frozen=True)
class Result:
    """The outcome for an entry of the catalogue, with the reason if it does not pass."""

    name: str
    outcome: Outcome
    reason: str = ""


class Call(nn.Module):
    """A model that calls one function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        return self.function(*args, **kwargs)


def names() -> list[str]:
    """Return the names of the entries of the catalogue, in its order."""
    return [str(entry.formatted_name) for entry in _catalogue()]


def results(wanted: Sequence[str] = ()) -> Iterator[Result]:
    """Yield the result of each entry of the catalogue, or of those of some names."""
    for entry in _catalogue():
        if not wanted or entry.formatted_name in wanted:
            yield _result(entry)


def _catalogue() -> list[Any]:
    # Here, since it takes seconds.
    from torch.testing._internal.common_methods_invocations import op_db

    return list(op_db)


def _result(entry: Any) -> Result:
    dtype = next((one for one in DTYPES if one in entry.supported_dtypes("cpu")), None)
    if dtype is None:
        return Result(entry.formatted_name, Outcome.NOT_HERE, "no dtype")
    torch.manual_seed(0)
    reason = ""
    for sample in list(entry.sample_inputs("cpu", dtype, requires_grad=False))[:SAMPLES]:
        ready = ReadyModel(Call(entry.get_op()), (sample.input, *sample.args), dict(sample.kwargs))
        try:
            run_first(ready)
        # A sample may be of another device, and torch's messages say so in many ways.
        except Exception as error:
            return Result(entry.formatted_name, Outcome.NOT_HERE, _line(error))
        try:
            counts = capture(ready, MODEL)
        except Exception as error:
            reason = _line(error.__cause__ or error)
            continue
        if counts.total_memory_bytes:
            differences = "; ".join(_differences(counts))
            return Result(entry.formatted_name, Outcome.DIFFERS if differences else Outcome.SAME, differences)
    return Result(entry.formatted_name, Outcome.NOT_COUNTED if reason else Outcome.NOTHING, reason)


def _differences(counts: OperatorCounts) -> Iterator[str]:
    if counts.flop_missing_reason is not None:
        yield counts.flop_missing_reason
    if counts.outside:
        yield f"in no tuple: {', '.join(counts.outside)}"
    found = ((count.operator.short_name, difference(count, "cpu")) for count in counts.counts)
    yield from (f"{name}: {one.text}" for name, one in found if one is not None)


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


PAGE = """\
# Operators of torch

Each entry of torch's own catalogue of operators (`op_db` of `torch.testing`), counted and run again on a CPU. An entry
passes if all of its operations are in tuples with known FLOPs, and if each tuple, rebuilt alone, dispatches the same
ATen operations with the same outputs, FLOPs and bytes.

Made on {date} (torch {version}) by `{command}`.

{summary}

## Entries that do not pass

{table}
"""


def page(found: Sequence[Result]) -> str:
    """Return the page in Markdown."""
    numbers = Counter(result.outcome for result in found)
    passing = sum(numbers[outcome] for outcome in PASSING)
    lines = [("outcome", "entries"), *((outcome.value, str(numbers[outcome])) for outcome in Outcome)]
    lines.append(("**pass**", f"**{passing} of {len(found)}**"))
    return PAGE.format(
        date=date.today().isoformat(),
        version=torch.__version__,
        command=COMMAND,
        summary=markdown(lines[0], lines[1:]),
        table=markdown(("entry", "outcome", "reason"), map(_cells, failing(found))),
    )


def failing(found: Iterable[Result]) -> list[Result]:
    """Return the results of entries that do not pass."""
    return [result for result in found if result.outcome not in PASSING]


def _cells(result: Result) -> tuple[str, str, str]:
    reason = result.reason.replace("|", "/").replace("`", "'")
    short = reason if len(reason) <= LONGEST_REASON else f"{reason[:LONGEST_REASON]}…"
    return f"`{result.name}`", result.outcome.value, f"`{short}`"


def main() -> int:
    parser = Parser(description=__doc__)
    parser.add_argument("names", nargs="*", help="entries of the catalogue (default: all)")
    parser.add_argument("--output", type=Path, help="write the page (default: to stdout)")
    arguments = parser.parse_args()
    text = page(list(results(arguments.names)))
    if arguments.output is None:
        print(text, end="")
    else:
        arguments.output.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
