"""`perdure runs history --follow`: prints each entry of a journal when it is durable, to the end of the run."""

import asyncio
import json
import sys
from collections.abc import Callable
from typing import TypeVar

from perdure.cli.output import Format, console, plain, print_lines
from perdure.cli.runs.reading import find_run
from perdure.cli.store_setting import existing_store
from perdure.core.errors import InputError
from perdure.core.journal.entry import Entry

S = TypeVar("S")

ENTRIES_PER_READ = 1000
_LOOK_S = 0.5


def require_lines(output: Format) -> None:
    if output == "json":
        raise InputError("--follow prints as the run goes on", "pass -o jsonl")


async def follow_journal(
    url: str | None, name: str, on_entries: Callable[[list[Entry]], None]
) -> None:
    """Calls with the entries in order, a bounded number at a time. Ends with the run; a parked run has not ended."""
    async with existing_store(url) as store:
        run_id, seq = await find_run(store, name), 0
        # The row is read first: when it says that the run is over, all entries are there.
        while (run := await store.run(run_id)) is not None:
            entries = await store.entries(run_id, seq, min(run.seq, seq + ENTRIES_PER_READ))
            if entries:
                seq = entries[-1].seq + 1
                on_entries(entries)
                sys.stdout.flush()
            elif run.is_over:
                return
            else:
                await asyncio.sleep(_LOOK_S)


def print_entries(
    shown: list[S], output: Format, id_of: Callable[[S], str], parts: Callable[[S], list[str]]
) -> None:
    """Prints entries as lines. Of the parts of a line a terminal shortens the one before the last."""
    if output == "ids":
        print_lines(map(id_of, shown))
    elif output == "jsonl":
        print_lines(json.dumps(plain(each), ensure_ascii=False) for each in shown)
    else:
        screen = console()
        for each in shown:
            *first, what, last = parts(each)
            room = screen.width - len("  ".join([*first, "", last]))
            cut = what if len(what) <= room else f"{what[: max(0, room - 1)]}…"
            screen.print("  ".join([*first, cut, last]).rstrip(), no_wrap=True, overflow="ellipsis")
