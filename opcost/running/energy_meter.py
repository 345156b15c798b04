"""``EnergyMeter``: the energy of a user's own code, in windows that may be nested, labelled and repeated.

This module imports neither torch nor pandas. Where torch is already imported, the GPU's work is awaited at both ends of
a window, because kernels run on after the call that launched them.
"""

from __future__ import annotations

import atexit
import functools
import inspect
import os
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, aclosing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from opcost.columns import by_column
from opcost.errors import UserError
from opcost.estimates import NORMAL_QUANTILE
from opcost.html_text import paragraph
from opcost.metering.window_energy import EnergySource, WindowResult, result_of, window_rows, windows_html
from opcost.meters.energy import names_of, open_sources, synchronise
from opcost.meters.host import SystemClock
from opcost.power.ports import Clock, ClockReading
from opcost.running import marks
from opcost.storage.data_files import append_windows, check_output

if TYPE_CHECKING:
    from pandas import DataFrame

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")

SETTLED_AFTER_S = 60.0
"""Age from which windows are settled without a look at their results, so that their readings need not be kept."""

FIRST_S = 0.25
"""Length of the first window of a repetition: a dozen samples of 20 ms."""

GROWTH = 2.0
"""Factor from one window to the next. The relative error is inversely proportional to the length, or falls faster."""


SHOWN = 20
"""The most windows in a table."""


class MeteredWindow:
    """A window from ``EnergyMeter.window`` or ``start``; ``result`` is known once it has ended.

    The first look at ``result`` waits for the meters' last readings, some 0.1 s, so that the metered code is not held
    up at the end of each window.
    """

    def __init__(self, meter: EnergyMeter, label: str, begin: ClockReading) -> None:
        self.label = label
        self.thread = threading.get_ident()
        self.repeats = 1
        self.begin = begin
        self.end: ClockReading | None = None
        self.exception: str | None = None
        self._meter = meter
        self._result: WindowResult | None = None
        self._settling = threading.Lock()

    @property
    def result(self) -> WindowResult:
        """The cost of the window. Raises UserError: it has not ended."""
        with self._settling:
            if self._result is None:
                if self.end is None:
                    raise UserError(f"EnergyMeter: the window {self.label!r} has not ended")
                meter = self._meter
                result = result_of(meter._sources or (), self.label, self.begin, self.end, meter._above_idle)
                self._result = replace(result, repeats=self.repeats, exception=self.exception)
            return self._result

    @property
    def duration_s(self) -> float:
        return self.result.duration_s

    @property
    def energy_j(self) -> float | None:
        return self.result.energy_j

    def __str__(self) -> str:
        return str(self.result) if self.end is not None else f"{self.label or 'window'}: not ended"

    def __repr__(self) -> str:
        return f"<MeteredWindow {self}>"

    def _repr_html_(self) -> str:
        return paragraph(str(self)) if self.end is None else windows_html([self.result])


