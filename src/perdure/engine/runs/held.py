"""How many bytes a run in memory holds: constants for an estimate, and a measurement of what its program keeps.

The constants are what the process grew by, on CPython 3.11, with 10 to 2,000 runs of 0, 10 and 1,000 steps and of up to
1,000 open promises (`python -m bench memory`).
"""

from contextlib import suppress
from gc import get_referents
from sys import getsizeof
from types import (
    BuiltinFunctionType,
    CodeType,
    FrameType,
    FunctionType,
    MethodType,
    ModuleType,
    TracebackType,
)
from typing import Any

import msgspec

from perdure.authoring.definition import Definition
from perdure.core.codec import JsonCodec
from perdure.core.graph.vertex import Arrow, Lowered, Vertex
from perdure.engine.known_programs import KnownPrograms
from perdure.engine.runs.machine import RunMachine
from perdure.engine.sources import Sources

RUN_BYTES = 9_000
"""A run: machine, journal state, coroutine, context."""

ENTRY_BYTES = 110
"""What one entry adds to the journal's state. Of short journals it is 160, of long ones 90."""

PROMISE_BYTES = 800
"""An open promise with its call, its fiber's reference and its waiter."""

MEASURE_BYTES = 1_000_000
"""Payload bytes that a run takes in before what it holds of them is measured."""

MOST_OBJECTS = 50_000
"""Objects that one measurement visits at most: about 20 ms, in which no other run advances."""

_CODE = (
    *(type, ModuleType, FunctionType, BuiltinFunctionType, MethodType, CodeType),
    *(FrameType, TracebackType),
)

_SHARED = (RunMachine, Definition, JsonCodec, Sources, KnownPrograms, Lowered, Vertex, Arrow)
"""What runs share, and the machine itself, which programs refer to."""


def held_bytes(machine: RunMachine) -> int | None:
    """What a run holds with its program's variables and its open steps. `None` if it has too many objects to visit.

    Objects that a variable shares with other runs count too. Calls no code of their classes but `__sizeof__`.
    """
    skips: dict[type, bool] = {}
    seen = {id(machine.codec)}  # it may have a cache that the runs of a host share
    found: list[Any] = get_referents(machine)
    total = 0
    while found:
        each = found.pop()
        kind = type(each)
        if kind not in skips:
            skips[kind] = issubclass(kind, _CODE + _SHARED)
        if skips[kind] or id(each) in seen:
            continue
        if len(seen) == MOST_OBJECTS:
            return None
        seen.add(id(each))
        with suppress(Exception):
            total += getsizeof(each)
        if issubclass(kind, msgspec.Struct):  # the collector does not look into those with gc=False
            found.extend(getattr(each, name, None) for name in kind.__struct_fields__)
        else:
            found.extend(get_referents(each))
    return total
