"""A user's request to read models and rows, or to run models: names, folders and tables; and the models' counts."""

from __future__ import annotations

import logging
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

from opcost.errors import CannotBuildError, UserError
from opcost.invocation import command
from opcost.measuring.conditions import STATE, is_device_name
from opcost.measuring.setting import USUAL, Setting
from opcost.operators.counts import OperatorCounts, select
from opcost.operators.model_names import UserCode
from opcost.progress import warn_left_out
from opcost.sources.registry import check_config, check_that_code_may_run, grid_mistakes
from opcost.storage.code_files import check_function
from opcost.storage.configs import ModelConfig, ModelFolders, load_whitelist
from opcost.storage.database import Database
from opcost.storage.files import user_folders
from opcost.storage.model_counts import COUNTS, FILTERED_COUNTS, CountsFile, has_changed_code, is_counted
from opcost.units import number_of, some_of

Check: TypeAlias = Callable[[ModelConfig], list[str]]


@dataclass(frozen=True)
class Request:
    """The models and the tables that a stage reads.

    ``device`` is a type or a product's name in rows, None for any. ``operators`` are names that replace those of the
    whitelist's file; then the pickles of block 1 are not read.
    """

    names: tuple[str, ...]
    folders: ModelFolders
    database: Database
    device: str | None = None
    operators: tuple[str, ...] | None = None

    @staticmethod
    def from_arguments(arguments: Namespace) -> Request:
        folders = user_folders(arguments.home, arguments.measurements, arguments.database)
        return Request(tuple(arguments.names), ModelFolders.of(folders), Database.of(folders), arguments.device)

    @property
    def is_product(self) -> bool:
        """Whether the device is named by its product, such as NVIDIA H200."""
        return self.device is not None and not is_device_name(self.device)

    def configs(self, check: Check | None = None) -> list[ModelConfig]:
        """Return the named configs, done or not; all if none is named.

        ``check`` returns further mistakes of a config. Raises UserError: with a line for each mistake.
        """
        return self.folders.configs(self.names, check)

    def models(self, check: Check | None = None) -> list[ModelConfig]:
        """Return the named models; a warning names grids. Raises UserError: see ``configs``, or all are grids."""
        configs = self.configs(check)
        models = [config for config in configs if config.grid is None]
        return without_grids(configs, is_strict=True) if self.names or not models else models

    def is_named(self, config: ModelConfig) -> bool:
        """Return whether the user named this model or its folder, not only by a glob."""
        return any(self.folders.is_named(config, name) for name in self.names)

    def whitelist(self) -> tuple[str, ...]:
        return load_whitelist(self.folders.whitelist) if self.operators is None else self.operators

    def whitelist_if_any(self) -> tuple[str, ...] | None:
        return self.whitelist() if self.operators is not None or self.folders.whitelist.exists() else None


@dataclass(frozen=True)
class RunRequest(Request):
    """A request to run models.

    ``device`` is None for a GPU if there is one, else the CPU; a dry run may have a product's name instead. With
    ``same_board``, rows of other boards do not count as measured. ``setting`` says how operators and models are run and
    metered; the precision is each config's. ``in_state``: on GPUs operators are measured in the states of their models,
    too. With ``allow_code`` users' functions that build models may run. ``gpus`` are the numbers of several GPUs of
    this host, ``("all",)`` for all; then no device is named. ``scheduler`` is the address or the file of a Dask
    scheduler, None for none; ``products`` are parts of its devices' names, none for all. ``wait``: for a device that
    another campaign holds.
    """

    dry_run: bool = False
    same_board: bool = False
    setting: Setting = USUAL
    in_state: bool = False
    allow_code: bool = False
    gpus: tuple[str, ...] = ()
    scheduler: str | Path | None = None
    products: tuple[str, ...] = ()
    wait: bool = False

    @staticmethod
    def from_arguments(arguments: Namespace) -> RunRequest:
        own = {key: getattr(arguments, key) for key in ("dry_run", "same_board", "allow_code", "gpus", "wait")}
        own["in_state"] = arguments.cache == STATE
        setting = Setting(execution=arguments.execution, meter=arguments.meter)
        request = RunRequest(**vars(Request.from_arguments(arguments)), **own, setting=setting)
        scheduler, device = arguments.scheduler or arguments.scheduler_file, arguments.device
        if device is not None and (request.gpus or (scheduler is None and "," in device)):
            others = "--gpus names the devices" if request.gpus else "several products need --scheduler"
            raise UserError(f"--device {device}: {others}; use one of both")
        if scheduler is None:
            return request
        products = () if device is None else tuple(name.strip() for name in device.split(","))
        if any(map(is_device_name, products)):
            raise UserError(f"--device {device}: a scheduler's workers are chosen by products, such as H100,H200")
        return replace(request, device=None, scheduler=scheduler, products=products)

    @property
    def is_here(self) -> bool:
        """Whether devices of this host measure."""
        return self.scheduler is None

    def setting_of(self, config: ModelConfig) -> Setting:
        return replace(self.setting, precision=config.precision, attention=config.attention, code=self.code_of(config))

    def code_of(self, config: ModelConfig) -> UserCode | None:
        return config.code if self.allow_code else None

    def find_typos(self) -> None:
        """Read the named configs, and the texts of their code that may run, before torch is imported.

        Raises UserError: with a line for each mistake in a config, or for each wrong name of a function or argument.
        """
        lines = []
        for config in self.configs():
            code = self.code_of(config)
            try:
                if code is not None:
                    check_function(code, dict(config.arguments))
            except CannotBuildError as error:
                lines.append(f"{config.where(error.key or 'model_name')}: {error}")
        if lines:
            raise UserError(*dict.fromkeys(lines))

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


