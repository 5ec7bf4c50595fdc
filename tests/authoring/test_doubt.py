"""What `@task(on_doubt=...)` accepts, and what it refuses."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from perdure import InputError, task, workflow
from perdure.authoring.doubt import Reconcile
from perdure.core.replay.doubt import Resolution


def reconcile_of(made: Any) -> Reconcile:
    assert made.on_doubt is Resolution.RECONCILE
    assert isinstance(made.reconcile, Reconcile)
    return made.reconcile


def test_a_task_in_doubt_is_retried_by_default() -> None:
    @task
    def charge() -> None: ...

    @task(on_doubt="fail")
    def charge_once() -> None: ...

    assert (charge.on_doubt, charge.reconcile) == (Resolution.RETRY, None)
    assert (charge_once.on_doubt, charge_once.reconcile) == (Resolution.FAIL, None)


def test_a_reconcile_function_of_the_key_gets_only_the_key() -> None:
    def find(key: str) -> str:
        return key

    @task(on_doubt=find)
    def charge(order: int, *, note: str = "") -> str:
        return f"{order} {note}"

    reconcile = reconcile_of(charge)
    assert reconcile.arguments("k", ((1,), {"note": "a"})) == (("k",), {})
    assert not reconcile.is_async


def test_a_reconcile_function_with_the_tasks_parameters_gets_key_and_arguments() -> None:
    async def find(key: str, order: int, /, note: str, *more: int, by: str, **rest: int) -> str:
        return f"{key} {order} {note} {more} {by} {rest}"

    @task(on_doubt=find)
    def charge(order: int, /, note: str = "none", *more: int, by: str = "me", **rest: int) -> str:
        return f"{order} {note} {more} {by} {rest}"

    reconcile = reconcile_of(charge)
    assert reconcile.is_async
    assert reconcile.arguments("k", ((1,), {})) == (("k", 1, "none"), {"by": "me"})
    given = ((1, "a", 2, 3), {"by": "you", "z": 4})
    assert reconcile.arguments("k", given) == (("k", 1, "a", 2, 3), {"by": "you", "z": 4})


def test_a_reconcile_function_may_be_a_method_or_a_callable_object() -> None:
    class Service:
        def find(self, key: str) -> str:
            return key

        async def __call__(self, key: str, order: int) -> str:
            return f"{key} {order}"

    @task(on_doubt=Service().find)
    def charge(order: int) -> str:
        return str(order)

    @task(on_doubt=Service())
    async def refund(order: int) -> str:
        return str(order)

    assert not reconcile_of(charge).is_async
    assert reconcile_of(charge).arguments("k", ((1,), {})) == (("k",), {})
    assert reconcile_of(refund).is_async
    assert reconcile_of(refund).arguments("k", ((1,), {})) == (("k", 1), {})


def nothing() -> str:
    return ""


def by_name_only(*, key: str) -> str:
    return key


def anything(*args: Any) -> str:
    return str(args)


def another_name(key: str, number: int) -> str:
    return f"{key} {number}"


def another_order(key: str, note: str, order: int) -> str:
    return f"{key} {note} {order}"


def another_kind(key: str, order: int, *, note: str) -> str:
    return f"{key} {order} {note}"


def one_too_few(key: str, order: int) -> str:
    return f"{key} {order}"


def one_too_many(key: str, order: int, note: str, more: int = 0) -> str:
    return f"{key} {order} {note} {more}"


@pytest.mark.parametrize(
    "find",
    [
        nothing,
        by_name_only,
        anything,
        another_name,
        another_order,
        another_kind,
        one_too_few,
        one_too_many,
    ],
)
def test_a_reconcile_function_with_other_parameters_is_refused(find: Any) -> None:
    def charge(order: int, note: str) -> str:
        return f"{order} {note}"

    with pytest.raises(InputError) as refused:
        task(on_doubt=find)(charge)
    assert "'charge'" in refused.value.what
    assert refused.value.remedy == (
        "let it take (key) alone, or (key, order, note) as the task does"
    )


def test_the_remedy_avoids_the_name_of_the_tasks_own_key_parameter() -> None:
    def charge(key: int, /) -> str:
        return str(key)

    with pytest.raises(InputError) as refused:
        task(on_doubt=nothing)(charge)  # type: ignore[arg-type]
    assert "(step_key, key, /)" in refused.value.remedy


def a_generator(key: str) -> Iterator[str]:
    yield key


async def an_async_generator(key: str) -> AsyncIterator[str]:
    yield key


@pytest.mark.parametrize("find", [a_generator, an_async_generator])
def test_a_generator_is_refused(find: Any) -> None:
    def charge(order: int) -> str:
        return str(order)

    with pytest.raises(InputError, match="generator"):
        task(on_doubt=find)(charge)


@task(name="doubt.a_task")
def a_task(key: str) -> str:
    return key


@workflow(name="doubt.a_workflow")
async def a_workflow(key: str) -> str:
    return await a_task(key)


@pytest.mark.parametrize("given", ["give up", "RETRY", "reconcile", "", None, True, 3, ("fail",)])
def test_invalid_on_doubt_is_refused(given: Any) -> None:
    with pytest.raises(InputError, match="on_doubt is") as refused:
        task(on_doubt=given)
    assert "'retry', 'fail' or a function" in refused.value.remedy


@pytest.mark.parametrize("given", [a_task, a_workflow])
def test_a_task_as_reconcile_function_is_refused_with_its_function_as_remedy(given: Any) -> None:
    with pytest.raises(InputError) as refused:
        task(on_doubt=given)
    assert refused.value.remedy == f"pass its function: {given.fn.__name__}.fn"


def test_a_definition_that_is_refused_is_not_registered() -> None:
    def lonely(order: int) -> str:
        return str(order)

    with pytest.raises(InputError):
        task(on_doubt=another_name, name="doubt.lonely")(lonely)
    assert task(on_doubt="fail", name="doubt.lonely")(lonely).name == "doubt.lonely"
