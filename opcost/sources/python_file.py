"""A user's function as a source of models (``port.ModelSource``): ``net.py:build``.

The function returns a model, or a model and its example inputs, as ``ReadyModel.of`` reads them.

Two files may have the same name, and so may the modules beside them. Each file is imported as in a program of
its own: the modules that it imported from its folder leave ``sys.modules`` when another file's turn comes, and come
back with it. Exceptions are shown with the user's own frames.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import itertools
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, TextIO, cast
from unittest.mock import patch

import torch
from torch import nn

from opcost.errors import CannotBuildError, CannotMeasureError, DescriptionError, UserError, shortened
from opcost.invocation import pip_install
from opcost.operators.model_names import NOT_THERE, PACKAGE_FILE, UserCode, fingerprint_of
from opcost.operators.tuples import OperatorTuple
from opcost.sources.arguments import arguments_of, seeded
from opcost.sources.port import ListedModel, ModelSource
from opcost.torch_backend.inputs import model_inputs
from opcost.torch_backend.ready_model import ReadyModel, stored_like, tensor_stored_like
from opcost.torch_backend.workload import one_line

SHOWN_FRAMES = 5
"""The most frames of the user's code that an error shows, the innermost."""

CORRECT_MODEL = "correct the model or its inputs"
"""The remedy of an exception in a run."""


class _Lent:
    """A stream that who uses it cannot close."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def close(self) -> None:
        """Close nothing."""


@contextmanager
def lent_stderr() -> Iterator[None]:
    """Let a user's code write to stderr only, which it cannot close; keep ``sys.argv``: commands to copy need it."""
    lent, arguments = cast("TextIO", _Lent(sys.stderr)), list(sys.argv)
    try:
        with redirect_stdout(lent), redirect_stderr(lent):
            yield
    finally:
        sys.argv = arguments


@contextmanager
def own_frames(code: UserCode, remedy: str | None = None) -> Iterator[None]:
    """Convert an exception of the user's code to a ``CannotBuildError`` with the user's own frames, and a remedy.

    Errors of opcost are raised as they are, and so is a lack of memory. ``sys.exit`` is an exception like others, and
    so are those that are no ``Exception``, but interrupts. Output of the code goes to stderr, see ``lent_stderr``.
    """
    try:
        with lent_stderr():
            yield
    except (CannotMeasureError, DescriptionError, UserError, torch.OutOfMemoryError, KeyboardInterrupt):
        raise
    except BaseException as error:
        lines = [f"{code} raised {one_line(error)}"]
        frames = [one for one in traceback.extract_tb(error.__traceback__) if code.is_own(one.filename)]
        for frame in frames[-SHOWN_FRAMES:]:
            lines.append(f"  {frame.filename}:{frame.lineno} in {frame.name}: {shortened(frame.line or '')}")
        own = _remedy_of_import(code, error) if isinstance(error, ImportError) else None
        raise CannotBuildError("\n".join(lines), own or remedy) from error


def _remedy_of_import(code: UserCode, error: ImportError) -> str | None:
    """Return what to do about an import that has failed; None for the usual remedy, as if a package lacks a part."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    path = Path(code.path)
    if code.module is None and frame.filename == code.path:
        # The file was named by its path, so that it is in no package.
        tree = ast.parse(path.read_bytes(), filename=code.path)
        imports = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level)
        level = next((node.level for node in imports if node.lineno == frame.lineno), 0)
        if level:
            # It is in some packages, at least in those that the import needs.
            inside = itertools.takewhile(lambda folder: (folder / PACKAGE_FILE).exists(), path.parents)
            depth = max(level, len(list(inside)))
            module = ".".join([*(path.parents[up].name for up in reversed(range(depth))), path.stem])
            return f"name the module, {module}:{code.function}, and run the command in {path.parents[depth]}"
    if not isinstance(error, ModuleNotFoundError) or error.name is None or "." in error.name:
        return None
    install = pip_install("PACKAGE")
    return f"correct the import, install the package that has it with {install}, or add its folder to PYTHONPATH"


@dataclass(eq=False)
class _Imported:
    """A user's file that was imported: its module, its own modules by name, and the names that were there before."""

    code: UserCode
    module: ModuleType | None = None
    own: dict[str, ModuleType] = field(default_factory=dict)
    before: frozenset[str] = frozenset()

    def enter(self) -> None:
        """Make the file's modules those that ``import`` finds."""
        self.before = frozenset(sys.modules)
        sys.modules.update(self.own)
        sys.path.insert(0, self.code.root)
        importlib.invalidate_caches()

    def leave(self) -> None:
        """Keep the file's modules, and make them unknown to ``import``."""
        opcost = __name__.partition(".")[0]
        self.own = {
            name: module
            for name, module in sys.modules.items()
            if name not in self.before and name.partition(".")[0] != opcost
            if (file := getattr(module, "__file__", None)) and self.code.is_own(str(Path(file).resolve()))
        }
        for name in self.own:
            del sys.modules[name]
        if self.code.root in sys.path:
            sys.path.remove(self.code.root)


