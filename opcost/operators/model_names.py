"""Names of models as configs and commands write them, and users' code that builds models."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from opcost.errors import CannotBuildError, suggestion
from opcost.units import some_of

TORCHVISION = "torchvision"
TRANSFORMERS = "transformers"
FILE = "file"
OBJECT = "object"
"""The source of models that are objects of a Python program."""
GRID = "grid"
"""The source of grids of operator tuples, which are no models."""
SOURCES_OF_ANY_CASE = (TRANSFORMERS, FILE, GRID)
"""Sources whose models are classes or functions of any name; those of the others have lower-case names."""

SOURCES_OF_TEXT = (TRANSFORMERS,)
"""Sources whose models of two-dimensional inputs take batches of texts, each of token ids."""


@dataclass(frozen=True)
class ModelName:
    """A model's name and source; ``code`` is the file or module of a user's function, whose source is ``file``."""

    source: str
    name: str
    code: str | None = None

    @staticmethod
    def of(text: str) -> ModelName:
        """Return what a text means: ``resnet18``, ``timm:resnet18``, ``net.py:build`` or ``package.module:build``."""
        before, colon, name = text.rpartition(":")
        if not colon:
            return ModelName(TORCHVISION, name)
        if "." in before or "/" in before:
            return ModelName(FILE, name, before)
        return ModelName(before, name)

    @property
    def is_file(self) -> bool:
        return self.code is not None

    @property
    def has_inputs(self) -> bool:
        """Whether the model comes with inputs, so that a config need not describe them: a function's, or an object."""
        return self.is_file or self.source == OBJECT


CODE, FINGERPRINT = "code", "sha256"
"""The parameters of a whole model's tuple that identify the user's code: its name, and a hash of its text. The hash is
a parameter of operations that the model runs and that are registered from Python, too."""

PACKAGE_FOLDERS = ("site-packages", "dist-packages")
"""Folders of installed packages: a package there is code of its own, not of the others beside it."""

SUFFIX, PACKAGE_FILE = ".py", "__init__.py"

NOT_THERE = "not there"


@dataclass(frozen=True)
class UserCode:
    """A function in a Python file.

    ``root`` is the folder from which it imports its own modules, ``module`` its name there if the user named no file.
    ``given`` is as the user wrote it. ``files`` are the file and the modules of the root that it imports, relative to
    it.
    """

    path: str
    root: str
    function: str
    given: str
    files: tuple[str, ...]
    fingerprint: str
    module: str | None = None

    def __str__(self) -> str:
        return f"{self.given}:{self.function}"

    @property
    def parameters(self) -> tuple[tuple[str, str], ...]:
        """The parameters that identify the code in a whole model's tuple. They do not depend on the folder."""
        return (CODE, self.module or self.path.rpartition("/")[2]), (FINGERPRINT, self.fingerprint)

    @property
    def named_files(self) -> str:
        return self.path.rpartition("/")[2] + (" or a file that it imports" if len(self.files) > 1 else "")

    def no_function(self, text: str, functions: Collection[str]) -> CannotBuildError:
        """Return the error of a file with these functions that has none of the name."""
        others = f"the file has {some_of(list(functions)) or 'no function'}"
        return CannotBuildError(f"{self}: {self.function} is {text}", suggestion(self.function, functions, others))

    def check_arguments(self, signature: inspect.Signature, arguments: Collection[str], may_lack: bool = False) -> None:
        """Raise a ``CannotBuildError`` if the function lacks one of the arguments, or needs others."""
        try:
            (signature.bind_partial if may_lack else signature.bind)(**dict.fromkeys(arguments))
        except TypeError as error:
            parameters = signature.parameters
            remedy = f"its arguments are {', '.join(map(str, parameters.values())) or 'none'}"
            unknown = next((one for one in arguments if one not in parameters), "")
            raise CannotBuildError(f"{self}: {error}", suggestion(unknown, parameters, remedy), "arguments") from error

    def is_own(self, path: str) -> bool:
        return is_own(path, self.root, self.path)

    def modules(self) -> Iterator[tuple[str, str]]:
        for file in self.files:
            path = f"{self.root}/{file}"
            if path != self.path:
                yield file.removesuffix(PACKAGE_FILE).removesuffix(SUFFIX).strip("/").replace("/", "."), path


def is_own(path: str, root: str, main: str) -> bool:
    """Return whether a file is of the user's code at ``main``: below ``root``, and in no other installed package."""
    if not path.startswith(f"{root}/"):
        return False
    parts = path.removeprefix(f"{root}/").split("/")
    if root.rpartition("/")[2] in PACKAGE_FOLDERS:
        return parts[0] == main.removeprefix(f"{root}/").split("/")[0]
    return not any(name in parts for name in PACKAGE_FOLDERS)


def fingerprint_of(texts: Mapping[str, bytes]) -> str:
    """Return the hash of a user's files, by their paths relative to the root."""
    digest = hashlib.sha256()
    for name, text in sorted(texts.items()):
        digest.update(f"{name}\n{len(text)}\n".encode() + text)
    return digest.hexdigest()[:16]