class EnergyMeter:
    """Meters the energy of a program's own code on GPUs and CPUs.

    As a context it meters its body. As a decorator it meters each call. ``window`` and ``start``/``stop`` meter parts.
    ``stop`` ends a window of its own thread; tasks of one thread use ``window``.

    Args:
        devices: such as ``["cuda:0", "cpu", "dram"]``, a GPU also by its number; None for each visible GPU, and the CPU
            where it has a meter.
        output: a ``.csv`` or ``.jsonl`` file, to which all windows are appended at the end, also after an exception.
        synchronise: whether the GPU's work is awaited at both ends of a window.
        above_idle: whether results have the energy above idle, too: that without the power before the meter was opened,
            which is known if the GPU was idle then.

    Raises UserError: there is no such device, or the output cannot be written.
    """

    def __init__(
        self,
        devices: str | int | Sequence[str | int] | None = None,
        output: str | Path | None = None,
        synchronise: bool = True,
        above_idle: bool = False,
    ) -> None:
        self._names = None if devices is None else names_of(devices)
        self._output = None if output is None else Path(output)
        self._synchronises, self._above_idle = synchronise, above_idle
        self._clock: Clock = SystemClock()
        self._sources: Sequence[EnergySource] | None = None
        self._windows: list[MeteredWindow] = []
        self._open: list[MeteredWindow] = []
        self._started: list[MeteredWindow] = []
        self._contexts: list[MeteredWindow] = []
        self._lock = threading.RLock()
        self._settled = 0
        self._whole: MeteredWindow | None = None
        self._segment: MeteredWindow | None = None
        self._written = 0
        self._process = os.getpid()
        if self._output is not None:
            check_output(self._output)

    def __enter__(self) -> EnergyMeter:
        self._contexts.append(self._begin(""))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        own = [window for window in self._contexts if window.thread == threading.get_ident()]
        self._whole = (own or self._contexts)[-1]
        self._contexts.remove(self._whole)
        if self._contexts:
            self._end(self._whole, kind)
        else:
            self._close(kind)

    def __str__(self) -> str:
        return str(self.result) if self._last is not None else "no window has ended"

    def __repr__(self) -> str:
        return f"<EnergyMeter {self}>"

    def _repr_html_(self) -> str:
        left = len(self._windows) - SHOWN
        note = f"The last {SHOWN} of {SHOWN + left} windows; to_frame() has all."
        shown = [window.result for window in self._windows[-SHOWN:]]
        return (windows_html(shown) if shown else paragraph(str(self))) + (paragraph(note) if left > 0 else "")

    def to_frame(self) -> DataFrame:
        """Return all windows that have ended as a data frame, a row for each device."""
        import pandas

        frame: DataFrame = pandas.DataFrame([by_column(row) for one in self.results for row in window_rows(one)])
        return frame

    def __call__(self, function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
        """Return a function that is metered at each call, in windows with its name.

        A coroutine or generator is metered from its first step to its end, with what others do between its steps.
        """
        name = str(getattr(getattr(function, "func", function), "__qualname__", type(function).__qualname__))

        @functools.wraps(function)
        def metered(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Returned:
            with self.window(name):
                return function(*args, **kwargs)

        # The kinds of functions differ in what a call returns, which a type cannot say.
        called: Any = function

        @functools.wraps(function)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            with self.window(name):
                return await called(*args, **kwargs)

        @functools.wraps(function)
        def generated(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            with self.window(name):
                return (yield from called(*args, **kwargs))

        @functools.wraps(function)
        async def generated_later(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
            with self.window(name):
                async with aclosing(called(*args, **kwargs)) as steps:
                    step = steps.__anext__()
                    while True:
                        try:
                            item = await step
                        except StopAsyncIteration:
                            return
                        try:
                            step = steps.asend((yield item))
                        except GeneratorExit:
                            raise
                        except BaseException as error:
                            step = steps.athrow(error)

        kinds = (
            (inspect.iscoroutinefunction, awaited),
            (inspect.isasyncgenfunction, generated_later),
            (inspect.isgeneratorfunction, generated),
        )
        looked_at = function, getattr(function, "__func__", None), type(function).__call__
        found = next((wrapper for is_kind, wrapper in kinds if any(map(is_kind, looked_at))), metered)
        return cast("Callable[Parameters, Returned]", found)

    @property
    def _last(self) -> MeteredWindow | None:
        if self._whole is not None and self._whole.end is not None and not self._contexts:
            return self._whole
        return self._windows[-1] if self._windows else None

    @property
    def result(self) -> WindowResult:
        """The result of the body of the context, else of the last window. Raises UserError: no window has ended."""
        if self._last is None:
            raise UserError("EnergyMeter: no window has ended")
        return self._last.result

    @property
    def results(self) -> list[WindowResult]:
        return [window.result for window in self._windows]

    def start(self, label: str = "") -> MeteredWindow:
        """Begin a window, which ``stop`` ends in the same thread."""
        window = self._begin(label)
        self._started.append(window)
        return window

    def stop(self) -> MeteredWindow:
        """End the window that ``start`` has begun last in this thread. Raises UserError: none is open."""
        with self._lock:
            self._started = [window for window in self._started if window.end is None]
            own = [window for window in self._started if window.thread == threading.get_ident()]
            if not own:
                others = "; other threads have open windows: let `with meter.window():` begin and end each"
                raise UserError(f"EnergyMeter: stop() without start(){others if self._started else ''}")
            self._started.remove(own[-1])
        return self._end(own[-1])

    def _begin(self, label: str) -> MeteredWindow:
        with self._lock:
            if self._sources is None:
                self._sources = open_sources(self._names)
                atexit.register(self.close)
            sources = self._sources
        self._synchronise()
        for source in sources:
            source.edge()
        window = MeteredWindow(self, label, self._clock.read())
        self._open.append(window)
        return window

    @contextmanager
    def window(self, label: str = "") -> Iterator[MeteredWindow]:
        """Meter the body of a context; it may be nested, and in several threads."""
        window = self._begin(label)
        try:
            yield window
        except BaseException as error:
            # A generator that is not used up to its end is closed by this exception.
            self._end(window, None if isinstance(error, GeneratorExit) else type(error))
            raise
        self._end(window)

    def mark(self, label: str) -> None:
        """End the window of the mark before, if there is one, and begin one with this label, up to the next mark."""
        if self._segment is not None and self._segment.end is None:
            self._end(self._segment)
        self._segment = self._begin(label)
        marks.mark(label)

    def measure(
        self,
        function: Callable[[], object],
        relative_error: float = 0.02,
        longest_s: float = 60.0,
        label: str | None = None,
    ) -> WindowResult:
        """Run code again and again until its energy is known within a relative error (95 % interval).

        It runs once before, then in longer and longer windows up to ``longest_s``. ``energy_per_repeat_j`` and
        ``time_per_repeat_s`` of the result are those of one run.
        """
        name = getattr(function, "__qualname__", "") if label is None else label
        function()
        length_s = min(FIRST_S, longest_s)
        while True:
            window, end_s = self._begin(name), time.perf_counter() + length_s
            window.repeats = 0
            try:
                while not window.repeats or time.perf_counter() < end_s:
                    function()
                    window.repeats += 1
                    if window.repeats & (window.repeats - 1) == 0:
                        # Launches may be far ahead of the GPU: looked at ever more rarely, it costs nothing.
                        self._synchronise()
            except BaseException as error:
                window.repeats = max(window.repeats, 1)
                self._end(window, type(error))
                raise
            result = self._end(window).result
            energy = result.energy
            if energy is not None and NORMAL_QUANTILE * energy.standard_error <= relative_error * energy.value:
                return result
            has_readings = all(device.coverage_ratio > 0 for device in result.devices)
            if not has_readings or length_s >= longest_s:
                return result
            length_s = min(GROWTH * max(length_s, result.duration_s), longest_s)

    def close(self) -> None:
        """End the open windows, write the output, and end the meters. A later window opens them again."""
        self._close(None)

    def _close(self, kind: type[BaseException] | None) -> None:
        if os.getpid() != self._process:
            # The meters of a forked process are those of its parent, which writes the output.
            return
        with ExitStack() as stack:
            stack.callback(self._close_sources)
            while self._open:
                self._end(self._open[-1], kind)

    def _close_sources(self) -> None:
        sources = self._sources
        if sources is None:
            # None were opened, or another thread has closed them meanwhile.
            return
        windows, self._written = self._windows[self._written :], len(self._windows)
        try:
            results = [window.result for window in windows]
            if self._output is not None:
                append_windows(self._output, [row for result in results for row in window_rows(result)])
        finally:
            for source in sources:
                source.close()
            self._sources = None
            atexit.unregister(self.close)

    def _end(self, window: MeteredWindow, kind: type[BaseException] | None = None) -> MeteredWindow:
        """End a window; after an exception, too, of which a CUDA error may keep the GPU from being awaited."""
        if window.end is not None:
            # ``close`` has ended it meanwhile.
            return window
        try:
            self._synchronise()
        except RuntimeError:
            if kind is None:
                raise
        finally:
            window.end = self._clock.read()
            window.exception = None if kind is None else kind.__name__
            for source in self._sources or ():
                source.edge()
            with self._lock:
                if window in self._open:
                    self._open.remove(window)
                self._windows.append(window)
        with self._lock:
            self._settle(window.end.epoch_s - SETTLED_AFTER_S)
        return window

    def _settle(self, before_s: float) -> None:
        """Calculate windows that ended before a moment, and drop readings that none needs any more."""
        while self._settled < len(self._windows):
            window = self._windows[self._settled]
            if window.end is None or window.end.epoch_s > before_s:
                break
            _ = window.result
            self._settled += 1
        else:
            return
        needed_s = min(window.begin.epoch_s for window in (*self._open, *self._windows[self._settled :]))
        for source in self._sources or ():
            source.forget_before(min(needed_s, before_s))

    def _synchronise(self) -> None:
        if self._synchronises:
            synchronise([source.device for source in self._sources or ()])
