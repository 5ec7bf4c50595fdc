"""Annotations that can't be stored are refused where a function is decorated."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from perdure import Engine, InputError, Signal, task, workflow
from perdure.authoring import registry


class Opaque:
    """Has no JSON form."""


@dataclass
class One:
    a: int


@dataclass
class Other:
    a: int


@dataclass
class Holder:
    inside: list[Opaque]


WRONG = [Opaque, list[Opaque], Holder, One | Other, Callable[[], int], dict[str, Opaque | None]]


@pytest.mark.parametrize("wanted", WRONG, ids=str)
def test_parameter_that_can_never_be_stored_is_refused_at_decoration(wanted: Any) -> None:
    async def wrong(given: wanted) -> None:
        raise NotImplementedError

    for decorate in (task, workflow):
        with pytest.raises(InputError, match=r"parameter 'given' of .*wrong\(\) has an annotation"):
            decorate(wrong)
    assert registry.find("task", "wrong") is None


@pytest.mark.parametrize("wanted", WRONG, ids=str)
def test_result_that_can_never_be_stored_is_refused_at_decoration(wanted: Any) -> None:
    async def wrong() -> wanted:
        raise NotImplementedError

    for decorate in (task, workflow):
        with pytest.raises(InputError, match=r"the result of .*wrong\(\) has an annotation"):
            decorate(wrong)


@pytest.mark.parametrize("wanted", WRONG, ids=str)
def test_signal_that_can_never_be_stored_is_refused_where_it_is_made(wanted: Any) -> None:
    with pytest.raises(InputError, match="signal 'wrong' has an annotation that can't be stored"):
        Signal("wrong", wanted)


@task(name="storable.early")
async def early(given: "Later", more: "list[Later]") -> "Later":
    return given


@dataclass
class Tree:
    leaves: "list[Later]"


@task(name="storable.nested")
async def nested(given: Tree) -> Tree:
    return given


trees = Signal("storable.trees", Tree)


@dataclass
class Later:
    a: int


def test_annotation_may_name_what_is_defined_later() -> None:
    assert early.signature.pack((Later(1), []), {}) == {"given": Later(1), "more": []}
    nested.signature.check()


async def test_start_refuses_a_workflow_whose_annotation_is_never_defined() -> None:
    @workflow(name="storable.never")
    async def never(given: "NeverDefined") -> None:  # type: ignore[name-defined] # noqa: F821
        raise NotImplementedError

    async with Engine("sqlite:///:memory:") as engine:
        with pytest.raises(InputError, match="NeverDefined"):
            await engine.start(never(1))
        assert (await engine.audit()).runs == 0


async def test_engine_does_not_open_if_an_annotation_of_a_module_is_never_defined(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "_known", {})

    async def lost() -> "NeverDefined":  # type: ignore[name-defined] # noqa: F821
        raise NotImplementedError

    lost.__qualname__ = "lost"
    task(lost)
    with pytest.raises(InputError, match=r"the result of lost\(\) can't be resolved"):
        await Engine("sqlite:///:memory:").open()
