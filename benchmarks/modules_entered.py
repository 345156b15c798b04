"""The modules that data enters on its way through the code -> a table (a minute, torch, scikit-learn)

A module is entered if one of its functions is called (``sys.setprofile``); a step is a call from one module into
another. Each way runs once before, as in the midst of a campaign. The ways: from lines of the database to a row of a
comparison and to a predicted run, from a model to a pickle of counts, and from a tuple to a line of the database.
Example: PYTHONPATH=. python benchmarks/modules_entered.py --names
"""

import argparse
import logging
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import torch
from tables import markdown
from torch import nn

import opcost
from opcost.comparing.comparison import comparison_row
from opcost.comparing.model_result import Evidence
from opcost.comparing.predicted_run import run_under
from opcost.measuring.protocol import MeasurementProtocol
from opcost.measuring.setting import Setting
from opcost.operators.counts import EVERYTHING, Case, of_operators, select
from opcost.operators.tuples import OperatorTuple, TensorSpec, model_operator
from opcost.reporting.progress_lines import progress_on_stderr
from opcost.running.bench import measured_rows
from opcost.running.planned_bench import open_local_bench
from opcost.running.request import Request
from opcost.running.shipped_counts import shipped_counts
from opcost.stages.predict import Ground, trained
from opcost.storage.configs import ModelFolders
from opcost.storage.counts_file import write_counts
from opcost.storage.database import Database
from opcost.summing.summation import Measurements
from opcost.torch_backend.capture import capture, run_first
from opcost.torch_backend.ready_model import ReadyModel

ROOT = Path(__file__).parents[1]
PACKAGE = f"{Path(opcost.__file__).parent}/"
MODEL = "resnet50_32x3x224x224"
MOMENT = "2026-11-29T00:00:00+00:00"


class Entered:
    """The modules of the package whose functions are called, in the order of the first call of each."""

    def __init__(self, way: Callable[[], object]) -> None:
        self.modules: dict[str, None] = {}
        self.steps = 0
        way()
        sys.setprofile(self._note)
        try:
            way()
        finally:
            sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        name, caller = frame.f_code.co_filename, frame.f_back
        if event == "call" and name.startswith(PACKAGE):
            self.modules.setdefault(name.removeprefix(PACKAGE).removesuffix(".py"))
            self.steps += caller is not None and caller.f_code.co_filename != name


def of_rows(folder: Path) -> dict[str, Entered]:
    """Return the ways of rows; a prediction is of an operator in ten whose row is left out."""
    database, folders = Database(ROOT / "database"), ModelFolders(ROOT / "measurements")
    (config,) = folders.configs([MODEL])
    selection = select(shipped_counts(database, [config])[MODEL], (EVERYTHING,))
    operators = [count.operator for count in selection.kept.counts]
    whole = database.full_model_measurements.rows(of_operators([selection.kept.model]))[-1]
    chains = database.calls_in_chains.rows()
    request = Request((), folders, database)
    known = trained(request, Ground.of(request), whole.conditions, folder, progress_on_stderr())

    def evidence(operators: list[OperatorTuple]) -> Evidence:
        return Evidence(Measurements(database.operator_measurements.rows(of_operators(operators))), chains)

    def predict() -> object:
        some = [one for number, one in enumerate(operators) if number % 10]
        return run_under(selection.kept, evidence(some), whole.conditions, known)

    return {
        "line to comparison": Entered(lambda: comparison_row(evidence(operators).result(selection, [whole]), MOMENT)),
        "line to prediction": Entered(predict),
    }


def of_runs(folder: Path) -> dict[str, Entered]:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(4)).eval()
    model(images := torch.ones(2, 3, 8, 8))

    def count() -> None:
        ready = run_first(ReadyModel(model, (images,)))
        write_counts(folder / "operators.pkl", capture(ready, model_operator("resnet18", None, (2, 3, 8, 8))))

    case = Case(OperatorTuple("torch.nn.ReLU", (), (TensorSpec((32, 64), "float32"),)))
    setting, protocol = Setting("fp32"), MeasurementProtocol(0.1, 0.2)
    database = Database(folder / "database")
    with open_local_bench("cpu", database, with_meter=False) as bench:

        def measure() -> None:
            for row in measured_rows(bench, case, setting, protocol):
                database.operator_measurements.append(row)

        return {"model to counts": Entered(count), "tuple to line": Entered(measure)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--names", action="store_true", help="also print the names of the modules")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    with tempfile.TemporaryDirectory() as name:
        found = of_rows(Path(name)) | of_runs(Path(name))
    table = [(way, str(len(one.modules)), str(one.steps)) for way, one in found.items()]
    print(markdown(["way", "modules", "steps"], table))
    for way, one in found.items() if arguments.names else ():
        print(f"\n{way}: {', '.join(one.modules)}")


if __name__ == "__main__":
    main()
