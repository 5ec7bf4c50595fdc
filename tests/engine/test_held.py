"""What one run holds: its program's values, and nothing that it shares with other runs."""

from typing import Any

import msgspec
import pytest

from perdure import workflow
from perdure.authoring.context import Info
from perdure.core.codec import JsonCodec
from perdure.core.ids import RunId, StepId
from perdure.engine.runs import held
from perdure.engine.runs.held import held_bytes
from perdure.engine.workflow.machine import WorkflowMachine
from perdure.testing.explorer import VirtualSources

KB = 1000
SOURCES = VirtualSources()


class Packed(msgspec.Struct, gc=False):
    text: str


@workflow(name="held.nothing")
async def nothing() -> None:
    pass


def machine_with(value: Any) -> WorkflowMachine:
    info = Info(RunId("r"), "held.nothing", "", "k", StepId("root"))
    machine = WorkflowMachine(nothing, info, JsonCodec(), SOURCES)
    machine.left = value
    return machine


EMPTY = held_bytes(machine_with([]))


def extra(value: Any) -> int:
    found = held_bytes(machine_with(value))
    assert found is not None
    assert EMPTY is not None
    return found - EMPTY


def test_values_count_with_all_that_they_hold() -> None:
    text = "x" * 100 * KB
    assert 100 * KB < extra([{"key": (text,)}]) < 101 * KB


def test_value_that_is_held_twice_counts_once() -> None:
    text = "x" * 100 * KB
    assert extra([text, text]) < 101 * KB


def test_struct_that_the_collector_does_not_track_counts() -> None:
    assert extra([Packed("x" * 100 * KB)]) > 100 * KB


def test_shared_definitions_and_code_do_not_count() -> None:
    assert extra([nothing, JsonCodec(), held, held_bytes, machine_with("x" * 100 * KB)]) < KB


def test_exception_does_not_bring_the_frames_of_its_traceback() -> None:
    def fail() -> None:
        held_by_frame = "x" * 100 * KB
        raise ValueError(len(held_by_frame))

    with pytest.raises(ValueError, match="100000") as raised:
        fail()
    assert extra([raised.value]) < 2 * KB


def test_run_with_too_many_objects_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = machine_with([[] for _ in range(1000)])
    assert held_bytes(machine) is not None
    monkeypatch.setattr(held, "MOST_OBJECTS", 1000)
    assert held_bytes(machine) is None
