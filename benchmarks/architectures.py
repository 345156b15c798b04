"""Count architectures of transformers and timm, and run each operator tuple again in a fresh process -> a page

Example: PYTHONPATH=. python benchmarks/architectures.py --output build/architectures.md

The models are those of benchmarks/architectures.yml. They are counted by `opcost count`, and their tuples are rebuilt
by `opcost verify operators`, a process each, on a CPU. Results are kept in build/architectures; --kept makes the page
of them again.
"""

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml
from tables import markdown

from opcost.storage.counts_file import read_counts

LIST = Path(__file__).with_name("architectures.yml")
FOLDER = Path("build/architectures")
COMMAND = "PYTHONPATH=. python benchmarks/architectures.py --output build/architectures.md"
RESULTS = FOLDER / "results.json"
LIBRARIES = ("torch", "transformers", "timm")

FLOP_TOLERANCE_RATIO = 1e-6
LEAST_BYTES_RATIO = 0.999
"""Required shares in tuples: all FLOPs, up to the rounding of means over calls, and nearly all bytes."""

LONGEST_REASON = 160


@dataclass(frozen=True)
class Result:
    """The counts of one model, and the tuples that a fresh process rebuilt with the same outputs and FLOPs.

    ``summary`` is its config, ``refused`` the reason if it could not be counted; then the numbers are 0.
    ``differences`` has a line for each tuple that was not rebuilt the same, ``value_dependent`` one for each of those
    whose outputs depend on values.
    """

    name: str
    summary: dict[str, Any]
    refused: str = ""
    calls: int = 0
    tuples: int = 0
    flops: int = 0
    counted_flops: int = 0
    bytes: int = 0
    counted_bytes: int = 0
    outside: tuple[str, ...] = ()
    rebuilt: int = 0
    differences: tuple[str, ...] = ()
    value_dependent: tuple[str, ...] = ()

    @property
    def shares(self) -> tuple[float, float]:
        """The shares of FLOPs and bytes that tuples have."""
        return self.counted_flops / self.flops if self.flops else 1.0, self.counted_bytes / max(1, self.bytes)

    @property
    def passes(self) -> bool:
        """Whether tuples have all FLOPs and nearly all bytes, and each was rebuilt the same."""
        flops_ratio, bytes_ratio = self.shares
        is_whole = abs(flops_ratio - 1) < FLOP_TOLERANCE_RATIO and bytes_ratio >= LEAST_BYTES_RATIO
        return not self.refused and is_whole and self.rebuilt == self.tuples


@dataclass(frozen=True)
class Independent:
    """The FLOPs of a transformer by the formula of the literature (Kaplan et al. 2020; Korthikanti et al. 2022).

    2 for each weight of a matrix product and token, and 4 x layers x tokens² x width for the scores of attention and
    the sums of values that they weight; a causal mask halves neither.
    """

    model: str
    tokens: int
    layers: int
    width: int
    weights_of_layer: int
    weights_of_head: int

    @property
    def flops(self) -> int:
        weights = self.layers * self.weights_of_layer + self.weights_of_head
        return 2 * weights * self.tokens + 4 * self.layers * self.tokens**2 * self.width


INDEPENDENT = (
    Independent("bert", 128, 2, 768, 12 * 768**2, 768**2 + 768 * 30522),
    Independent("gpt2", 128, 2, 768, 12 * 768**2, 768 * 50257),
    Independent("llama", 128, 1, 4096, 4 * 4096**2 + 3 * 4096 * 11008, 4096 * 32000),
)
"""A layer of BERT and GPT-2 has 12 x width² weights; one of Llama 4 x width² and three matrices of width x 11008."""


def models() -> dict[str, dict[str, Any]]:
    """Return the configs of the list by name."""
    return dict(yaml.safe_load(LIST.read_text(encoding="utf-8")))


