"""`perdure op abort` and `recover`: end operations from outside."""

from perdure.cli.exit_codes import FAILED
from perdure.cli.op.ledgers import find_operation_id, ledger_argument, open_ledger
from perdure.cli.op.rendering import HeartbeatClock, last_heartbeat_of, participants
from perdure.cli.output import console, printable, span
from perdure.core.errors import OperationOver
from perdure.operations import LedgerData, OperationState
from perdure.operations.clock import SystemClock, read_clock


async def abort_and_report(
    ledger_name: str, text: str, reason: str | None, staleness_s: float
) -> int:
    async with open_ledger(ledger_name, staleness_s) as ledger:
        operation_id = await find_operation_id(ledger, text)
        before = await ledger.read_operation(operation_id)
        if not before.is_over:
            await ledger.abort_operation(operation_id, reason)
            before = await ledger.read_operation(operation_id)
        if before.is_over and not before.aborted:
            raise OperationOver(
                f"operation {operation_id!r} is {before.operation_state}",
                f"see its outcome with: perdure op show {ledger_argument(ledger_name)} {operation_id}",
            )
    screen = console()
    screen.print(f"{operation_id}: {printable(before.failure_reason or 'aborted')}", soft_wrap=True)
    clock = HeartbeatClock(read_clock(SystemClock()).at, staleness_s)
    screen.print(
        _who_acts(before, clock, f"{ledger_argument(ledger_name)} {operation_id}"), soft_wrap=True
    )
    return 0


def _who_acts(data: LedgerData, clock: HeartbeatClock, arguments: str) -> str:
    """Who will clean up after an abort; the command to run if no participant is alive."""
    if data.is_over:
        return "The clean-up is done."
    watch = f"Follow it with: perdure op watch {arguments}"
    silence = span(clock.age_s(last_heartbeat_of(data)))
    living = [f for f in data.stack if f.is_live and not clock.is_stale(f.last_heartbeat)]
    if any(frame.owner == data.coordinator for frame in living):
        return f"{data.coordinator} coordinates the clean-up. {watch}"
    if living:
        return f"{participants(living)} will clean up; the first to notice coordinates. {watch}"
    if not clock.is_stale(last_heartbeat_of(data)):
        return (
            f"A participant without calls sent a heartbeat {silence} ago and will clean up. {watch}"
        )
    return (
        f"No participant has sent a heartbeat for {silence}, so none will clean up. "
        f"Clean up with: perdure op recover {arguments}"
    )


async def recover_and_report(ledger_name: str, text: str, staleness_s: float) -> int:
    screen = console()
    async with open_ledger(ledger_name, staleness_s) as ledger:
        operation_id = await find_operation_id(ledger, text)
        screen.print(f"{operation_id}: checking which participants are alive", soft_wrap=True)
        data = await ledger.recover_operation(operation_id)
    if data.is_over:
        why = f": {printable(data.failure_reason)}" if data.failure_reason else ""
        screen.print(f"{operation_id}: {data.operation_state}, in backups{why}", soft_wrap=True)
    else:
        screen.print(f"{operation_id}: its participants are alive, nothing to do", soft_wrap=True)
    return FAILED if data.operation_state is OperationState.FAILED else 0
