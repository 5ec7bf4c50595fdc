"""`perdure runs fork`, `retry` and `diff`: another way from a step on, and how two runs differ."""

import asyncio
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter
from rich.text import Text

from perdure import Actor, InputError
from perdure.cli.exit_codes import FAILED
from perdure.cli.front_end import front_end, json_value
from perdure.cli.output import Column, ReportOption, cell, console, plain, print_json, table_of
from perdure.cli.store_setting import StoreOption
from perdure.cli.user_code import EngineStoreOption, load_engine
from perdure.client.engine_summary import engine_parts
from perdure.client.runs.comparing import RunDiff, StepDiff
from perdure.core.runs.diff import StepChange

RunArgument = Annotated[str, Parameter(help="The id of a run.")]
TargetArgument = Annotated[
    str, Parameter(help="module:name of a perdure.Engine, whose module has the program.")
]


@Parameter(name="*")
@dataclass(frozen=True)
class ActorOptions:
    """Who forks, and why."""

    reason: Annotated[str, Parameter(help="The reason, for the journal.")] = ""
    as_: Annotated[str, Parameter(name="--as", help="Who acts: NAME, or NAME:ROLE.")] = ""
    id: Annotated[str | None, Parameter(help="Two forks with the same id are one.")] = None
    store: EngineStoreOption = None

    @property
    def keywords(self) -> dict[str, Any]:
        """What every fork takes."""
        name, _, role = self.as_.partition(":")
        by = Actor(name, role) if name else None
        return {"reason": self.reason, "by": by, "id": self.id}

    def url(self, target: str) -> str:
        """The store; imports the module that has the program."""
        engine = load_engine(target)
        return self.store or engine_parts(engine).url


def fork(
    run: RunArgument,
    target: TargetArgument,
    step: str,
    /,
    *,
    set_: Annotated[tuple[str, ...], Parameter(name="--set", negative=())] = (),
    signals: bool = True,
    dry_run: bool = False,
    options: ActorOptions | None = None,
) -> int:
    """Start a new run that begins like this one, and executes a step again. Prints its id.

    Parameters
    ----------
    step
        The id of the step, or the name of a task that the run called once.
    set_
        An outcome for an open step that is not executed, as STEP=JSON; may be repeated.
    signals
        Send signals to the fork that the run received later.
    dry_run
        Print what the fork would execute again, and store nothing.
    """
    how: dict[str, Any] = {"set": dict(map(_setting, set_)), "signals": signals}
    chosen = options or ActorOptions()
    url = chosen.url(target)

    async def act() -> int:
        async with front_end(url) as engine:
            handle = engine.handle(run)
            if dry_run:
                print_json(await handle.preview_fork(step, **how, id=chosen.id))
                return 0
            new = await handle.fork(step, **how, **chosen.keywords)
            print(new.run_id)
            return 0

    return asyncio.run(act())


def retry(
    run: RunArgument,
    target: TargetArgument,
    /,
    *,
    options: ActorOptions | None = None,
) -> int:
    """Start a new run with the input of this one. Prints its id."""
    chosen = options or ActorOptions()
    url = chosen.url(target)

    async def act() -> str:
        async with front_end(url) as engine:
            handle = engine.handle(run)
            return (await handle.retry(**chosen.keywords)).run_id

    print(asyncio.run(act()))
    return 0


def diff(
    a: RunArgument, b: RunArgument, /, *, store: StoreOption = None, output: ReportOption = "table"
) -> int:
    """Compare two runs step by step. The exit code is 1 if they differ."""

    async def compare() -> RunDiff:
        async with front_end(store) as engine:
            return await engine.diff(a, b)

    found = asyncio.run(compare())
    if output == "json":
        print_json(found)
    else:
        screen = console()
        if found.changes:
            screen.print(table_of(found.changes, _COLUMNS))
        where = "the journals are the same"
        if found.first is not None:
            where = f"the journals part at entry {found.first}"
        screen.print(f"{len(found.changes)} of {len(found.steps)} steps differ; {where}")
    return FAILED if found.changes else 0


def _setting(text: str) -> tuple[str, Any]:
    step, equals, value = text.partition("=")
    if not step or not equals:
        raise InputError(f"--set {text}", "write --set STEP=JSON")
    return step, json_value(value)


def _change(step: StepDiff) -> Text:
    return Text(step.change.value, style="green" if step.change is StepChange.SAME else "yellow")


def _side(side: Any) -> Text:
    if side is None:
        return Text("-")
    output = "" if side.output is None else msgspec.json.encode(plain(side.output)).decode()
    return cell(f"{side.status} {output}")


_COLUMNS: list[Column[StepDiff]] = [
    Column("step", lambda step: cell(step.step)),
    Column("change", _change),
    Column("a", lambda step: _side(step.a), is_cut=True),
    Column("b", lambda step: _side(step.b), is_cut=True),
]
