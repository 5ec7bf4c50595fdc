"""`perdure dlq`: the events that a bus refused."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated

from cyclopts import Parameter

from perdure.cli.front_end import front_end
from perdure.cli.output import (
    Column,
    FormatOption,
    ReportOption,
    age,
    cell,
    console,
    print_json,
    print_values,
    printable,
)
from perdure.cli.store_setting import StoreOption, existing_store
from perdure.client.buses import MOST_LETTERS
from perdure.client.engine import Engine
from perdure.core.errors import InputError
from perdure.core.ids import parse_run_id
from perdure.host.clock import HostSources
from perdure.store.bus_table import DeadLetter

BusArgument = Annotated[str, Parameter(help="The name of a bus.")]
RunArgument = Annotated[str | None, Parameter(help="The id of a run; without, all runs.")]
SeqArgument = Annotated[int | None, Parameter(help="The number of an event; without, all events.")]


def list_letters(
    *,
    bus: Annotated[str | None, Parameter(help="Only those of this bus.")] = None,
    run: Annotated[str | None, Parameter(help="Only those of this run.")] = None,
    limit: Annotated[int, Parameter(help=f"At most so many, up to {MOST_LETTERS:,}.")] = 100,
    store: StoreOption = None,
    output: FormatOption = "table",
) -> int:
    """List dead letters. `-o ids` prints the ids of their runs."""
    if not 1 <= limit <= MOST_LETTERS:
        raise InputError(f"--limit is {limit}", f"pass a number from 1 to {MOST_LETTERS}")
    now_ms = HostSources().now_ms()
    columns: list[Column[DeadLetter]] = [
        Column("bus", lambda letter: cell(letter.bus)),
        Column("run", lambda letter: cell(letter.run_id)),
        Column("seq", lambda letter: str(letter.seq), is_number=True),
        Column("type", lambda letter: cell(letter.type)),
        Column("tries", lambda letter: f"{letter.tries:,}", is_number=True),
        Column("given up", lambda letter: age(letter.at_ms, now_ms)),
        Column("reason", lambda letter: cell(letter.reason), is_cut=True),
    ]
    print_values(_read(store, bus, run, limit), output, columns, lambda letter: letter.run_id)
    return 0


def show_letter(
    bus: BusArgument,
    run: Annotated[str, Parameter(help="The id of a run.")],
    seq: Annotated[int, Parameter(help="The number of an event.")],
    /,
    *,
    store: StoreOption = None,
    output: ReportOption = "table",
) -> int:
    """Show a dead letter. `perdure runs history RUN` prints the journal that its event is in."""
    (letter,) = _require(_matching(_read(store, bus, run, MOST_LETTERS), seq), bus)
    if output == "json":
        print_json(letter)
        return 0
    when = age(letter.at_ms, HostSources().now_ms())
    console().print(
        f"{printable(letter.bus)}  {letter.run_id}  {letter.seq}  {printable(letter.type)}\n"
        f"given up {when} after {letter.tries:,} tries: {printable(letter.reason)}",
        soft_wrap=True,
    )
    return 0


def replay_letters(
    bus: BusArgument,
    run: RunArgument = None,
    seq: SeqArgument = None,
    /,
    *,
    store: StoreOption = None,
) -> int:
    """Publish dead letters again. Those that the bus refuses again return to the list."""
    count = _act(bus, run, seq, store, lambda engine, found: engine.buses.replay_letters(found))
    console().print(f"{count:,} events are published again", soft_wrap=True)
    return 0


def drop(
    bus: BusArgument,
    run: RunArgument = None,
    seq: SeqArgument = None,
    /,
    *,
    store: StoreOption = None,
) -> int:
    """Delete dead letters. The events stay in the journals of their runs."""
    count = _act(bus, run, seq, store, lambda engine, found: engine.buses.drop_letters(found))
    console().print(f"{count:,} dead letters are dropped", soft_wrap=True)
    return 0


def _read(store: str | None, bus: str | None, run: str | None, limit: int) -> list[DeadLetter]:
    run_id = None if run is None else parse_run_id(run)

    async def read() -> list[DeadLetter]:
        async with existing_store(store) as opened:
            return await opened.buses.dead_letters(bus, run_id, None, limit)

    return asyncio.run(read())


def _act(
    bus: str,
    run: str | None,
    seq: int | None,
    store: str | None,
    act: Callable[[Engine, Sequence[DeadLetter]], Awaitable[int]],
) -> int:
    if seq is not None and run is None:
        raise InputError("an event without its run", "name the run before the event")

    async def act_on_all() -> int:
        count = 0
        async with front_end(store) as engine:
            after: DeadLetter | None = None
            while found := await engine.buses.dead_letters(
                bus, run, after=after, limit=MOST_LETTERS
            ):
                after = found[-1]
                count += await act(engine, _matching(found, seq))
        return count

    count = asyncio.run(act_on_all())
    if not count:
        _require([], bus)
    return count


def _matching(letters: Sequence[DeadLetter], seq: int | None) -> list[DeadLetter]:
    return [letter for letter in letters if seq is None or letter.seq == seq]


def _require(letters: list[DeadLetter], bus: str) -> list[DeadLetter]:
    if not letters:
        raise InputError(f"bus {bus!r} has no such dead letter", "see `perdure dlq list`")
    return letters
