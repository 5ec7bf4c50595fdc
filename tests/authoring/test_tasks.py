import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from perdure import Call, InputError, Retry, task, workflow
from perdure.authoring.retry import ONCE
from perdure.core.journal.events import InvokeKind, RetryPolicy
from perdure.core.limits import MAX_NAME_LENGTH


def test_a_bare_task_is_named_after_its_function_and_tried_once() -> None:
    @task
    async def charge() -> None: ...

    assert (charge.name, charge.retry, charge.policy) == ("charge", ONCE, None)


def test_a_bare_task_has_no_limits_and_no_queue() -> None:
    @task
    async def charge() -> None: ...

    assert (charge.timeout_ms, charge.heartbeat_timeout_ms, charge.queue) == (None, None, None)


def test_task_decorator_with_empty_parentheses() -> None:
    @task()
    async def charge() -> None: ...

    assert (charge.name, charge.retry, charge.kind) == ("charge", ONCE, InvokeKind.FUNCTION)


def test_a_task_has_the_options_that_it_was_given() -> None:
    @task(
        name="cards.charge",
        retry=Retry(attempts=4, first=0.5),
        timeout=2.5,
        heartbeat_timeout=timedelta(seconds=1),
        queue="cards",
        priority=-3,
        kind="http",
    )
    def charge() -> None: ...

    assert charge.name == "cards.charge"
    assert charge.policy == RetryPolicy(attempts=4, first_ms=500)
    assert (charge.timeout_ms, charge.heartbeat_timeout_ms) == (2500, 1000)
    assert (charge.queue, charge.priority, charge.kind) == ("cards", -3, InvokeKind.HTTP)


def test_task_keeps_function_name_and_docstring() -> None:
    def charge(order: int) -> str:
        """Take the money."""
        return f"paid {order}"

    made = task(charge)
    assert made.fn is charge
    assert made.fn(1) == "paid 1"
    assert (made.__name__, made.__doc__, made.__wrapped__) == (  # type: ignore[attr-defined]
        "charge",
        "Take the money.",
        charge,
    )


def test_a_task_shows_its_name_and_where_it_is_written() -> None:
    @task(name="cards.charge")
    def charge() -> None: ...

    line = charge.fn.__code__.co_firstlineno
    assert repr(charge) == f"<task 'cards.charge' ({__file__}:{line})>"


def test_a_task_knows_whether_its_function_is_async() -> None:
    @task
    async def waits() -> None: ...

    @task
    def blocks() -> None: ...

    assert (waits.is_async, blocks.is_async) == (True, False)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"retry": 3}, "retry is 3: pass perdure.Retry(...)"),
        ({"kind": "grpc"}, "kind is 'grpc': use 'function' or 'http'"),
        ({"kind": "branch"}, "kind is 'branch': use 'function' or 'http'"),
        ({"priority": 1.5}, "priority is 1.5: pass a whole number of 32 bits"),
        ({"priority": True}, "priority is True: pass a whole number of 32 bits"),
        ({"priority": 1 << 31}, "priority is 2147483648: pass a whole number of 32 bits"),
        ({"timeout": 0}, "timeout is 0: pass more than 0, or None for no limit"),
        ({"timeout": -1}, "timeout is -1: pass a duration of at least 0 that is finite"),
        ({"timeout": "1"}, "timeout is '1': pass seconds as a number, or a timedelta"),
        (
            {"heartbeat_timeout": 0.0},
            "heartbeat_timeout is 0.0: pass more than 0, or None for no limit",
        ),
        ({"queue": ""}, "'' can't be the name of a queue: pass a text of 1 to 255 bytes"),
        ({"queue": 5}, "5 can't be the name of a queue: pass a text of 1 to 255 bytes"),
        ({"name": ""}, "'' can't be the name of a task: pass a text of 1 to 255 bytes"),
        ({"name": 5}, "5 can't be the name of a task: pass a text of 1 to 255 bytes"),
    ],
)
def test_a_wrong_option_is_refused_by_name(wrong: dict[str, Any], text: str) -> None:
    def charge() -> None: ...

    with pytest.raises(InputError) as caught:
        task(**wrong)(charge)
    assert str(caught.value) == text


def test_an_option_that_does_not_exist_is_refused() -> None:
    with pytest.raises(TypeError, match="'retries'"):
        task(retries=3)  # type: ignore[call-overload]


def test_a_name_may_be_as_long_as_the_limit_and_no_longer() -> None:
    def charge() -> None: ...

    longest = "n" * MAX_NAME_LENGTH
    assert task(name=longest)(charge).name == longest
    with pytest.raises(InputError, match="the name of a task of 256 bytes"):
        task(name=longest + "n")(charge)


@pytest.mark.parametrize("wrong", [5, "charge", int, partial(print)])
def test_only_functions_can_be_tasks(wrong: Any) -> None:
    with pytest.raises(InputError, match="is not a function: put @task on a plain function"):
        task(wrong)


def test_a_generator_cant_be_a_task() -> None:
    def charges() -> Iterator[int]:
        yield 1

    with pytest.raises(InputError, match="charges is a generator: a task returns one value"):
        task(charges)


