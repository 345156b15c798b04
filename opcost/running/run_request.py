"""A user's request to run models: to count or to measure them."""

from __future__ import annotations

import logging
from argparse import Namespace
from dataclasses import dataclass, replace

from opcost.errors import UserError
from opcost.invocation import command
from opcost.measuring.setting import USUAL, Setting
from opcost.operators.model_names import UserCode
from opcost.progress import warn_left_out
from opcost.running.request import Check, Request, warn_of_done
from opcost.sources.registry import check_config, check_that_code_may_run, grid_mistakes
from opcost.storage.configs import ModelConfig
from opcost.storage.model_counts import COUNTS, has_changed_code


@dataclass(frozen=True)
class RunRequest(Request):
    """A request to run models.

    ``device`` is None for a GPU if there is one, else the CPU; a dry run may have a product's name instead. With
    ``same_board``, rows of other boards do not count as measured. ``setting`` says how operators and models are run and
    metered; the precision is each config's. With ``allow_code`` users' functions that build models may run.
    """

    dry_run: bool = False
    same_board: bool = False
    setting: Setting = USUAL
    allow_code: bool = False

    @staticmethod
    def from_arguments(arguments: Namespace, setting: Setting = USUAL) -> RunRequest:
        own = {key: getattr(arguments, key) for key in ("dry_run", "same_board", "allow_code")}
        return RunRequest(**vars(Request.from_arguments(arguments)), **own, setting=setting)

    def setting_of(self, config: ModelConfig) -> Setting:
        return replace(self.setting, precision=config.precision, code=self.code_of(config))

    def code_of(self, config: ModelConfig) -> UserCode | None:
        return config.code if self.allow_code else None

    @property
    def check(self) -> Check | None:
        """The check of configs whose models are to be run; none in a plan for a product, because it imports torch."""
        if self.is_product:
            return None
        return _checked_by(check_config if self.allow_code or self.dry_run else check_that_code_may_run)

    def open_configs(self, check: Check | None = None) -> list[ModelConfig]:
        """Return the named configs, done or not; all that are not done if none is named.

        A model whose code has changed since it was counted is not done, and a warning says so; as it does if all are.
        """
        configs, opened = self.configs(check), []
        for config in configs:
            has_changed = not self.names and config.done and has_changed_code(config, self.database.model_operators)
            if has_changed:
                text = "%s: its code has changed since it was done; count and measure it again"
                logging.getLogger(__name__).warning(text, config.name)
            if self.names or has_changed or not config.done:
                opened.append(config)
        if not opened:
            warn_of_done(configs)
        return opened

    def open_and_refused(self) -> tuple[list[ModelConfig], list[ModelConfig]]:
        """Return the open configs, and those whose code may not run, which are left out with a warning.

        Raises UserError: a mistake, or code that may not run in a model that is named or where no other one is open.
        """
        if self.names or self.allow_code or self.dry_run:
            return self.open_configs(self.check), []
        configs = self.open_configs(_checked_by(check_config))
        refused = [config for config in configs if config.code is not None]
        allowed = [config for config in configs if config.code is None]
        if refused and not allowed:
            raise UserError(*(line for config in refused for line in check_that_code_may_run(config)))
        if refused:
            names = [config.name for config in refused]
            counting = command(COUNTS.made_by, *names, has_code=True)
            warn_left_out(f"{', '.join(names)}: Python code of yours; if you trust it, run {counting}")
        return allowed, refused


def _checked_by(check: Check) -> Check:
    return lambda config: check(config) if config.grid is None else [*grid_mistakes(config.grid, config.where)]
