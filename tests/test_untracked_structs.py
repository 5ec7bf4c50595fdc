"""Structs that the garbage collector does not track: none may lead back to itself, or its memory is never freed."""

import importlib
import pkgutil
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from types import UnionType
from typing import Any, Union

import msgspec
import pytest

import perdure
from perdure.authoring.program import Program
from perdure.core.graph.vertex import Vertex
from perdure.store.commit.fence import Fence
from perdure.store.commit.graph_index import GraphIndex

CONTAINERS = (list, tuple, dict, Sequence, Union, UnionType)

LEAVES = (int, str, bytes, bool, float, type(None), Enum)

HARMLESS: dict[object, str] = {
    Fence: "a run's id, an epoch and a flag",
    GraphIndex: "changed rows, by step",
    Mapping: "tags, which are texts",
    Vertex: "a node of a graph's model, which is never changed",
    Program: "a program, made when its module is imported",
    typing.Literal: "texts",
    typing.ClassVar: "nothing: the class holds it",
    Any: "values of users, which never hold what the engine makes for one run",
}
"""What may be held besides texts, numbers and untracked structs, and what that holds."""


def _structs(base: type = msgspec.Struct) -> Iterator[type[msgspec.Struct]]:
    found: type[msgspec.Struct]
    for found in base.__subclasses__():
        yield found
        yield from _structs(found)


def _untracked() -> list[type[msgspec.Struct]]:
    for module in pkgutil.walk_packages(perdure.__path__, "perdure."):
        # The commands import programs of their own, which would be registered in this process.
        if not module.name.startswith("perdure.cli"):
            importlib.import_module(module.name)
    ours = {each for each in _structs() if each.__module__.startswith("perdure.")}
    untracked = (each for each in ours if not each.__struct_config__.gc)
    return sorted(untracked, key=lambda each: each.__qualname__)


def _troubles(hint: Any, within: frozenset[Any]) -> Iterator[str]:
    """What a value of this type may hold that could lead back to one of the types that it is held by."""
    origin = typing.get_origin(hint)
    if hint in HARMLESS or origin in HARMLESS or _is_leaf(hint):
        return
    if isinstance(hint, typing.NewType):
        yield from _troubles(hint.__supertype__, within)
    elif origin in CONTAINERS:
        for argument in typing.get_args(hint):
            if argument is not Ellipsis:
                yield from _troubles(argument, within)
    elif hint in within or not (hasattr(hint, "__struct_config__") or hasattr(hint, "_fields")):
        yield str(hint)
    else:
        for name, held in typing.get_type_hints(hint).items():
            for trouble in _troubles(held, within | {hint}):
                yield f"{hint.__name__}.{name}: {trouble}"


def _is_leaf(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, LEAVES)


@pytest.mark.parametrize("struct", _untracked(), ids=lambda each: each.__qualname__)
def test_untracked_struct_can_not_lead_back_to_itself(struct: type[msgspec.Struct]) -> None:
    assert list(_troubles(struct, frozenset())) == []


class Chained(msgspec.Struct, gc=False):
    before: "Chained | None" = None


class Calling(msgspec.Struct, gc=False):
    back: Callable[[], None]


@pytest.mark.parametrize("struct", [Chained, Calling])
def test_struct_that_may_lead_back_to_itself_is_noticed(struct: type[msgspec.Struct]) -> None:
    assert list(_troubles(struct, frozenset()))
