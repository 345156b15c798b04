"""The energy of operations in place: as rows of former versions have it, and in place on the values of a model

Example: PYTHONPATH=. python benchmarks/in_place.py --database /tmp/in_place

Needs a GPU. Former rows of ReLU in place are those of its kernel into another tensor, because a loop in place finds its
own results. Here the input is written again before each call, and the energy of that is subtracted, as in present rows.
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from opcost.estimates import Estimate
from opcost.measuring.protocol import MeasurementProtocol
from opcost.measuring.setting import USUAL
from opcost.measuring.workload import Calls
from opcost.running.apparatus import Apparatus, numbered, open_apparatus
from opcost.running.qualification import qualified
from opcost.storage.database import Database
from opcost.torch_backend.workload import EagerWorkload, as_graph

PROTOCOL = MeasurementProtocol(0.3, 1.0)
SHAPES = ((32, 64, 112, 112), (32, 256, 56, 56), (32, 512, 28, 28), (32, 1024, 14, 14), (32, 2048, 7, 7))
OPERATIONS = {"relu": torch.relu_, "silu": partial(torch.nn.functional.silu, inplace=True)}


def cost(apparatus: Apparatus, call: Callable[[], object]) -> tuple[Estimate, Estimate]:
    """Return the time in s and the energy in J of a call in a loop."""
    load = as_graph(EagerWorkload(Calls(call), apparatus.device))
    measured = apparatus.measure_build(load, USUAL, numbered("in_place"), PROTOCOL)
    assert measured.energy is not None, measured.energy_missing_reason
    return measured.time, measured.energy


def text(found: tuple[Estimate, Estimate]) -> str:
    time_s, energy_j = found
    return f"{1e6 * time_s.value:.2f} us, {1e3 * energy_j.value:.3f} ± {1e3 * energy_j.standard_error:.3f} mJ"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", type=Path, required=True, help="folder for the meters' qualification and logs")
    database = Database(parser.parse_args().database)
    print("operation", "shape", "into another tensor", "in place, written before", "in place, settled", sep="\t")
    with qualified(open_apparatus, None, database, True) as apparatus:
        for name, run in OPERATIONS.items():
            for shape in SHAPES:
                source = torch.randn(shape, device=apparatus.device)
                x = source.clone()
                elsewhere = partial(torch.relu, x) if name == "relu" else partial(torch.nn.functional.silu, x)

                def write(x: torch.Tensor = x, source: torch.Tensor = source) -> None:
                    torch.mul(source, 1, out=x)

                def both(
                    x: torch.Tensor = x, write: Callable[[], None] = write, run: Callable[..., object] = run
                ) -> None:
                    write()
                    run(x)

                with apparatus.background.paused() if apparatus.background else torch.no_grad():
                    whole, before = cost(apparatus, both), cost(apparatus, write)
                    in_place = whole[0].less(before[0]), whole[1].less(before[1])
                    other, settled = cost(apparatus, elsewhere), cost(apparatus, partial(run, x))
                print(name, "x".join(map(str, shape)), text(other), text(in_place), text(settled), sep="\t", flush=True)


main()
