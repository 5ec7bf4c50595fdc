import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from perdure import Call, InputError, workflow
from perdure.authoring.linter.checking import LintMode
from perdure.core.errors import NotDeterministic, OutsideRun
from perdure.core.limits import MAX_NAME_LENGTH


async def reads_the_clock() -> float:
    return time.time()


def test_a_bare_workflow_is_named_after_its_function_and_has_no_version() -> None:
    @workflow
    async def checkout() -> None: ...

    assert (checkout.name, checkout.version) == ("checkout", "")


def test_workflow_decorator_with_empty_parentheses() -> None:
    @workflow()
    async def checkout() -> None: ...

    assert (checkout.name, checkout.version) == ("checkout", "")


def test_a_workflow_has_the_name_and_version_that_it_was_given() -> None:
    @workflow(name="orders.checkout", version="2")
    async def checkout() -> None: ...

    assert (checkout.name, checkout.version) == ("orders.checkout", "2")


def test_a_workflow_keeps_its_function() -> None:
    async def checkout() -> None: ...

    assert workflow(checkout).fn is checkout


def test_a_workflow_shows_its_name_and_where_it_is_written() -> None:
    @workflow
    async def checkout() -> None: ...

    line = checkout.fn.__code__.co_firstlineno
    assert repr(checkout) == f"<workflow 'checkout' ({__file__}:{line})>"


def test_a_function_that_is_not_async_cant_be_a_workflow() -> None:
    def checkout() -> None: ...

    with pytest.raises(InputError) as caught:
        workflow(checkout)  # type: ignore[arg-type]
    assert str(caught.value) == "workflow 'checkout' is not async: write `async def checkout(...)`"


def test_an_async_generator_cant_be_a_workflow() -> None:
    async def checkout() -> AsyncIterator[int]:
        yield 1

    with pytest.raises(InputError, match="checkout is a generator: a workflow returns one value"):
        workflow(checkout)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [5, "checkout", int])
def test_only_functions_can_be_workflows(wrong: Any) -> None:
    with pytest.raises(InputError, match="is not a function: put @workflow on a plain function"):
        workflow(wrong)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"name": ""}, "'' can't be the name of a workflow: pass a text of 1 to 255 bytes"),
        ({"name": 5}, "5 can't be the name of a workflow: pass a text of 1 to 255 bytes"),
        ({"version": 2}, "2 can't be a version: pass a text of 0 to 255 bytes"),
        ({"lint": "loud"}, "unknown lint mode 'loud': use 'error', 'warn' or 'off'"),
    ],
)
def test_a_wrong_option_is_refused_by_name(wrong: dict[str, Any], text: str) -> None:
    async def checkout() -> None: ...

    with pytest.raises(InputError) as caught:
        workflow(**wrong)(checkout)
    assert str(caught.value) == text


def test_a_version_may_be_as_long_as_the_limit_and_no_longer() -> None:
    async def checkout() -> None: ...

    longest = "9" * MAX_NAME_LENGTH
    assert workflow(version=longest)(checkout).version == longest
    with pytest.raises(InputError, match=r"a version of 256 bytes .*: use at most 255"):
        workflow(version=longest + "9")(checkout)


def test_an_option_that_does_not_exist_is_refused() -> None:
    async def checkout() -> None: ...

    with pytest.raises(TypeError, match="'retry'"):
        workflow(retry=3)(checkout)  # type: ignore[call-overload]


# The linter


@pytest.mark.parametrize("decorate", [workflow, workflow(), workflow(lint="error")])
def test_nondeterministic_code_is_refused_by_default(
    decorate: Callable[[Any], Any],
) -> None:
    with pytest.raises(NotDeterministic, match=r"time\.time\(\) in a workflow: use perdure\.now"):
        decorate(reads_the_clock)


def test_nondeterministic_code_can_be_reported_as_a_warning() -> None:
    with pytest.warns(RuntimeWarning, match=r"use perdure\.now\(\)"):
        made = workflow(lint="warn")(reads_the_clock)
    assert made.fn is reads_the_clock


def test_nondeterministic_code_can_be_allowed() -> None:
    assert workflow(lint="off")(reads_the_clock).fn is reads_the_clock


@pytest.mark.parametrize("mode", ["error", "warn", "off"])
def test_code_that_replays_passes_in_every_mode(mode: LintMode) -> None:
    async def checkout() -> None: ...

    assert workflow(lint=mode)(checkout).fn is checkout


# Outside a run


async def test_a_call_of_a_workflow_outside_a_run_says_how_to_start_it() -> None:
    @workflow
    async def checkout() -> None: ...

    with pytest.raises(OutsideRun) as caught:
        await checkout()
    assert caught.value.what == "workflow 'checkout' is awaited outside a run"
    assert caught.value.remedy == "start it with `engine.start(...)` or `perdure.run(...)`"


def test_a_call_of_a_workflow_is_made_without_running_anything() -> None:
    @workflow
    async def checkout(order: int) -> None:
        raise AssertionError

    made = checkout(1)
    assert isinstance(made, Call)
    assert made.arguments == {"order": 1}
    made.use()
