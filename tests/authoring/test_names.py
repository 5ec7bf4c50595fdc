"""All entry points for names refuse, by one rule, texts that a store can't keep."""

from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import pytest

import perdure
from perdure import Engine, InputError, Signal, task, workflow
from perdure.authoring.context import TASK, WORKFLOW
from perdure.authoring.signal import MAX_SIGNAL_NAME
from perdure.core.limits import MAX_NAME_LENGTH


async def nothing() -> None: ...


def name_a_task(name: str) -> object:
    return task(name=name)(nothing)


def name_a_workflow(name: str) -> object:
    return workflow(name=name)(nothing)


def name_a_version(name: str) -> object:
    return workflow(name="names.versioned", version=name)(nothing)


def name_a_queue(name: str) -> object:
    return task(name="names.queued", queue=name)(nothing)


def serve_a_queue(name: str) -> object:
    return Engine("sqlite:///:memory:", queues=[name])


class Keeper:
    """A context that accepts everything that passes the verbs."""

    def publish(self, name: str, value: object) -> None: ...

    def patched(self, _: str) -> bool:
        return True

    def append(self, name: str, value: object) -> None: ...

    flush = None


@contextmanager
def inside(variable: Any) -> Any:
    token = variable.set(Keeper())
    try:
        yield
    finally:
        variable.reset(token)


def publish_in_a_workflow(name: str) -> None:
    with inside(WORKFLOW):
        perdure.publish(name, 1)


def publish_in_a_task(name: str) -> None:
    with inside(TASK):
        perdure.publish(name, 1)


def name_a_stream(name: str) -> object:
    with inside(WORKFLOW):
        return perdure.stream(name)


def name_a_patch(name: str) -> object:
    with inside(WORKFLOW):
        return perdure.patched(name)


def name_a_signal(name: str) -> object:
    return Signal(name, int)


PLACES: list[tuple[Callable[[str], object], int]] = [
    (name_a_task, MAX_NAME_LENGTH),
    (name_a_workflow, MAX_NAME_LENGTH),
    (name_a_version, MAX_NAME_LENGTH),
    (name_a_queue, MAX_NAME_LENGTH),
    (serve_a_queue, MAX_NAME_LENGTH),
    (publish_in_a_workflow, MAX_NAME_LENGTH),
    (publish_in_a_task, MAX_NAME_LENGTH),
    (name_a_stream, MAX_NAME_LENGTH),
    (name_a_patch, MAX_NAME_LENGTH),
    (name_a_signal, MAX_SIGNAL_NAME),
]


@pytest.mark.parametrize(("give", "limit"), PLACES)
def test_the_limit_of_a_name_is_in_bytes(give: Callable[[str], object], limit: int) -> None:
    longest = "\u20ac" * (limit // 3) + "n" * (limit % 3)
    give(longest)
    with pytest.raises(InputError, match=rf"of {limit + 1} bytes .*: use at most {limit}"):
        give(longest + "n")


@pytest.mark.parametrize(("give", "limit"), PLACES)
def test_a_name_that_a_database_would_refuse_is_refused(
    give: Callable[[str], object], limit: int
) -> None:
    with pytest.raises(InputError, match="holds a NUL character at 1: remove it"):
        give("a\0b")
    with pytest.raises(InputError, match="holds a lone surrogate at 0: remove it"):
        give("\ud800" + "n" * limit)
