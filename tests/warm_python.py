"""Commands in a Python that has imported torch already: without it, importing torch takes four seconds of each command.

A server, one for each process of the tests, imports libraries, and of opcost what parses rows at most. It forks a
child for each command. The child has the command's arguments, folder, environment and streams, and imports opcost from
where the command would. ``run`` stands for ``subprocess.run`` where a test does not depend on when these libraries are
imported, on options of Python, or on signals.
"""

import atexit
import gc
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
import types
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NoReturn

WITHOUT_TORCH = ("pandas", "pydantic", "rich.console", "rich.table", "yaml")
LIBRARIES = ("torch", "torchvision.models", *WITHOUT_TORCH)
"""Most commands import these."""
SHIPPED_ROWS = "parsed_once:parse_shipped"
"""A library for commands that read all that ships: it parses them, and has opcost's storage imported."""


def run(
    command: Sequence[str | Path],
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: int = 240,
    libraries: tuple[str, ...] = LIBRARIES,
) -> subprocess.CompletedProcess[str]:
    """Run this Python with a script, with ``-m`` and a module, or with ``-c`` and a program.

    Args:
        command: the words of a command line.
        cwd: its folder; None for that of the tests.
        env: its environment; None for that of the tests.
        timeout: how long it may take, in s.
        libraries: those that are imported already.

    Raises:
        subprocess.TimeoutExpired: the command did not end within this time, in s.
    """
    python, *arguments = map(str, command)
    assert python == sys.executable
    with tempfile.TemporaryDirectory() as folder:
        streams = [Path(folder, name) for name in ("stdout", "stderr")]
        server = _server(libraries)
        assert server.stdin is not None
        assert server.stdout is not None
        request = {
            "arguments": arguments,
            "folder": str(cwd or Path.cwd()),
            "environment": dict(os.environ if env is None else env),
            "streams": list(map(str, streams)),
            "timeout_s": timeout,
        }
        server.stdin.write(f"{json.dumps(request)}\n")
        server.stdin.flush()
        status = int(server.stdout.readline())
        printed = [stream.read_text(encoding="utf-8") for stream in streams]
    if status == -signal.SIGALRM:
        raise subprocess.TimeoutExpired(command, timeout, *printed)
    return subprocess.CompletedProcess(command, status, *printed)


@cache
def _server(libraries: tuple[str, ...]) -> subprocess.Popen[str]:
    # A fork takes no threads along. Paths of the caller are those of each command.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, __file__, *libraries]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    atexit.register(server.communicate)
    return server


def _serve(libraries: Sequence[str]) -> None:
    paths = sys.path[1:]
    sys.path.insert(1, str(Path(__file__).parents[1]))
    for library in libraries:
        module, _, function = library.partition(":")
        imported = importlib.import_module(module)
        if function:
            getattr(imported, function)()
    gc.freeze()
    for line in sys.stdin:
        child = os.fork()
        if not child:
            become(paths, **json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def become(
    paths: Sequence[str],
    arguments: Sequence[str],
    folder: str,
    environment: Mapping[str, str],
    streams: Sequence[str],
    timeout_s: int,
) -> NoReturn:
    """Run a command as this process."""
    signal.alarm(timeout_s)
    for descriptor, path in enumerate((os.devnull, *streams)):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), descriptor)
    status = 1
    try:
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        _run(arguments, [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path], paths)
        status = 0
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        else:
            status = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        # Without an end of the libraries, which takes half a second.
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            # As in Python's own end.
            if stream is not None and not stream.closed:
                stream.flush()
        os._exit(status)


def _run(arguments: Sequence[str], first: Sequence[str], paths: Sequence[str]) -> None:
    program, *rest = arguments
    if program == "-c":
        code, *rest = rest
        sys.argv, sys.path[:] = ["-c", *rest], ["", *first, *paths]
        sys.modules["__main__"] = main = types.ModuleType("__main__")
        exec(compile(code, "<string>", "exec"), vars(main))
    elif program == "-m":
        module, *rest = rest
        sys.argv, sys.path[:] = [module, *rest], [os.getcwd(), *first, *paths]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[:] = [program, *rest], [os.path.dirname(os.path.abspath(program)), *first, *paths]
        runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    _serve(sys.argv[1:])
