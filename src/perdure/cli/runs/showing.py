"""`perdure runs show` and `watch`: a run, why it does not move, and its steps with bars."""

import asyncio
from collections.abc import Sequence
from typing import Annotated

from cyclopts import Parameter
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from perdure import Engine
from perdure.cli.front_end import front_end
from perdure.cli.output import (
    Column,
    ReportOption,
    age,
    cell,
    console,
    moment,
    plain,
    print_json,
    printable,
    table_of,
    took,
)
from perdure.cli.replay.rendering import payload_text, value_text
from perdure.cli.store_setting import StoreOption
from perdure.client.runs.overview import RunOverview, overview_of
from perdure.core.codec import Codec, JsonCodec
from perdure.core.replay.recorded import RecordedStep, StepOutcome
from perdure.core.runs.step_records import StepRecord, TimeKind
from perdure.host.clock import HostSources

BAR = 20
"""Width of a bar: the whole life of the run."""

LAST_STEPS = 50
_LOOK_S = 0.5

_EMPTY = " "
_SIGNS = {
    TimeKind.QUEUED: "░",
    TimeKind.EXECUTING: "█",
    TimeKind.BACKOFF: "▒",
    TimeKind.IN_DOUBT: "▓",
    TimeKind.WAITING: "─",
}
_COLOURS = {StepOutcome.OK: "green", StepOutcome.FAILED: "red", StepOutcome.SKIPPED: "dim"}

AllOption = Annotated[bool, Parameter(name="--all", help=f"All steps, not the last {LAST_STEPS}.")]


def show_run(
    run: str,
    /,
    *,
    all_: AllOption = False,
    store: StoreOption = None,
    output: ReportOption = "table",
) -> int:
    """Show a run: its state, why it does not move, and its steps with their times, inputs and values.

    A bar spans the life of the run: ░ queued, █ executing, ▒ waiting until the next attempt, ▓ in doubt, ─ waiting for
    a timer, a signal, a child run or an operator.

    Parameters
    ----------
    run
        The id of a run.
    """

    async def read() -> RunOverview:
        async with front_end(store) as engine:
            return await overview_of(engine.handle(run), None if all_ else LAST_STEPS)

    found = asyncio.run(read())
    if output == "json":
        codec = JsonCodec()
        steps = [_plain_step(step, found.times.get(step.step), codec) for step in found.steps]
        shown = {"tags": dict(found.tags), "explanation": found.explanation, "steps": steps}
        shown["earlier"] = found.earlier
        print_json({**plain(found.description), **shown, "is_cut": found.is_cut})
    else:
        console().print(_shown(found))
    return 0


def watch(run: str, /, *, store: StoreOption = None) -> int:
    """Show a run until it is over.

    Parameters
    ----------
    run
        The id of a run.
    """
    asyncio.run(_watched(run, store))
    return 0


async def _watched(run: str, url: str | None) -> None:
    screen = console()
    async with front_end(url) as engine:
        found = await overview_of(engine.handle(run), LAST_STEPS)
        if not screen.is_terminal:
            await _watched_in_a_pipe(engine, run, found)
            return
        with Live(_shown(found), console=screen, auto_refresh=False) as live:
            while found.description.closed_at_ms is None:
                await asyncio.sleep(_LOOK_S)
                found = await overview_of(engine.handle(run), LAST_STEPS)
                live.update(_shown(found), refresh=True)


async def _watched_in_a_pipe(engine: Engine, run: str, found: RunOverview) -> None:
    """Prints the first line of the explanation whenever the causes change."""
    screen, said = console(), ""
    while True:
        causes = "; ".join(cause.text for cause in found.explanation.causes)
        if causes != said:
            said = causes
            screen.print(f"{moment(HostSources().now_ms())}  {printable(causes)}", soft_wrap=True)
        if found.description.closed_at_ms is not None:
            return
        await asyncio.sleep(_LOOK_S)
        found = await overview_of(engine.handle(run), LAST_STEPS)


def _shown(found: RunOverview) -> RenderableType:
    description, now_ms = found.description, HostSources().now_ms()
    end_ms = description.closed_at_ms or now_ms
    steps = found.steps
    parts: list[RenderableType] = [_head(found, now_ms), Text("")]
    parts.append(Text(printable(found.explanation.summary)))
    if steps:
        parts += [Text(""), table_of(steps, _columns(found, end_ms))]
    if found.is_cut:
        parts.append(Text(_cut(found), style="dim"))
    return Group(*parts)