def check_all(models: Mapping[str, dict[str, Any]], processes: int) -> list[Result]:
    """Count all models and rebuild their tuples, in a number of processes at the same time."""
    for name, summary in models.items():
        (FOLDER / name).mkdir(parents=True, exist_ok=True)
        (FOLDER / name / "summary.yml").write_text(yaml.safe_dump(summary, sort_keys=False), encoding="utf-8")
    names = list(models)
    with ThreadPoolExecutor(processes) as executor:
        shares = executor.map(check, [names[first::processes] for first in range(processes)])
        results = {name: Result(name, models[name], **found) for share in shares for name, found in share.items()}
    return [results[name] for name in names]


def check(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the fields of each model's result: counted in one process, rebuilt in another."""
    found: dict[str, dict[str, Any]] = {}
    for report in opcost("count", names):
        if "reason" in report:
            found[report["name"]] = {"refused": report["reason"].partition("model_name: ")[2] or report["reason"]}
        else:
            same = {key: report[key] for key in ("flops", "counted_flops", "bytes", "counted_bytes")}
            numbers = {"calls": report["operator_calls"], "tuples": report["unique_tuples"]}
            found[report["name"]] = {**numbers, **same, "outside": tuple(report["outside"])}
    counted = [name for name in names if "refused" not in found[name]]
    reports = opcost("verify operators", counted)
    for name in counted:
        operators = tuple(f"{one.operator}: " for one in read_counts(FOLDER / name / "operators.pkl", name).counts)
        # A tuple is rebuilt once for all models that have it.
        for key, field in (("failures", "differences"), ("value_dependent", "value_dependent")):
            lines = [line for report in reports for line in report[key]]
            found[name][field] = tuple(line for line in lines if line.startswith(operators))
        found[name]["rebuilt"] = len(operators) - len(found[name]["differences"]) - len(found[name]["value_dependent"])
    return found


def opcost(subcommand: str, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return what a subcommand prints for some models, from a process of its own."""
    folders = map(str, ["--measurements", FOLDER, "--database", FOLDER / "database"])
    command = [sys.executable, "-m", "opcost", *subcommand.split(), *names, "--device", "cpu", "--json", *folders]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if not ran.stdout.startswith("["):
        sys.exit(f"opcost {subcommand} ended with status {ran.returncode}")
    return list(json.loads(ran.stdout))


def written(results: Sequence[Result], seconds: float, processes: int) -> str:
    """Return results as a text, with the date, the versions and the duration of their run."""
    libraries = ", ".join(f"{library} {version(library)}" for library in LIBRARIES)
    run = {"date": date.today().isoformat(), "libraries": libraries, "seconds": seconds, "processes": processes}
    return json.dumps({"run": run, "results": [asdict(result) for result in results]})


def read(text: str) -> tuple[list[Result], dict[str, Any]]:
    """Return results from their text, and the facts of their run."""
    kept = json.loads(text)
    return [Result(**result) for result in kept["results"]], kept["run"]


PAGE = """\
# Architectures of transformers and timm

Made on {date} by `{command}`
with {libraries}, on a CPU, in {minutes:.0f} minutes ({processes} models at a time).

Each model of `benchmarks/architectures.yml` was counted by `opcost count`: random weights, batch 1.
Then `opcost verify operators` rebuilt each operator tuple from the pickles in a fresh process without the libraries of
the models, and ran it on random values. A tuple of several models ran once. Models have their full width. Most of
transformers have one or two layers of each kind, as their arguments say: further layers have the same tuples. Those of
timm are whole unless they have a `depth`, and are of every module of timm that registers models.

{summary}

## By the literature

The FLOPs are 2 · weights · tokens + 4 · layers · tokens² · width. Weights are those of matrix products: embeddings,
biases and norms have none. Attention computes all scores, also those that a causal mask hides.

{independent}

## Each model

- **calls**, **tuples**: calls of operators in one run, and the distinct ones. Functions that compute nothing are left
  out.
- **FLOPs**, **bytes**: the share of the whole run's FLOPs and bytes that tuples have.
- **same**: tuples with the same ATen operations, output shapes, dtypes and layouts, FLOPs and bytes in a fresh
  process.

{table}
"""


def page(results: Sequence[Result], run: Mapping[str, Any]) -> str:
    """Return the page in Markdown."""
    return PAGE.format(
        date=run["date"],
        command=COMMAND,
        libraries=run["libraries"],
        minutes=run["seconds"] / 60,
        processes=run["processes"],
        summary="\n".join(summary_lines(results)),
        independent=independent_table(results),
        table=markdown(
            ("model", "class", "arguments", "inputs", *"calls tuples GFLOP FLOPs bytes same".split()),
            map(cells, results),
        ),
    )


def summary_lines(results: Sequence[Result]) -> Iterable[str]:
    """Yield the totals, and a line for each model that is not counted or not rebuilt wholly."""
    known = [result for result in results if not result.refused]
    sources = Counter(str(result.summary["model_name"]).partition(":")[0] for result in results)
    passing = Counter(str(one.summary["model_name"]).partition(":")[0] for one in results if one.passes)
    passed = ", ".join(f"{passing[source]} of {number} of {source}" for source, number in sources.items())
    tuples, rebuilt = sum(result.tuples for result in known), sum(result.rebuilt for result in known)
    outside = sorted({operation for result in known for operation in result.outside})
    flops_ratio, bytes_ratio = map(min, zip(*(result.shares for result in known), strict=True))
    yield f"- architectures that pass: {passed}"
    yield f"- in tuples: at least {flops_ratio:.4%} of FLOPs, {bytes_ratio:.4%} of bytes"
    yield f"- operations in no tuple: {', '.join(outside) or 'none'}"
    yield f"- tuples with the same operations, outputs, FLOPs and bytes in a fresh process: {rebuilt:,} of {tuples:,}"
    yield from (f"- not counted: {one.name} ({one.refused.partition('; ')[0]})" for one in results if one.refused)
    for result in known:
        yield from (f"- not the same: {result.name}: `{shortened(line)}`" for line in result.differences)
        yield from (f"- depends on values: {result.name}: `{shortened(line)}`" for line in result.value_dependent)


def independent_table(results: Sequence[Result]) -> str:
    flops = {result.name: result.flops for result in results}
    rows = [
        (f"{one.model}, {one.layers} of its layers, {one.tokens} tokens", f"{one.flops:,}", f"{flops[one.model]:,}")
        for one in INDEPENDENT
        if one.model in flops
    ]
    return markdown(("model", "FLOPs by the formula", "FLOPs counted"), rows)


def cells(result: Result) -> list[str]:
    summary = result.summary
    named = [result.name, str(summary["model_name"]).replace(":", " ")]
    pairs = (f"{key}={json.dumps(value)}" for key, value in summary.get("arguments", {}).items())
    sizes = [summary["input_size"]] if "input_size" in summary else [one["shape"] for one in summary["inputs"].values()]
    named += [", ".join(pairs).replace('"', ""), ", ".join("x".join(map(str, size)) for size in sizes)]
    if result.refused:
        return [*named, *["-"] * 6]
    shares = (f"{share:.2%}" for share in result.shares)
    numbers = [str(result.calls), str(result.tuples), f"{result.flops / 1e9:.3f}"]
    return [*named, *numbers, *shares, f"{result.rebuilt} / {result.tuples}"]


def shortened(text: str) -> str:
    text = text.replace("`", "'")
    return text if len(text) <= LONGEST_REASON else f"{text[:LONGEST_REASON]}…"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="models of the list (default: all)")
    parser.add_argument("--output", type=Path, help="write the page (default: to stdout)")
    parser.add_argument("--processes", type=int, default=1, help="models at the same time (default: 1)")
    parser.add_argument("--kept", action="store_true", help="make the page from the results of the last run")
    arguments = parser.parse_args()
    if not arguments.kept:
        listed = models()
        begin_s = time.monotonic()
        found = check_all({name: listed[name] for name in arguments.names or listed}, arguments.processes)
        text = written(found, time.monotonic() - begin_s, arguments.processes)
        RESULTS.write_text(text, encoding="utf-8")
    results, run = read(RESULTS.read_text(encoding="utf-8"))
    text = page(results, run)
    if arguments.output is None:
        print(text, end="")
    else:
        arguments.output.write_text(text, encoding="utf-8")
    sys.exit(int(not all(result.passes for result in results)))


if __name__ == "__main__":
    main()
