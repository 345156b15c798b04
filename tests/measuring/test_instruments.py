"""An observer of a measurement is called at the right moments, in order, however it ends."""

import pytest
from simulated_machine import Load, SimulatedMachine

from opcost.measuring.flags import Flag
from opcost.measuring.instruments import NOTHING, Finding, Instruments, Observer, ProcessWatch
from opcost.measuring.procedure import measure
from opcost.measuring.protocol import MeasurementProtocol
from opcost.power.trace import PowerTrace

SHORT = MeasurementProtocol(0.2, 0.5)
PRECISE = MeasurementProtocol(0.2, 30.0, relative_error=0.01)


class Recorded(Observer):
    """Appends its events to a list that it shares with others."""

    def __init__(self, events: list[str], name: str = "", finding: Finding = NOTHING) -> None:
        self._events = events
        self._name = name
        self._finding = finding

    def before_start(self) -> None:
        self._events.append(f"before start{self._name}")

    def during(self) -> None:
        self._events.append(f"during{self._name}")

    def after_finish(self) -> Finding:
        self._events.append(f"after finish{self._name}")
        return self._finding


class RecordedMeter:
    """The meter of a machine, which appends to the same list."""

    def __init__(self, machine: SimulatedMachine, events: list[str]) -> None:
        self._machine = machine
        self._events = events

    def start(self) -> None:
        self._events.append("start")
        self._machine.start()

    def log(self) -> PowerTrace:
        return self._machine.log()

    def stop(self) -> PowerTrace:
        self._events.append("stop")
        return self._machine.stop()


def recorded(machine: SimulatedMachine, events: list[str], *observers: Observer) -> Instruments:
    return Instruments(RecordedMeter(machine, events), machine, observers=observers)


def without_repetitions(events: list[str]) -> list[str]:
    return [word for word, before in zip(events, ["", *events], strict=False) if word != before]


@pytest.mark.parametrize("protocol", [SHORT, PRECISE])
def test_observers_act_before_the_meter_starts_in_the_loop_and_before_the_meter_stops(
    protocol: MeasurementProtocol,
) -> None:
    events: list[str] = []
    machine = SimulatedMachine()
    for _ in range(2):
        measure(machine, recorded(machine, events, Recorded(events)), protocol)
    assert without_repetitions(events) == ["before start", "start", "during", "after finish", "stop"] * 2


def test_observers_act_in_their_order() -> None:
    events: list[str] = []
    machine = SimulatedMachine()
    measure(machine, recorded(machine, events, Recorded(events, " 1"), Recorded(events, " 2")), SHORT)
    assert [word for word in events if word.startswith("before")] == ["before start 1", "before start 2"]
    assert events[-3:] == ["after finish 1", "after finish 2", "stop"]


def test_an_overhead_is_accompanied_as_a_loop_of_its_own() -> None:
    events: list[str] = []
    machine = SimulatedMachine(Load(time_s=0.003))
    workload = machine.workload(machine.load)
    workload.overhead = machine.workload(Load(time_s=0.001))
    measure(workload, recorded(machine, events, Recorded(events)), SHORT)
    assert without_repetitions(events) == ["before start", "start", "during", "after finish", "stop"] * 2


def test_who_looks_on_knows_of_the_first_call_and_of_each_chunk() -> None:
    """So that one that hangs is noticed, however long a loop is."""
    events: list[str] = []
    machine = SimulatedMachine(Load(time_s=0.3))
    measurement = measure(machine, recorded(machine, events, Recorded(events)), SHORT)
    assert events.count("during") >= 1 + measurement.iterations


@pytest.mark.parametrize("error", [RuntimeError("CUDA error"), KeyboardInterrupt()], ids=repr)
def test_observers_act_when_a_loop_fails(error: BaseException) -> None:
    events: list[str] = []
    machine = SimulatedMachine()

    def fail(*_: object, **__: object) -> None:
        raise error

    machine.run_load = fail  # type: ignore[method-assign]
    with pytest.raises(type(error)):
        measure(machine, recorded(machine, events, Recorded(events)), SHORT)
    assert events == ["before start", "start", "after finish", "stop"]


def test_what_observers_found_goes_into_the_measurement() -> None:
    machine = SimulatedMachine()
    watch = ProcessWatch(lambda: "another process took 40 %")
    other = Recorded([], finding=Finding((Flag.OTHER_PROCESS, Flag.RAN_WARM), "it is hot"))
    measurement = measure(machine, Instruments(machine, machine, observers=(watch, other)), SHORT)
    assert measurement.flags == (Flag.OTHER_PROCESS, Flag.RAN_WARM)
    assert measurement.notes == "another process took 40 %; it is hot"


def test_what_was_there_before_a_build_is_no_disturbance_of_it() -> None:
    remarks = ["before", "", "meanwhile"]
    watch = ProcessWatch(lambda: remarks.pop(0))
    watch.before_build()
    assert watch.after_finish() == NOTHING
    assert watch.after_finish() == Finding((Flag.OTHER_PROCESS,), "meanwhile")


def test_a_meter_is_stopped_though_an_observer_fails() -> None:
    class Failing(Observer):
        def after_finish(self) -> Finding:
            raise OSError("no such process")

    machine, events = SimulatedMachine(Load(time_s=0.01)), list[str]()
    with pytest.raises(OSError, match="no such process"):
        measure(machine, recorded(machine, events, Failing()), SHORT)
    assert events[-1] == "stop"
