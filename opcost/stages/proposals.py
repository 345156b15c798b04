"""Commands that messages propose for models that need more than their name: users' code, and models of a profile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from opcost.invocation import command
from opcost.measuring.protocol import FULL_LOOP_S
from opcost.running.request import FILTERED_COUNTS, is_counted
from opcost.stages.wanted_model import WantedModel
from opcost.storage.configs import ModelConfig

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
