"""The energy of a model's heaviest calls on its own values, and on the same values in a random order

Example: PYTHONPATH=. python benchmarks/real_values.py --database /tmp/real_values resnet50_32x3x224x224

Needs a GPU. Drawn inputs have the share of zeros of the model's, but no neighbours that are alike. A module's input
is taken as the model leaves it, then with its elements in a random order, in loops of the call in turn.
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from opcost.estimates import Estimate, combined
from opcost.measuring.protocol import MeasurementProtocol
from opcost.measuring.setting import USUAL
from opcost.measuring.workload import Calls
from opcost.running.apparatus import Apparatus, numbered, open_apparatus
from opcost.running.qualification import qualified
from opcost.sources.models import resolve
from opcost.storage.configs import load_config, model_tuple
from opcost.storage.database import Database
from opcost.torch_backend.switches import switched
from opcost.torch_backend.workload import EagerWorkload, as_graph

PROTOCOL = MeasurementProtocol(0.3, 0.6)
WITH_WEIGHTS, WITHOUT = 5, 2
"""How many modules of a model, by the operations of their products, and by the size of their input."""

MEASUREMENTS = Path(__file__).parents[1] / "measurements"


def cost(apparatus: Apparatus, call: Callable[[], object]) -> tuple[Estimate, Estimate]:
    """Return the energy in J and the time in s of a call in a loop."""
    load = as_graph(EagerWorkload(Calls(call), apparatus.device))
    measured = apparatus.measure_build(load, USUAL, numbered("values"), PROTOCOL)
    assert measured.energy is not None, measured.energy_missing_reason
    return measured.energy, measured.time


def in_random_order(tensor: torch.Tensor) -> torch.Tensor:
    """Return the same elements in another order, stored with the same strides."""
    result = torch.empty_like(tensor)
    order = torch.randperm(tensor.numel(), device=tensor.device)
    result.copy_(tensor.reshape(-1)[order].view(tensor.shape))
    return result


def heaviest(model: torch.nn.Module, run: Callable[[], object]) -> list[tuple[torch.nn.Module, torch.Tensor]]:
    """Return modules with one input, each with a copy of it."""
    found: dict[str, tuple[float, torch.nn.Module, torch.Tensor]] = {}

    def note(module: torch.nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if len(args) != 1 or not isinstance(args[0], torch.Tensor) or not isinstance(output, torch.Tensor):
            return
        weight = getattr(module, "weight", None)
        products = output.numel() * weight[0].numel() if weight is not None and weight.dim() > 1 else 0
        key = f"{module} {tuple(args[0].shape)} {args[0].stride()}"
        if key not in found:
            found[key] = (products or -args[0].numel(), module, args[0].clone())

    leaves = [one for one in model.modules() if not list(one.children()) and not getattr(one, "inplace", False)]
    hooks = [one.register_forward_hook(note) for one in leaves]
    run()
    for hook in hooks:
        hook.remove()
    ordered = sorted(found.values(), key=lambda one: -abs(one[0]))
    products = [one for one in ordered if one[0] > 0][:WITH_WEIGHTS]
    others = [one for one in ordered if one[0] < 0][:WITHOUT]
    return [(module, values) for _, module, values in products + others]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", metavar="NAME")
    parser.add_argument("--database", type=Path, required=True, help="folder for the meters' qualification and logs")
    arguments = parser.parse_args()
    print("model", "module", "input", "time", "energy in mJ", "power", "in a random order", sep="\t")
    with qualified(open_apparatus, None, Database(arguments.database), True) as apparatus, torch.no_grad():
        folders = [MEASUREMENTS / name for name in arguments.names]
        for config in [one for folder in folders for one in load_config(folder / "summary.yml", folder)]:
            with switched(config.precision):
                ready = resolve(model_tuple(config), None).with_inputs(apparatus.device)
                for module, values in heaviest(ready.model, ready.run):
                    calls = [partial(module, values), partial(module, in_random_order(values))]
                    found: list[list[tuple[Estimate, Estimate]]] = [[], []]
                    for turn in (calls, calls[::-1]):
                        for call in turn:
                            found[calls.index(call)].append(cost(apparatus, call))
                    (own, time_s), (other, _) = (
                        (combined([one[0] for one in many]), combined([one[1] for one in many])) for many in found
                    )
                    print(
                        *(config.name, str(module), tuple(values.shape), f"{1e6 * time_s.value:.1f} us"),
                        f"{1e3 * own.value:.3f} ± {1e3 * own.standard_error:.3f}",
                        *(f"{own.value / time_s.value:.0f} W", f"{other.value / own.value - 1:+.1%}"),
                        sep="\t",
                        flush=True,
                    )


main()