def _cut(found: RunOverview) -> str:
    if not found.earlier:
        return "there are earlier steps: --all shows them"
    return f"{found.earlier:,} earlier tasks, timers and child runs: --all shows every step"


def _head(found: RunOverview, now_ms: int) -> Text:
    description = found.description
    version = f" version {description.version}" if description.version else ""
    head = Text.assemble(
        (description.run_id, "bold"), f"  {printable(description.program)}{version}  "
    )
    head.append(description.status, style=state_colour(description.status))
    facts = [f"created {age(description.created_at_ms, now_ms)}"]
    if description.closed_at_ms is not None:
        facts.append(f"took {took(description.closed_at_ms - description.created_at_ms)}")
    if description.key is not None:
        facts.append(f"key {printable(description.key)}")
    facts += [f"{printable(name)}={printable(value)}" for name, value in found.tags.items()]
    if description.closed_at_ms is None:
        facts.append(f"owner {description.owner or 'none'}")
    return head.append("\n" + ", ".join(facts), style="dim")


def state_colour(status: str) -> str:
    return {"completed": "green", "failed": "red", "diverged": "red", "parked": "red"}.get(
        status, "cyan"
    )


def _columns(found: RunOverview, end_ms: int) -> Sequence[Column[RecordedStep]]:
    codec, first_ms, times = JsonCodec(), found.description.created_at_ms, found.times
    return [
        Column("step", lambda step: Text("  " * (step.step.count(".") - 1) + step.step)),
        Column("what", lambda step: cell(step.what)),
        Column("state", lambda step: _state(step, times.get(step.step))),
        Column("", lambda step: _bar(step, times.get(step.step), first_ms, end_ms)),
        Column("time", lambda step: _time(step, end_ms), is_number=True),
        Column("input", lambda step: cell(_input(step, codec)), is_cut=True),
        Column("value", lambda step: cell(value_text(step, codec)), is_cut=True),
    ]


def _state(step: RecordedStep, times: StepRecord | None) -> Text:
    """How the step ended; of an open one, what it does now."""
    text = Text(_state_name(step, times), style=_COLOURS.get(step.outcome, "yellow"))
    return text.append(f", attempt {step.attempts}") if step.attempts > 1 else text


def _state_name(step: RecordedStep, times: StepRecord | None) -> str:
    if step.outcome is not StepOutcome.OPEN or times is None:
        return step.outcome.value
    return "parked" if times.is_parked else times.phases[-1][0].replace("_", " ")


def _bar(step: RecordedStep, times: StepRecord | None, first_ms: int, end_ms: int) -> Text:
    """What the step did when, on the scale of the run's life. What is too short for the scale is seen, too."""
    whole_ms = max(1, end_ms - first_ms)

    def place(at_ms: int) -> int:
        return min(BAR, max(0, (at_ms - first_ms) * BAR // whole_ms))

    bar = [_EMPTY] * BAR
    for kind, from_ms, to_ms in () if times is None else times.spans(end_ms):
        begun, ended = place(from_ms), place(to_ms)
        bar[begun:ended] = _SIGNS[kind] * (ended - begun)
    if times is not None and not "".join(bar).strip():
        at = min(place(step.begun_at_ms), BAR - 1)
        bar[at] = _SIGNS[times.phases[-1][0]]
    return Text("".join(bar), style=_COLOURS.get(step.outcome, "yellow"))


def _time(step: RecordedStep, end_ms: int) -> str:
    return took((step.ended_at_ms or end_ms) - step.begun_at_ms)


def _input(step: RecordedStep, codec: Codec) -> str:
    return "" if step.input is None else payload_text(step.input, codec)


def _plain_step(step: RecordedStep, times: StepRecord | None, codec: Codec) -> dict[str, object]:
    return {
        "step": step.step,
        "what": step.what,
        "outcome": step.outcome.value,
        "state": _state_name(step, times),
        "attempts": step.attempts,
        "begun_at_ms": step.begun_at_ms,
        "started_at_ms": step.started_at_ms,
        "ended_at_ms": step.ended_at_ms,
        "input": _input(step, codec),
        "value": value_text(step, codec),
    }
