"""`perdure limits list`, `show`, `set` and `reset`: limits as the store has them, without the user's code."""

import asyncio
from typing import Annotated

from cyclopts import Parameter
from rich.text import Text

from perdure import InputError, LimitInfo, Rate
from perdure.cli.exit_codes import FAILED
from perdure.cli.front_end import front_end
from perdure.cli.output import Column, FormatOption, cell, console, print_values, printable
from perdure.cli.store_setting import StoreOption, existing_store
from perdure.client.limits import read_limits

NameArgument = Annotated[str, Parameter(help="The name of a limit.")]


def list_limits(*, store: StoreOption = None, output: FormatOption = "table") -> int:
    """List the limits that starts have met: what each allows, how many runs hold it, and how many wait."""
    return _print(store, output, "")


def show_limit(
    name: NameArgument, /, *, store: StoreOption = None, output: FormatOption = "table"
) -> int:
    """Show a limit in each scope and for each key."""
    return _print(store, output, name)


def set_(
    name: NameArgument,
    /,
    *,
    running: Annotated[int | None, Parameter(help="Runs that may be open.")] = None,
    queued: Annotated[int | None, Parameter(help="Runs that may wait.")] = None,
    rate: Annotated[
        str | None, Parameter(help="Starts per second as count/seconds, such as 500/60.")
    ] = None,
    reason: Annotated[str, Parameter(help="Why; `show` says it.")] = "",
    store: StoreOption = None,
) -> int:
    """Set numbers of a limit in all scopes and for all keys. They replace those of the code until they are reset."""
    values = {"running": running, "queued": queued, "rate": _rate(rate), "reason": reason}

    async def change() -> None:
        async with front_end(store) as engine:
            await engine.limits.set(name, **values)  # type: ignore[arg-type]

    asyncio.run(change())
    console().print(f"set limit {printable(name)!r}; the code's numbers hold again after a reset")
    return 0


def reset(name: NameArgument, /, *, store: StoreOption = None) -> int:
    """Let the numbers of the code hold again."""

    async def change() -> bool:
        async with front_end(store) as engine:
            return await engine.limits.reset(name)

    if asyncio.run(change()):
        console().print(f"reset limit {printable(name)!r}")
        return 0
    console().print(f"nothing was set for limit {printable(name)!r}")
    return FAILED


def _rate(text: str | None) -> Rate | None:
    if text is None:
        return None
    count, slash, seconds = text.partition("/")
    try:
        return Rate(int(count), per=float(seconds if slash else 1))
    except ValueError:
        raise InputError(f"--rate is {text!r}", "write count/seconds, such as 500/60") from None


def _print(store: str | None, output: str, name: str) -> int:
    async def read() -> list[LimitInfo]:
        async with existing_store(store) as opened:
            return await read_limits(opened, name)

    columns: list[Column[LimitInfo]] = [
        Column("limit", lambda each: cell(each.name)),
        Column("scope", lambda each: cell("all" if each.scope is None else each.scope or "-")),
        Column("key", lambda each: cell(each.key or "-"), is_cut=True),
        Column("open", lambda each: f"{each.holding:,}", is_number=True),
        Column("of", lambda each: _number(each.running), is_number=True),
        Column("waiting", lambda each: f"{each.waiting:,}", is_number=True),
        Column("rate", _shown_rate),
        Column("set", lambda each: cell(each.reason or "yes" if each.is_set else "-"), is_cut=True),
    ]
    print_values(asyncio.run(read()), output, columns, lambda each: each.name)  # type: ignore[arg-type]
    return 0


def _number(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def _shown_rate(limit: LimitInfo) -> Text:
    if limit.rate is None or limit.per_ms is None:
        return Text("-")
    return Text(f"{limit.rate:,}/{limit.per_ms / 1000:g} s")