_imported: dict[tuple[str, str | None, str], _Imported] = {}
"""The files that were imported, by path, name of the module, and content."""

_current: list[_Imported] = []
"""The file whose modules ``import`` finds, if any."""


def module_of(code: UserCode) -> ModuleType:
    """Import a user's file, or return the module if it was imported before with the same content.

    Its folder stays on the path, for what it imports when it runs, until another file is imported. Raises
    CannotBuildError: the file has changed since, or a module of the same name as one of its own is another.
    """
    key = (code.path, code.module, code.fingerprint)
    imported = _imported.get(key) or _Imported(code)
    if _current != [imported]:
        for one in _current:
            one.leave()
        _current[:] = [imported]
        imported.enter()
    if imported.module is None:
        try:
            found = fingerprint_of({name: Path(code.root, name).read_bytes() for name in code.files})
        except OSError:
            found = None
        if found != code.fingerprint:
            text = f"{code.path} or a file that it imports has changed meanwhile"
            raise CannotBuildError(text, remedy="run the command again")
        # Python takes compiled files for current if a file of equal size was changed in the same second.
        with patch.object(sys, "dont_write_bytecode", True):
            imported.module = _import(code)
        for name, path in code.modules():
            file = getattr(sys.modules.get(name), "__file__", None)
            if name in sys.modules and (file is None or Path(file).resolve() != Path(path).resolve()):
                text = f"{path}: Python has another module {name}, {file or 'built in'}"
                raise CannotBuildError(text, remedy="rename the file")
        _imported[key] = imported
    return imported.module


def _import(code: UserCode) -> ModuleType:
    if code.module is not None:
        module = importlib.import_module(code.module)
        found = getattr(module, "__file__", None)
        if found is None or Path(found).resolve() != Path(code.path).resolve():
            text = f"{code.module} is another module, {found}"
            raise CannotBuildError(text, remedy="write the path of the file instead")
        return module
    name = Path(code.path).stem
    spec = importlib.util.spec_from_file_location(name, code.path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Under its own name, so that a module which it imports may import it, and its classes have a place.
    other = sys.modules.get(name)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        if other is not None:
            sys.modules[name] = other
    return module


def facts_of(function: str) -> ListedModel:
    """Return what is known of a model without running its code: the name of its function."""
    return ListedModel(function, "", (), False, is_foreign=True)


@dataclass(frozen=True)
class PythonFile(ModelSource):
    """The source of one model: a user's function, which may run."""

    code: UserCode

    def listed(self, model_name: str) -> ListedModel:
        return facts_of(model_name)

    def ready(self, operator: OperatorTuple, device: str) -> ReadyModel:
        """Return the model that the function builds; a CannotBuildError if it fails, or lacks a module or inputs."""
        with seeded(operator), own_frames(self.code):
            # Only the first build imports the file, which may draw numbers, too.
            self._function()
        with seeded(operator), own_frames(self.code):
            result = self._called(arguments_of(operator, device))
            model, examples = result if isinstance(result, tuple) and len(result) == 2 else (result, None)
            if not isinstance(model, nn.Module):
                if inspect.iscoroutine(model):
                    # Else Python warns that it was never awaited.
                    model.close()
                text = f"returned {type(model).__name__} instead of a torch.nn.Module, or of one and its inputs"
                raise CannotBuildError(f"{self.code} {text}")
            # Both may be the user's, and return nothing.
            model.eval()
            model.to(device)
        model = stored_like(model, operator)
        if operator.inputs or operator.keyword_inputs:
            return ReadyModel(model, *model_inputs(operator, device, {}), self.code.fingerprint)
        if examples is None:
            text = f"{self.code} returned no example inputs beside the model"
            raise CannotBuildError(text, remedy="return both, or give an input size")
        # On meta, tensors have shapes only.
        given = replace(ReadyModel.of(model, examples), fingerprint=self.code.fingerprint)
        return given.with_tensors(lambda tensor: tensor_stored_like(tensor.to(device), operator))

    def _called(self, arguments: Mapping[str, Any]) -> Any:
        function = self._function()
        parameters = None
        # Python does not know those of all functions.
        with suppress(TypeError, ValueError):
            parameters = inspect.signature(function)
        if parameters is not None:
            self.code.check_arguments(parameters, arguments)
        return function(**arguments)

    def _function(self) -> Callable[..., Any]:
        module, name = module_of(self.code), self.code.function
        found = getattr(module, name, None)
        if isinstance(found, nn.Module):
            remedy = "name a function that returns it and its inputs"
            raise CannotBuildError(f"{self.code}: {name} is a model and no function", remedy)
        if not callable(found):
            known = ((own, value) for own, value in vars(module).items() if isinstance(value, FunctionType))
            functions = [own for own, value in known if value.__module__ == module.__name__]
            raise self.code.no_function("a value and no function" if hasattr(module, name) else NOT_THERE, functions)
        return found  # type: ignore[no-any-return]


def register_operations(code: UserCode) -> None:
    """Import a user's file, which may register operations of its own (``torch.library``)."""
    with own_frames(code):
        module_of(code)
