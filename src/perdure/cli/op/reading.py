"""`perdure op list`, `show`, `watch` and `log`: read-only commands."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live

from perdure.cli.exit_codes import FAILED
from perdure.cli.op.ledgers import find_operation_id, ledger_argument, open_ledger
from perdure.cli.op.rendering import (
    HeartbeatClock,
    ListedOperation,
    operation_list,
    operation_tree,
)
from perdure.cli.output import console, printable
from perdure.core.errors import CorruptOperation, InvalidId, UnknownOperation
from perdure.core.operations.data import encode
from perdure.operations import Ledger, LedgerData, OperationState
from perdure.operations.clock import SystemClock, read_clock

_REFRESH_S = 0.25


async def print_list(ledger_name: str, staleness_s: float, *, with_backups: bool) -> int:
    async with open_ledger(ledger_name, staleness_s) as ledger:
        rows = await _rows(ledger, is_backup=True) if with_backups else []
        rows += await _rows(ledger, is_backup=False)
    screen = console()
    if not rows:
        what = "operations" if with_backups else "current operations"
        more = (
            ""
            if with_backups
            else f"; include backups with: perdure op list --all {ledger_argument(ledger_name)}"
        )
        screen.print(f"no {what} in {ledger_argument(ledger_name)}{more}", soft_wrap=True)
        return 0
    screen.print(operation_list(rows, _heartbeat_clock(staleness_s)))
    return 0


async def print_operation(ledger_name: str, text: str, staleness_s: float, *, is_json: bool) -> int:
    async with open_ledger(ledger_name, staleness_s) as ledger:
        operation_id = await find_operation_id(ledger, text)
        data = await ledger.read_operation(operation_id)
        is_backup = await _is_backup(ledger, data)
    screen = console()
    if is_json:
        screen.print(encode(data).decode(), end="", soft_wrap=True)
    else:
        screen.print(operation_tree(data, _heartbeat_clock(staleness_s), is_backup=is_backup))
    return 0


async def follow_operation(ledger_name: str, text: str, staleness_s: float) -> int:
    screen = console()
    async with open_ledger(ledger_name, staleness_s) as ledger:
        operation_id = await find_operation_id(ledger, text)
        watch = _watch_live if screen.is_terminal else _watch_piped
        with _removal_explained(operation_id):
            data = await watch(screen, ledger, operation_id, staleness_s)
    return FAILED if data.operation_state is OperationState.FAILED else 0


async def _watch_live(
    screen: Console, ledger: Ledger, operation_id: str, staleness_s: float
) -> LedgerData:
    """Redraws the tree in place; its last state stays on the screen."""
    with Live(console=screen, auto_refresh=False) as live:
        while True:
            data = await ledger.read_operation(operation_id)
            live.update(operation_tree(data, _heartbeat_clock(staleness_s)), refresh=True)
            if data.is_over:
                return data
            await asyncio.sleep(_REFRESH_S)


async def _watch_piped(
    screen: Console, ledger: Ledger, operation_id: str, staleness_s: float
) -> LedgerData:
    """Prints the tree after each change other than a heartbeat."""
    last: object = None
    while True:
        data = await ledger.read_operation(operation_id)
        if _shape(data) != last:
            last = _shape(data)
            screen.print(operation_tree(data, _heartbeat_clock(staleness_s)))
        if data.is_over:
            return data
        await asyncio.sleep(_REFRESH_S)


async def print_log(ledger_name: str, text: str, *, debug: bool, follow: bool) -> int:
    """With `follow`, reads until the operation is in the backups, where its log is final."""
    screen, printed = console(), 0
    async with open_ledger(ledger_name) as ledger:
        operation_id = await find_operation_id(ledger, text)
        while True:
            is_last = not follow or operation_id not in await ledger.operation_ids()
            with _removal_explained(operation_id):
                lines = await ledger.read_log(operation_id, debug=debug)
            for line in lines[printed:]:
                screen.print(printable(line), soft_wrap=True)
            printed = len(lines)
            if is_last:
                return 0
            await asyncio.sleep(_REFRESH_S)


@contextmanager
def _removal_explained(operation_id: str) -> Iterator[None]:
    """Explains the disappearance of an operation that this command had found."""
    try:
        yield
    except UnknownOperation as error:
        raise UnknownOperation(
            f"operation {operation_id!r} has ended and is no longer in the backups",
            "raise max_backups of its Ledger to keep more ended operations",
        ) from error


async def _rows(ledger: Ledger, *, is_backup: bool) -> list[ListedOperation]:
    rows = []
    for operation_id in await ledger.operation_ids(backups=is_backup):
        try:
            data = await ledger.read_operation(operation_id)
        except (CorruptOperation, InvalidId) as error:
            rows.append(ListedOperation(operation_id, None, is_backup, str(error)))
        except UnknownOperation:
            continue  # Removed from the backups since the ids were read.
        else:
            rows.append(ListedOperation(operation_id, data, is_backup))
    return rows


async def _is_backup(ledger: Ledger, data: LedgerData) -> bool:
    return data.is_over and data.operation_id not in await ledger.operation_ids()


def _heartbeat_clock(staleness_s: float) -> HeartbeatClock:
    return HeartbeatClock(read_clock(SystemClock()).at, staleness_s)


def _shape(data: LedgerData) -> object:
    frames = [(frame.call_id, frame.state, frame.resources) for frame in data.stack]
    return (data.operation_state, data.aborted, data.temp_resources, frames)
