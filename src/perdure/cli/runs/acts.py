"""Operator acts on runs: `perdure runs pause`, `resume`, `cancel`, `approve`, `retry-step`, `skip-step`, `stop`."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import msgspec
from cyclopts import Parameter
from rich.text import Text

from perdure import Actor, Handle, InputError
from perdure.cli.exit_codes import FAILED
from perdure.cli.front_end import front_end, json_value
from perdure.cli.output import (
    Column,
    ReportOption,
    cell,
    console,
    print_json,
    print_lines,
    table_of,
)
from perdure.cli.progress import ProgressLine
from perdure.cli.runs.choosing import confirm, named_runs
from perdure.cli.store_setting import StoreOption
from perdure.client.runs.acts import NO_VALUE, Receipt
from perdure.core.errors import PerdureError

RunsArgument = Annotated[list[str] | None, Parameter(help="The ids of runs.")]
RunArgument = Annotated[str, Parameter(help="The id of a run.")]
StepArgument = Annotated[str, Parameter(help="The id of a step.")]
ValuesArgument = Annotated[
    str, Parameter(help="New values of parameters, as a JSON object of values by name.")
]

_WAIT_S = 10.0


@Parameter(name="*")
@dataclass(frozen=True)
class ActCommandOptions:
    """The options that all acts have."""

    reason: Annotated[str, Parameter(help="The reason, for the journal.")] = ""
    as_: Annotated[str, Parameter(name="--as", help="Who acts: NAME, or NAME:ROLE.")] = ""
    id: Annotated[
        str | None, Parameter(help="Two acts with the same id are one: a repeated command is safe.")
    ] = None
    where: Annotated[
        str | None, Parameter(help="Act on all runs that match, as in `perdure runs list`.")
    ] = None
    dry_run: Annotated[bool, Parameter(help="Print the runs, and do nothing.")] = False
    yes: Annotated[bool, Parameter(help="Do not ask before acting on what --where matches.")] = (
        False
    )
    rate: Annotated[float, Parameter(help="Acts per second at most.")] = 50.0
    wait: Annotated[
        float, Parameter(help="Seconds to wait for the decision of the run's owner.")
    ] = _WAIT_S
    store: StoreOption = None
    output: ReportOption = "table"


class ActOutcome(msgspec.Struct, frozen=True):
    """What became of an act on one run."""

    run_id: str
    outcome: str
    code: str = ""
    text: str = ""


class _Sender(NamedTuple):
    """Sends the act to one run, with the keywords that all acts have."""

    send: Callable[[Handle[Any], dict[str, Any]], Awaitable[Receipt]]
    options: ActCommandOptions


def pause_runs(
    runs: RunsArgument = None,
    /,
    *,
    descends: bool = False,
    options: ActCommandOptions | None = None,
) -> int:
    """Pause runs: nothing begins until they are resumed. Attempts under way end, and their outcomes are kept.

    Parameters
    ----------
    descends
        Also pause the child runs.
    """
    return _act(runs, lambda run, how: run.pause(**how, descends=descends), options)


def resume_runs(
    runs: RunsArgument = None,
    /,
    *,
    descends: bool = False,
    options: ActCommandOptions | None = None,
) -> int:
    """End the pause of runs.

    Parameters
    ----------
    descends
        Also resume the child runs.
    """
    return _act(runs, lambda run, how: run.resume(**how, descends=descends), options)


def cancel(runs: RunsArgument = None, /, *, options: ActCommandOptions | None = None) -> int:
    """Request that runs are cancelled: they clean up, and their child runs are cancelled too."""
    return _act(runs, lambda run, how: run.cancel(**how), options)


def stop(runs: RunsArgument = None, /, *, options: ActCommandOptions | None = None) -> int:
    """End runs as cancelled at once: no clean-up step runs."""
    return _act(runs, lambda run, how: run.emergency_stop(**how), options)


def approve_runs(runs: RunsArgument = None, /, *, options: ActCommandOptions | None = None) -> int:
    """Approve runs that wait for approval before they begin."""
    return _act(runs, lambda run, how: run.approve(**how), options)


def retry_step(
    run: RunArgument, step: StepArgument, /, *, options: ActCommandOptions | None = None
) -> int:
    """Begin the next logical attempt of a parked step."""
    return _act([run], lambda handle, how: handle.retry_step(step, **how), options)


def skip_step(
    run: RunArgument,
    step: StepArgument,
    /,
    *,
    value: str | None = None,
    options: ActCommandOptions | None = None,
) -> int:
    """Settle a parked step without another attempt.

    Parameters
    ----------
    value
        The result that the program gets, as JSON. Without it the step counts as skipped.
    """
    given = NO_VALUE if value is None else json_value(value)
    return _act([run], lambda handle, how: handle.skip_step(step, **how, value=given), options)


def update_params(
    run: RunArgument, values: ValuesArgument, /, *, options: ActCommandOptions | None = None
) -> int:
    """Change parameters of a run while it is open. Its program must declare them."""
    given = json_value(values)
    if not isinstance(given, dict):
        raise InputError(f"{values!r:.100} is no JSON object", "write one: '{\"batch\": 5}'")
    return _act([run], lambda handle, how: handle.update_params(given, **how), options)


def _act(
    runs: Sequence[str] | None,
    send: Callable[[Handle[Any], dict[str, Any]], Awaitable[Receipt]],
    options: ActCommandOptions | None,
) -> int:
    chosen = options or ActCommandOptions()
    named = named_runs(runs, chosen.where, chosen.store)
    if chosen.dry_run:
        print_lines(named)
        return 0
    if chosen.where is not None and not chosen.yes:
        confirm(len(named))
    outcomes = asyncio.run(_outcomes(named, _Sender(send, chosen)))
    if chosen.output == "json":
        print_json(outcomes)
    else:
        console().print(table_of(outcomes, _COLUMNS))
        if len(outcomes) > 1:
            counts = Counter(outcome.outcome for outcome in outcomes)
            console().print(", ".join(f"{outcome} {count:,}" for outcome, count in counts.items()))
    return FAILED if any(outcome.outcome == "rejected" for outcome in outcomes) else 0


async def _outcomes(runs: Sequence[str], sender: _Sender) -> list[ActOutcome]:
    """Sends all acts, then waits for the decisions. An error of one run does not keep the act from the others."""
    if sender.options.rate <= 0:
        raise InputError(f"--rate is {sender.options.rate:g}", "pass more than 0")
    async with front_end(sender.options.store) as engine:
        handles = [
            engine.handle(run) for run in runs
        ]  # a malformed id is refused before anything is sent
        clock = asyncio.get_running_loop().time
        began_s = clock()
        with ProgressLine("runs", len(runs)) as progress:
            found = []
            for number, handle in enumerate(handles):
                await asyncio.sleep(max(0.0, began_s + number / sender.options.rate - clock()))
                found.append(await _sent(handle, sender))
                progress.advance()
        return [
            await _decided(run, sent, sender.options.wait)
            for run, sent in zip(runs, found, strict=True)
        ]


async def _sent(handle: Handle[Any], sender: _Sender) -> Receipt | PerdureError:
    options = sender.options
    name, _, role = options.as_.partition(":")
    how: dict[str, Any] = {"reason": options.reason, "id": options.id}
    if name:
        how["by"] = Actor(name, role)
    try:
        return await sender.send(handle, how)
    except PerdureError as error:
        return error


async def _decided(run: str, sent: Receipt | PerdureError, wait_s: float) -> ActOutcome:
    if isinstance(sent, PerdureError):
        return ActOutcome(run, "rejected", sent.code, str(sent))
    try:
        decision = await sent.decision(wait_s)
    except TimeoutError:
        return ActOutcome(run, "sent", "", "no host has decided yet: see perdure explain")
    return ActOutcome(
        run, "accepted" if decision.accepted else "rejected", decision.code, decision.reason
    )


def _outcome(outcome: ActOutcome) -> Text:
    colours = {"accepted": "green", "rejected": "red"}
    return Text(outcome.outcome, style=colours.get(outcome.outcome, "yellow"))


_COLUMNS: list[Column[ActOutcome]] = [
    Column("run", lambda outcome: cell(outcome.run_id)),
    Column("outcome", _outcome),
    Column("code", lambda outcome: cell(outcome.code)),
    Column("text", lambda outcome: cell(outcome.text)),
]