def test_an_async_generator_cant_be_a_task() -> None:
    async def charges() -> AsyncIterator[int]:
        yield 1

    with pytest.raises(InputError, match="charges is a generator: a task returns one value"):
        task(charges)


# Digests


def test_the_same_source_has_the_same_digest() -> None:
    def define() -> Any:
        @task
        def charge(order: int) -> int:
            return order

        return charge

    assert define().digest == define().digest


def test_another_source_has_another_digest() -> None:
    @task(name="a")
    def charge(order: int) -> int:
        return order

    @task(name="a")
    def refund(order: int) -> int:
        return -order

    assert charge.digest != refund.digest


def test_a_digest_does_not_depend_on_the_indentation_of_the_source() -> None:
    def outer() -> Any:
        def inner() -> Any:
            @task
            def charge() -> int:
                return 1

            return charge

        return inner()

    @task
    def charge() -> int:
        return 1

    assert outer().digest == charge.digest


def test_a_function_without_source_has_the_digest_of_its_code() -> None:
    def defined(source: str) -> str:
        names: dict[str, Any] = {}
        exec(source, names)
        return task(names["charge"]).digest

    one = "def charge(order): return order"
    assert defined(one) == defined(one)
    assert defined(one) != defined("def charge(order): return -order")


# Outside a run


async def test_a_call_of_an_async_task_outside_a_run_runs_it_here() -> None:
    here = asyncio.current_task()

    @task
    async def charge(order: int, *more: int, note: str = "none") -> Any:
        return order, more, note, asyncio.current_task() is here

    assert await charge(1, 2, 3, note="a") == (1, (2, 3), "a", True)


async def test_a_call_of_a_sync_task_outside_a_run_runs_it_in_a_thread() -> None:
    @task
    def charge(order: int) -> tuple[int, bool]:
        return order, threading.current_thread() is threading.main_thread()

    assert await charge(order=1) == (1, False)


@pytest.mark.parametrize("is_async", [True, False])
async def test_exception_of_a_task_outside_a_run_reaches_the_caller(is_async: bool) -> None:
    @task
    async def waits() -> None:
        raise LookupError("no order")

    @task
    def blocks() -> None:
        raise LookupError("no order")

    with pytest.raises(LookupError, match="no order"):
        await (waits() if is_async else blocks())


async def test_arguments_outside_a_run_need_no_json_form() -> None:
    class Opaque: ...

    @task
    async def same(thing: Any) -> Any:
        return thing

    opaque = Opaque()
    assert await same(opaque) is opaque


async def test_a_retry_is_not_made_outside_a_run() -> None:
    attempts = 0

    @task(retry=Retry(attempts=5, first=0))
    async def flaky() -> None:
        nonlocal attempts
        attempts += 1
        raise LookupError

    with pytest.raises(LookupError):
        await flaky()
    assert attempts == 1


async def test_calls_of_tasks_outside_a_run_can_be_gathered_by_asyncio() -> None:
    @task
    async def double(number: int) -> int:
        await asyncio.sleep(0)
        return number * 2

    one, other = await asyncio.gather(double(1), double(2))
    assert (one, other) == (2, 4)


async def test_a_task_that_calls_a_task_outside_a_run_calls_a_plain_function() -> None:
    @task
    def add(one: int, other: int) -> int:
        return one + other

    @task
    async def triple(number: int) -> int:
        return await add(await add(number, number), number)

    assert await triple(2) == 6


def test_a_call_is_made_without_running_anything() -> None:
    @task
    def charge() -> None:
        raise AssertionError

    made = charge()
    assert isinstance(made, Call)
    made.use()


@pytest.mark.parametrize(
    ("args", "kwargs", "text"),
    [
        ((), {}, r"charge\(\) is missing the required argument 'order'"),
        ((1, 2), {}, r"charge\(\) takes 1 positional arguments, not 2"),
        ((1,), {"note": ""}, r"charge\(\) got an unexpected keyword argument 'note'"),
        ((1,), {"order": 1}, r"charge\(\) got multiple values for argument 'order'"),
    ],
)
def test_a_call_that_python_would_refuse_is_refused_at_once(
    args: tuple[Any, ...], kwargs: dict[str, Any], text: str
) -> None:
    @task
    def charge(order: int) -> None: ...

    with pytest.raises(TypeError, match=text):
        _ = charge(*args, **kwargs)


@pytest.mark.parametrize("decorate", [task, workflow], ids=["task", "workflow"])
@pytest.mark.parametrize("first", ["self", "cls"])
def test_a_method_is_refused(decorate: Any, first: str) -> None:
    scope: dict[str, Any] = {"decorate": decorate}
    source = f"class Shop:\n  @decorate\n  async def sell({first}, item: int): ..."
    noun = decorate.__name__
    with pytest.raises(InputError, match=rf"Shop\.sell is a method, and a {noun} is a function"):
        exec(source, scope)


def test_a_static_method_and_a_function_with_a_self_are_tasks() -> None:
    class Shop:
        @staticmethod
        @task
        async def sell(item: int) -> int:
            return item

    @task
    async def describe(self: int) -> int:
        return self

    assert asyncio.run(Shop.sell.fn(3)) == asyncio.run(describe.fn(3)) == 3
