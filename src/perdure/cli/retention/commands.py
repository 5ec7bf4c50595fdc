"""`perdure retention list` and `run`: the policies of an engine."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated

import msgspec
from cyclopts import Parameter

from perdure import Engine, Retained, Retention
from perdure.authoring.durations import milliseconds
from perdure.cli.output import Column, ReportOption, cell, console, print_json, table_of, took
from perdure.cli.user_code import load_engine

EngineArgument = Annotated[str, Parameter(help="A module and an engine in it: orders.app:engine")]


class PolicyRow(msgspec.Struct, frozen=True):
    """A policy, and what it finds or did."""

    then: str
    program: str
    status: str
    scope: str
    after: str
    keep: int | None
    due: int
    done: int


def list_policies(engine: EngineArgument, /, *, output: ReportOption = "table") -> int:
    """List the policies of an engine, and how many runs are due under each. Changes nothing."""

    async def preview(opened: Engine) -> list[Retained]:
        return await opened.retention.preview()

    return _print(asyncio.run(_applied(engine, preview)), output)


def run_policies(engine: EngineArgument, /, *, output: ReportOption = "table") -> int:
    """Apply the policies of an engine now, as its hosts do in the background."""

    async def apply(opened: Engine) -> list[Retained]:
        return await opened.retention.run()

    return _print(asyncio.run(_applied(engine, apply)), output)


async def _applied(
    target: str, work: Callable[[Engine], Awaitable[list[Retained]]]
) -> list[Retained]:
    """What `work` returns with the engine open, which owns and executes nothing."""
    closed = load_engine(target)
    async with closed.replace(queues=(), hosts=False) as engine:
        return await work(engine)


def _print(found: list[Retained], output: str) -> int:
    rows = [_row(each) for each in found]
    if output == "json":
        print_json(rows)
    elif not rows:
        console().print("the engine has no policies: Engine(url, retention=[Retention(...)])")
    else:
        console().print(table_of(rows, _COLUMNS))
    return 0


def _row(found: Retained) -> PolicyRow:
    policy = found.policy
    return PolicyRow(
        *(policy.then, policy.program or "", policy.status or "", policy.scope or ""),
        _age(policy),
        policy.keep,
        *(found.due, found.done),
    )


def _age(policy: Retention) -> str:
    return "" if policy.after is None else took(milliseconds(policy.after, "after"))


_COLUMNS: list[Column[PolicyRow]] = [
    Column("then", lambda row: cell(row.then)),
    Column("program", lambda row: cell(row.program)),
    Column("status", lambda row: cell(row.status)),
    Column("scope", lambda row: cell(row.scope)),
    Column("after", lambda row: cell(row.after)),
    Column("keep", lambda row: cell("" if row.keep is None else f"{row.keep:,}"), is_number=True),
    Column("due", lambda row: cell(f"{row.due:,}"), is_number=True),
    Column("done", lambda row: cell(f"{row.done:,}"), is_number=True),
]
