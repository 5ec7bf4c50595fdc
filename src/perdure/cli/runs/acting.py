"""Commands that send something to a run, or wait for it."""

import asyncio
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from perdure import Engine, Request, RequestRejected, RequestUnanswered, RunStatus, Signal
from perdure.authoring.values.failures import failure_text
from perdure.cli.exit_codes import FAILED
from perdure.cli.front_end import front_end, json_value
from perdure.cli.output import console, printable
from perdure.cli.store_setting import StoreOption
from perdure.core.codec import JsonCodec
from perdure.core.errors import PerdureError
from perdure.core.journal import events as e
from perdure.core.journal.entry import Entry

RunArgument = Annotated[str, Parameter(help="The id of a run.")]
ValueArgument = Annotated[str, Parameter(help="The value, as JSON.")]
IdOption = Annotated[
    str | None, Parameter(help="Two signals with the same id are one: a repeated command is safe.")
]
TimeoutOption = Annotated[float | None, Parameter(help="Seconds to wait at most.")]

_LOOK_S = 0.25
_OVER = frozenset({RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED})


def signal(
    run: RunArgument,
    name: str,
    value: ValueArgument = "null",
    /,
    *,
    id_: IdOption = None,
    store: StoreOption = None,
) -> int:
    """Send a run a signal. The program may wait for it already, or later.

    Parameters
    ----------
    name
        The name of the signal.
    """
    given = json_value(value)

    async def send() -> None:
        async with front_end(store) as engine:
            await engine.handle(run).signal(Signal(name, Any), given, id=id_)

    asyncio.run(send())
    console().print(f"sent signal {name!r} to {run}", soft_wrap=True)
    return 0


def ask(
    run: RunArgument,
    name: str,
    value: ValueArgument = "null",
    /,
    *,
    id_: IdOption = None,
    timeout: TimeoutOption = None,
    store: StoreOption = None,
) -> int:
    """Send a run a request, wait for its reply, and print that as JSON. The exit code is 1 if there is no reply.

    Parameters
    ----------
    name
        The name of the request.
    """
    return asyncio.run(_ask(run, Request(name, Any, Any), json_value(value), id_, timeout, store))


async def _ask(
    run: str,
    request: Request[Any, Any],
    value: Any,
    id_: str | None,
    timeout_s: float | None,
    url: str | None,
) -> int:
    async with front_end(url) as engine:
        try:
            reply = await engine.handle(run).ask(request, value, id=id_, timeout=timeout_s)
        except (RequestRejected, RequestUnanswered, TimeoutError) as error:
            console(is_error=True).print(printable(str(error)), style="red", soft_wrap=True)
            return FAILED
    print(msgspec.json.encode(reply).decode())
    return 0


def respond(
    run: RunArgument,
    step: str,
    value: ValueArgument = "null",
    /,
    *,
    code: int = 200,
    id_: IdOption = None,
    store: StoreOption = None,
) -> int:
    """Answer a step of a graph whose task responded with 202.

    Parameters
    ----------
    step
        The id of the step, or the name of its activity.
    code
        The code of the answer; with 202 the step takes more answers.
    """
    given = json_value(value)

    async def send() -> None:
        async with front_end(store) as engine:
            await engine.handle(run).respond(step, given, code=code, id=id_)

    asyncio.run(send())
    console().print(f"answered step {step!r} of {run}", soft_wrap=True)
    return 0


def send(
    topic: str,
    key: str,
    value: ValueArgument = "null",
    /,
    *,
    scope: str = "",
    id_: IdOption = None,
    store: StoreOption = None,
) -> int:
    """Send a signal to a topic and key: the run that waits for them receives it.

    Parameters
    ----------
    topic
        The topic of the hook.
    key
        The key of the hook.
    scope
        The scope of the runs that may receive it.
    """
    given = json_value(value)

    async def run() -> None:
        async with front_end(store) as engine:
            await engine.send(topic, key, given, id=id_, scope=scope)

    asyncio.run(run())
    console().print(f"sent a signal to topic {topic!r} and key {key!r}", soft_wrap=True)
    return 0


def result(run: RunArgument, /, *, timeout: TimeoutOption = None, store: StoreOption = None) -> int:
    """Wait until a run is over, and print its result as JSON. The exit code is 1 if it failed or was cancelled."""
    return asyncio.run(_result(run, timeout, store))


async def _result(run: str, timeout_s: float | None, url: str | None) -> int:
    async with front_end(url) as engine:
        try:
            async with asyncio.timeout(timeout_s):
                status = await until_over(engine, run)
        except TimeoutError:
            explained = await engine.handle(run).explain()
            console(is_error=True).print(printable(explained.summary), soft_wrap=True)
            return FAILED
        last: Entry | None = None
        async for entry in engine.handle(run).events(follow=False):
            last = entry
    return print_outcome(status, last)


async def until_over(engine: Engine, run: str) -> RunStatus:
    """Wait for the end. Needs no program, and continues while the run is parked: the cause may be fixed."""
    handle = engine.handle(run)
    while (status := await handle.status()) not in _OVER:  # noqa: ASYNC110 - `result` would need the program
        await asyncio.sleep(_LOOK_S)
    return status


def print_outcome(status: RunStatus, last: Entry | None) -> int:
    """Prints the result, or the error to standard error."""
    event = None if last is None else last.event
    payload = event.payload if isinstance(event, e.Terminal) else None
    if status is RunStatus.COMPLETED:
        print(_json_text(payload))
        return 0
    text = f"the run was {status.value}"
    if isinstance(event, e.ExecutionFailed):
        failure = failure_text(JsonCodec(), payload)
        text = f"the run failed: {failure.type_name}: {failure.message}"
    elif isinstance(event, e.ExecutionCancelled) and event.reason:
        text += f": {event.reason}"
    console(is_error=True).print(printable(text), style="red", soft_wrap=True)
    return FAILED


def _json_text(payload: bytes | None) -> str:
    """A stored result as JSON; what another codec wrote, as it is."""
    if payload is None:
        return "null"
    try:
        value: Any = JsonCodec().decode(payload, object)
    except PerdureError:
        return payload.decode(errors="replace")
    return msgspec.json.encode(value).decode()
