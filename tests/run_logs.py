"""The logs of scripts whose ``main`` runs in the tests' process: a process of its own leaves them to its end."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ended_logs() -> Iterator[None]:
    """End the logs that began meanwhile, or before in a fixture of a whole module; log as much as Python does."""
    root = logging.getLogger()
    try:
        yield
    finally:
        for handler in list(root.handlers):
            if type(handler).__module__ == "opcost.command.run":
                root.removeHandler(handler)
                handler.close()
                root.setLevel(logging.WARNING)
