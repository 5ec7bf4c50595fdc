"""What `perdure op list`, `show`, `watch` and `log` do: they read, and change nothing."""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live

from perdure.cli.op.picture import Row, View, printable, table_of, tree_of
from perdure.cli.op.place import named, opened, shown
from perdure.core.errors import CorruptOperation, InvalidId, UnknownOperation
from perdure.core.operations.data import encode
from perdure.operations import Ledger, LedgerData, OperationState
from perdure.operations.clock import SystemClock, moment

FAILED = 1
"""Exit code of a command that saw the end of an operation, which failed."""

_REFRESH_S = 0.25
_PIPED_WIDTH = 1000
"""Lines in a pipe are as long as they are: nothing is folded or cut."""


def console() -> Console:
    """Colours and folding in a terminal; plain lines in a pipe, whatever its encoding lacks."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    found = Console(highlight=False, markup=False, emoji=False)
    if not found.is_terminal:
        found.width = _PIPED_WIDTH
    return found


async def list_all(place: str, staleness_s: float, *, with_backups: bool) -> int:
    async with opened(place, staleness_s) as ledger:
        rows = await _rows(ledger, is_backup=True) if with_backups else []
        rows += await _rows(ledger, is_backup=False)
    screen = console()
    if not rows:
        where = "in" if with_backups else "under way in"
        more = "" if with_backups else f"; those in backup: perdure op list --all {shown(place)}"
        screen.print(f"no operations {where} {shown(place)}{more}", soft_wrap=True)
        return 0
    screen.print(table_of(rows, _view(staleness_s)))
    return 0


async def show_one(place: str, text: str, staleness_s: float, *, is_json: bool) -> int:
    async with opened(place, staleness_s) as ledger:
        operation_id = await named(ledger, text)
        data = await ledger.read_operation(operation_id)
        is_backup = await _is_backup(ledger, data)
    screen = console()
    if is_json:
        screen.print(encode(data).decode(), end="", soft_wrap=True)
    else:
        screen.print(tree_of(data, _view(staleness_s), is_backup=is_backup))
    return 0


async def watch_one(place: str, text: str, staleness_s: float) -> int:
    screen = console()
    async with opened(place, staleness_s) as ledger:
        operation_id = await named(ledger, text)
        watch = _watch_live if screen.is_terminal else _watch_piped
        with _kept(operation_id):
            data = await watch(screen, ledger, operation_id, staleness_s)
    return FAILED if data.operation_state is OperationState.FAILED else 0


async def _watch_live(
    screen: Console, ledger: Ledger, operation_id: str, staleness_s: float
) -> LedgerData:
    """The tree over and over in one place; what it was last stays on the screen."""
    with Live(console=screen, auto_refresh=False) as live:
        while True:
            data = await ledger.read_operation(operation_id)
            live.update(tree_of(data, _view(staleness_s)), refresh=True)
            if data.is_over:
                return data
            await asyncio.sleep(_REFRESH_S)


async def _watch_piped(
    screen: Console, ledger: Ledger, operation_id: str, staleness_s: float
) -> LedgerData:
    """The tree whenever more has changed than heartbeats."""
    last: object = None
    while True:
        data = await ledger.read_operation(operation_id)
        if _shape(data) != last:
            last = _shape(data)
            screen.print(tree_of(data, _view(staleness_s)))
        if data.is_over:
            return data
        await asyncio.sleep(_REFRESH_S)


async def print_log(place: str, text: str, *, debug: bool, follow: bool) -> int:
    """To follow is to read until the operation is in backup, where its log grows no more."""
    screen, told = console(), 0
    async with opened(place) as ledger:
        operation_id = await named(ledger, text)
        while True:
            is_last = not follow or operation_id not in await ledger.operation_ids()
            with _kept(operation_id):
                lines = await ledger.read_log(operation_id, debug=debug)
            for line in lines[told:]:
                screen.print(printable(line), soft_wrap=True)
            told = len(lines)
            if is_last:
                return 0
            await asyncio.sleep(_REFRESH_S)


@contextmanager
def _kept(operation_id: str) -> Iterator[None]:
    """Say what it means that an operation which was there is not there any more."""
    try:
        yield
    except UnknownOperation as error:
        raise UnknownOperation(
            f"operation {operation_id!r} is over, and not in backup any more",
            "let its ledger keep more backups (max_backups) to see how operations ended",
        ) from error


async def _rows(ledger: Ledger, *, is_backup: bool) -> list[Row]:
    rows = []
    for operation_id in await ledger.operation_ids(backups=is_backup):
        try:
            data = await ledger.read_operation(operation_id)
        except (CorruptOperation, InvalidId) as error:
            rows.append(Row(operation_id, None, is_backup, str(error)))
        except UnknownOperation:
            continue  # It is gone by now.
        else:
            rows.append(Row(operation_id, data, is_backup))
    return rows


async def _is_backup(ledger: Ledger, data: LedgerData) -> bool:
    return data.is_over and data.operation_id not in await ledger.operation_ids()


def _view(staleness_s: float) -> View:
    return View(moment(SystemClock()).at, staleness_s)


def _shape(data: LedgerData) -> object:
    frames = [(frame.call_id, frame.state, frame.resources) for frame in data.stack]
    return (data.operation_state, data.aborted, data.temp_resources, frames)