def warn_of_done(configs: Sequence[ModelConfig], others: str = "") -> None:
    """Warn that nothing is left to do with these models; ``others`` says so of the rest."""
    are = f"{number_of(len(configs), 'model')} {'is' if len(configs) == 1 else 'are'} done"
    text = "nothing to do: %s (%s)%s; name a model to take it again; its rows are reused until you delete them"
    logging.getLogger(__name__).warning(text, are, some_of([config.name for config in configs]), others)


def without_grids(configs: Sequence[ModelConfig], is_strict: bool) -> list[ModelConfig]:
    """Return the configs of models; a warning names the grids. Raises UserError: all are grids, and ``is_strict``."""
    models = [config for config in configs if config.grid is None]
    names = [config.name for config in configs if config.grid is not None]
    if names:
        are = "is a grid of operators" if len(names) == 1 else "are grids of operators"
        text = f"{', '.join(names)} {are} and no model; {command('measure', *names)} measures its tuples"
        if is_strict and not models:
            raise UserError(text)
        warn_left_out(text)
    return models


def counted(
    request: Request,
    configs: Sequence[ModelConfig],
    kind: CountsFile,
    shipped: Mapping[str, OperatorCounts] = MappingProxyType({}),
    reasons: dict[str, str] | None = None,
) -> list[tuple[ModelConfig, OperatorCounts]]:
    """Return the configs with their counts: ``shipped`` ones replace a pickle, see ``CountsFile.read``.

    Of the models that a glob matches, those with missing or wrong counts are left out with a warning; if none is named,
    those with wrong counts. If none is left because those with counts are done, a warning says so. A model that is
    named must have counts; with ``reasons`` it is left out, and these get why by its name, unless no model is left.

    Raises UserError: with one line for each model whose counts are missing or wrong.
    """
    missing = [
        config
        for config in configs
        if not (config.name in shipped or kind.path(config).exists() or request.is_named(config))
    ]
    found: list[tuple[ModelConfig, OperatorCounts]] = []
    mistakes: list[tuple[ModelConfig, UserError]] = []
    for config in configs:
        if config not in missing:
            try:
                found.append((config, shipped.get(config.name) or kind.read(config)))
            except UserError as error:
                mistakes.append((config, error))
    if found and reasons is not None:
        reasons |= {config.name: str(error) for config, error in mistakes if request.is_named(config)}
        mistakes = [(config, error) for config, error in mistakes if config.name not in reasons]
    leave_out(request, mistakes, is_error=not found)
    # Without a name, the command leaves users' code out.
    of_users = [config.code is not None for config in missing]
    has_code = any(of_users) if request.names else all(of_users)
    commands = kind.commands(request.names, any(map(is_counted, configs)), bool(missing) and has_code)
    if configs and not found:
        done = [config for config in request.configs() if config.done and kind.path(config).exists()]
        if done and not request.names:
            warn_of_done(done, f", and no other is {kind.state}")
            return []
        raise UserError(f"{request.folders.own}: no model is {kind.state}; run {commands}")
    if missing:
        # Without a name, the models that are counted are meant.
        level = logging.WARNING if request.names else logging.INFO
        names = some_of([config.name for config in missing])
        text = "%s not %s and left out: %s; run %s"
        are = f"{number_of(len(missing), 'model')} {'is' if len(missing) == 1 else 'are'}"
        logging.getLogger(__name__).log(level, text, are, kind.state, names, commands)
    return found


def leave_out(request: Request, mistakes: Sequence[tuple[ModelConfig, UserError]], is_error: bool) -> None:
    """Warn of models that are left out for a mistake. Raises UserError: one of them is named, or ``is_error``."""
    lines = [line for _, error in mistakes for line in error.lines]
    if lines and (is_error or any(request.is_named(config) for config, _ in mistakes)):
        raise UserError(*lines)
    for line in lines:
        warn_left_out(line)


def selected(
    request: Request, configs: Sequence[ModelConfig], shipped: Mapping[str, OperatorCounts] = MappingProxyType({})
) -> list[tuple[ModelConfig, OperatorCounts]]:
    """Return the configs with their filtered counts, if these are up to date with the whitelist and not empty.

    ``shipped`` has those of models without a pickle, by name. If the request names operators itself, the counts of
    block 0 are filtered by them. Other models are left out or are an error, as those without counts; see ``counted``.

    Raises UserError: with one line for each mistake, if a model with one is named or no model is left.
    """
    if request.operators is not None:
        models = counted(request, configs, COUNTS)
        return [(config, select(counts, request.operators).kept) for config, counts in models]
    models = counted(request, configs, FILTERED_COUNTS, shipped)
    whitelist = request.whitelist() if any(is_counted(config) for config, _ in models) else ()
    found, mistakes = [], []
    for config, kept in models:
        path, remedy = FILTERED_COUNTS.path(config), f"run {command('filter', config.name)}"
        if not kept.counts:
            mistakes.append((config, UserError(f"{path}: the whitelist keeps no operator; fix it and {remedy}")))
        elif is_counted(config) and select(COUNTS.read(config), whitelist).kept != kept:
            text = f"{path}: the whitelist or {COUNTS.file_name} has changed since; {remedy}"
            mistakes.append((config, UserError(text)))
        else:
            found.append((config, kept))
    leave_out(request, mistakes, is_error=not found)
    return found
