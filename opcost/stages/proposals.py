"""Commands that messages propose for models that need more than their name, and the state before a measurement."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path

from opcost.invocation import command
from opcost.measuring.protocol import FULL_LOOP_S
from opcost.operators.whitelist import EVERYTHING
from opcost.running.request import FILTERED_COUNTS, Request, is_counted
from opcost.stages.wanted_model import WantedModel
from opcost.storage.configs import ModelConfig
from opcost.storage.model_folders import WHITELIST


@dataclass(frozen=True)
class Preparation:
    """The state before a measurement: names of operators that the whitelist drops, and of models with pickles.

    ``whitelist`` is the user's, which may not exist yet. ``shipped`` is the one to copy there first, None if the user's
    exists. ``counted`` and ``filtered`` are the models that blocks 0 and 1 have written a pickle of: block 2 reads
    these, not the shipped counts.
    """

    dropped: tuple[str, ...]
    whitelist: Path
    shipped: Path | None
    counted: frozenset[str]
    filtered: frozenset[str]


def preparation_of(request: Request, names: Collection[str], configs: Iterable[ModelConfig]) -> Preparation:
    """Return the state before a measurement of the operators of these names.

    Raises UserError: the whitelist is damaged.
    """
    kept = request.whitelist_if_any()
    dropped = () if kept is None or EVERYTHING in kept else tuple(sorted(set(names) - set(kept)))
    read, own = request.folders.whitelist, request.measurements / WHITELIST
    found = list(configs)
    return Preparation(
        dropped,
        own,
        None if read == own else read,
        frozenset(config.name for config in found if is_counted(config)),
        frozenset(config.name for config in found if FILTERED_COUNTS.path(config).exists()),
    )


NOT_OF_PROFILE = ("--same-board",)
"""Options that ``opcost profile`` does not have; it always does what this one asks for."""

DURATIONS = ("--seconds", "--relative-error")


@dataclass(frozen=True)
class Proposals:
    """The models, by their names, for which commands need more.

    ``with_code`` are users' code. ``profiled`` are those that are counted and not filtered, as ``opcost profile``
    leaves them, with the words of its command. ``unfiltered`` are the others that are counted and not filtered.
    """

    with_code: frozenset[str] = frozenset()
    profiled: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unfiltered: frozenset[str] = frozenset()

    @staticmethod
    def of(configs: Iterable[ModelConfig], without_folder: Set[str] = frozenset()) -> Proposals:
        """Return the proposals for these models; only ``opcost profile`` takes those without a folder."""
        found = list(configs)
        of_profile = {
            one.name: WantedModel.of(one)
            for one in found
            if one.name in without_folder or (is_counted(one) and not FILTERED_COUNTS.path(one).exists())
        }
        return Proposals(
            frozenset(one.name for one in found if one.code is not None),
            {name: wanted.words for name, wanted in of_profile.items() if wanted is not None},
            frozenset(name for name, wanted in of_profile.items() if wanted is None),
        )

    def command(self, step: str, names: Sequence[str], *options: str) -> str:
        """Return the command of a step for these models."""
        return command(step, *names, *options, has_code=not self.with_code.isdisjoint(names))

    def measuring(self, names: Sequence[str], *options: str) -> str:
        """Return the command, or several for a shell, that measures the operators of these models.

        Block 2 needs the pickle of block 1, which a profile does not write.
        """
        blocks = [name for name in names if name not in self.profiled]
        unfiltered = [name for name in blocks if name in self.unfiltered]
        steps = [self.command("filter", unfiltered)] if unfiltered else []
        steps += [self.command("measure", blocks, *options)] if blocks else []
        return " && ".join([*steps, *self.profiling(names, *options)])

    def profiling(self, names: Iterable[str], *options: str) -> list[str]:
        """Return the commands that profile those of these models which are prepared for nothing else.

        ``options`` are those of ``opcost measure`` for the same measurements.
        """
        words = [option for option in options if option not in NOT_OF_PROFILE]
        words += [] if any(option in DURATIONS for option in options) else ["--seconds", f"{FULL_LOOP_S:g}"]
        return [command("profile", *self.profiled[name], *words) for name in names if name in self.profiled]


NO_PROPOSALS = Proposals()
