"""Draw the models on which sums in state are judged, by seeds -> measurements, second and third in docs/data/states

Example: PYTHONPATH=. python benchmarks/hold_out.py

From the lists of torchvision and timm, and from the architectures of texts in architectures.yml with the configuration
that transformers gives them, without the models on which the method was developed. Two more are of a file. Each list
was committed before anything of it was measured. Each further one was drawn when the method had changed after the one
before was known.
"""

import argparse
import random
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import timm
import torch
import torchvision
import transformers
import yaml

FOLDER = Path(__file__).parents[1] / "docs/data/states"
ARCHITECTURES = Path(__file__).with_name("architectures.yml")
DEVELOPED_ON = (
    "convformer",
    "efficientnetv2_m",
    "efficientnet_v2_m",
    "maxvit",
    "coatnet",
    "mvit",
    "qwen2",
    "bert",
    "mamba",
)
MOST_WEIGHTS, LONGEST_SIDE = 300e6, 288
IMAGES = (
    *({"batch": 32}, {"batch": 8, "precision": "bf16"}, {"batch": 1}, {"batch": 32, "precision": "bf16"}),
    *({"batch": 16, "precision": "bf16", "memory_format": "channels_last"}, {"batch": 8}),
    *({"batch": 1, "precision": "bf16"}, {"batch": 32, "memory_format": "channels_last"}, {"batch": 4}),
    {"batch": 32, "precision": "bf16", "memory_format": "channels_last"},
)
"""The conditions of images, in turn for torchvision and timm."""

TEXTS = (
    *({"batch": 8, "length": 256, "precision": "bf16"}, {"batch": 1, "length": 128}),
    *({"batch": 16, "length": 512, "precision": "bf16"}, {"batch": 4, "length": 256}),
)


FIRST_HOLD_OUT = (
    *("caformer", "dpn68", "fnet", "gptbigcode", "hgnetv2_b4", "longt5", "mnasnet", "mobilenet_v3", "nest_tiny"),
    *("resnext101_64x4d", "roformer", "swin_tiny", "vit_l_16"),
)
MEASURED_BY_KERNELS = ("resnet", "swin")
SECOND_HOLD_OUT = (
    *("alexnet", "bigbird", "convnext", "cpubone", "efficientnet", "longformer", "mpnet", "optfor", "regnet"),
    *("repghost", "t5model", "vgg", "vit_"),
)


@dataclass(frozen=True)
class Draw:
    """A seed, its folder, the models that are left out, how many of each library, and networks of models.py."""

    seed: int
    folder: str
    known: tuple[str, ...]
    of_torchvision: int
    of_timm: int
    of_transformers: int
    own: tuple[str, ...]

    def is_new(self, name: str) -> bool:
        return not any(part in name.casefold() for part in self.known)


DRAWS = (
    Draw(24, "measurements", DEVELOPED_ON, 5, 5, 4, ("waves", "mixer")),
    Draw(25, "second", (*DEVELOPED_ON, *FIRST_HOLD_OUT, *MEASURED_BY_KERNELS), 5, 6, 5, ("denoiser", "tagger")),
    Draw(
        *(26, "third", (*DEVELOPED_ON, *FIRST_HOLD_OUT, *MEASURED_BY_KERNELS, *SECOND_HOLD_OUT)),
        *(5, 6, 5, ("segmenter", "recommender")),
    ),
)


def weights(model: torch.nn.Module) -> int:
    return sum(one.numel() for one in model.parameters())


def of_torchvision(draw: Draw, chance: random.Random) -> list[tuple[str, int]]:
    names = [name for name in torchvision.models.list_models(torchvision.models) if draw.is_new(name)]
    return [(name, 224) for name in chance.sample(names, draw.of_torchvision)]


def of_timm(draw: Draw, chance: random.Random) -> list[tuple[str, int]]:
    found = []
    for name in chance.sample(sorted(filter(draw.is_new, timm.list_models())), 40):
        with torch.device("meta"):
            model = timm.create_model(name)
        side = model.default_cfg["input_size"][-1]
        if side <= LONGEST_SIDE and weights(model) <= MOST_WEIGHTS and len(found) < draw.of_timm:
            found.append((f"timm:{name}", side))
    return found


def of_transformers(draw: Draw, chance: random.Random) -> list[str]:
    listed = yaml.safe_load(ARCHITECTURES.read_text())
    texts = {one["model_name"] for one in listed.values() if len(one.get("input_size", ())) == 2}
    found = []
    for name in chance.sample(sorted(filter(draw.is_new, texts)), 25):
        kind = getattr(transformers, name.rpartition(":")[2], None)
        if kind is None or len(found) == draw.of_transformers:
            continue
        # Some configurations lack a size.
        with torch.device("meta"), suppress(TypeError, ValueError):
            if weights(kind(kind.config_class())) <= MOST_WEIGHTS:
                found.append(name)
    return found


def drawn(draw: Draw) -> list[dict[str, Any]]:
    """Return the configs of a draw."""
    chance = random.Random(draw.seed)
    images, texts = [*of_torchvision(draw, chance), *of_timm(draw, chance)], of_transformers(draw, chance)
    summaries: list[dict[str, Any]] = []
    for (name, side), conditions in zip(images, cycle(IMAGES), strict=False):
        batch, others = conditions["batch"], {key: value for key, value in conditions.items() if key != "batch"}
        summaries.append({"model_name": name, "input_size": [batch, 3, side, side], **others})
    for name, conditions in zip(texts, cycle(TEXTS), strict=False):
        size = [conditions["batch"], conditions["length"]]
        others = {key: value for key, value in conditions.items() if key == "precision"}
        summaries.append({"model_name": name, "input_size": size, **others})
    return summaries + [{"model_name": f"../../models.py:{name}", "precision": "bf16"} for name in draw.own]


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    for draw in DRAWS:
        for summary in drawn(draw):
            short = summary["model_name"].rpartition(":")[2]
            name = "_".join([short, *([summary["precision"]] if "precision" in summary else [])]).lower()
            folder = FOLDER / draw.folder / name
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "summary.yml").write_text(yaml.safe_dump(summary, sort_keys=False, default_flow_style=None))
            print(draw.folder, name, summary)


main()
