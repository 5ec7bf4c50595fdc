import gc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import perdure
from perdure import Signal, task, workflow
from perdure.authoring.call import BranchOperation, Sleep, discard, operation
from perdure.authoring.signal import Receive
from perdure.core.errors import CallReused, ForeignAwait

approval = Signal("approval", bool)


@contextmanager
def nothing_is_left_unawaited() -> Iterator[None]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
        gc.collect()
    assert [str(warning.message) for warning in caught] == []


def a_task() -> Any:
    @task
    async def charge(order: int, note: str = "") -> str:
        return f"paid {order} {note}"

    return charge


def a_workflow() -> Any:
    @workflow
    async def checkout(order: int) -> None: ...

    return checkout


async def branch() -> int:
    return 1


def test_call_repr_shows_name_and_arguments() -> None:
    made = a_task()(1, note="a")
    assert repr(made) == "<Call charge(order=1, note='a')>"
    made.use()


def test_a_call_leaves_defaults_to_the_function() -> None:
    made = a_task()(1)
    assert made.arguments == {"order": 1}
    made.use()


async def test_a_call_that_was_awaited_cant_be_awaited_again() -> None:
    made = a_task()(1)
    await made
    with pytest.raises(CallReused) as caught:
        await made
    assert caught.value.what == "this Call of 'charge' was awaited or started before"
    assert caught.value.remedy == "call charge(...) again for a second step"


@pytest.mark.parametrize("define", [a_task, a_workflow])
def test_a_call_that_is_never_awaited_outside_a_workflow_warns(define: Any) -> None:
    definition = define()
    with pytest.warns(RuntimeWarning, match=r"^<Call \w+\(order=7\)> was never awaited$"):
        definition(7)


async def test_a_call_that_was_awaited_does_not_warn() -> None:
    definition = a_task()
    with nothing_is_left_unawaited():
        await definition(7)


def test_a_call_that_python_refuses_does_not_warn() -> None:
    definition = a_task()
    with nothing_is_left_unawaited(), pytest.raises(TypeError):
        definition()


# Operations


def test_calls_and_verbs_are_operations() -> None:
    made, nap, receive = a_task()(1), perdure.sleep(1), approval.receive()
    assert [operation(each, "gather") for each in (made, nap, receive)] == [made, nap, receive]
    made.use()


def test_a_coroutine_becomes_a_branch_of_its_name() -> None:
    made = operation(branch(), "gather")
    assert isinstance(made, BranchOperation)
    assert made.name == "branch"
    discard(made)


def test_a_receive_with_a_timeout_becomes_a_branch() -> None:
    made = operation(approval.receive(timeout=1), "gather")
    assert isinstance(made, BranchOperation)
    discard(made)


def test_durations_of_verbs_are_kept_in_milliseconds() -> None:
    nap = perdure.sleep(1.5)
    assert isinstance(nap, Sleep)
    assert nap.duration_ms == 1500


def test_a_receive_without_a_timeout_is_one_operation() -> None:
    receive = approval.receive()
    assert isinstance(receive, Receive)
    assert receive.signal is approval


@pytest.mark.parametrize("wrong", [1, None, branch, a_task()])
def test_awaitable_that_is_not_durable_is_refused_by_name(wrong: Any) -> None:
    with pytest.raises(ForeignAwait) as caught:
        _ = operation(wrong, "perdure.gather")
    assert caught.value.what == f"perdure.gather was given {wrong!r}"
    assert "pass calls of tasks and workflows" in caught.value.remedy


@pytest.mark.parametrize(
    "make",
    [lambda: a_task()(1), branch, lambda: operation(branch(), "gather"), lambda: None],
    ids=["call", "coroutine", "branch", "nothing"],
)
def test_discarded_awaitables_give_no_warning(make: Any) -> None:
    with nothing_is_left_unawaited():
        discard(make())
