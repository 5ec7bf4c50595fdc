"""What `perdure op abort` and `recover` do: they end operations from outside."""

from perdure.cli.op.looking import FAILED, console
from perdure.cli.op.picture import View, heard_of, participants, printable, span
from perdure.cli.op.place import named, opened, shown
from perdure.core.errors import OperationOver
from perdure.operations import LedgerData, OperationState
from perdure.operations.clock import SystemClock, moment


async def abort_one(place: str, text: str, reason: str | None, staleness_s: float) -> int:
    async with opened(place, staleness_s) as ledger:
        operation_id = await named(ledger, text)
        before = await ledger.read_operation(operation_id)
        if not before.is_over:
            await ledger.abort_operation(operation_id, reason)
            before = await ledger.read_operation(operation_id)
        if before.is_over and not before.aborted:
            raise OperationOver(
                f"operation {operation_id!r} is {before.operation_state}",
                f"see what became of it: perdure op show {shown(place)} {operation_id}",
            )
    screen = console()
    screen.print(f"{operation_id}: {printable(before.failure_reason or 'aborted')}", soft_wrap=True)
    view = View(moment(SystemClock()).at, staleness_s)
    screen.print(_who_acts(before, view, f"{shown(place)} {operation_id}"), soft_wrap=True)
    return 0


def _who_acts(data: LedgerData, view: View, words: str) -> str:
    """Who will see the flag, and what to do if nobody does."""
    if data.is_over:
        return "its clean-up is done"
    watch = f"See it end: perdure op watch {words}"
    silence = span(view.age_s(heard_of(data)))
    living = [f for f in data.stack if f.is_live and not view.is_stale(f.last_heartbeat)]
    if any(frame.owner == data.coordinator for frame in living):
        return f"{data.coordinator} coordinates its clean-up. {watch}"
    if living:
        return f"{participants(living)} will clean up; who sees it first coordinates. {watch}"
    if not view.is_stale(heard_of(data)):
        return f"whoever was heard of {silence} ago, without a call, will act on it. {watch}"
    return (
        f"nobody was heard of for {silence}, so nobody will act on it. "
        f"Clean up from here: perdure op recover {words}"
    )


async def recover_one(place: str, text: str, staleness_s: float) -> int:
    screen = console()
    async with opened(place, staleness_s) as ledger:
        operation_id = await named(ledger, text)
        screen.print(f"{operation_id}: watching who is alive", soft_wrap=True)
        data = await ledger.recover_operation(operation_id)
    if data.is_over:
        why = f": {printable(data.failure_reason)}" if data.failure_reason else ""
        screen.print(f"{operation_id}: {data.operation_state}, in backup{why}", soft_wrap=True)
    else:
        screen.print(f"{operation_id}: somebody carries it on, nothing to do", soft_wrap=True)
    return FAILED if data.operation_state is OperationState.FAILED else 0
