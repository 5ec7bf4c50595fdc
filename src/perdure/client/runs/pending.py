"""Sends acts to runs that have not begun: they end or approve a run that no host owns."""

from typing import Final

from perdure.core.ids import Guid
from perdure.core.journal.events import ActType
from perdure.core.messages import AT_ONCE, Message
from perdure.host.host import Host
from perdure.host.transactions.joining import current
from perdure.store.rows.records import Run

_APPROVE: Final = f"act:{ActType.APPROVE}"
_ENDS: Final = ("cancel", f"act:{ActType.CANCEL}", f"act:{ActType.EMERGENCY_STOP}")


async def send_to_pending(host: Host, run: Run, kind: str, guid: Guid, payload: bytes) -> bool:
    """Commits: an act that ends or approves a pending run, and its place in line, which the act changes.

    False, and nothing is written, if the run has begun meanwhile or the act is another one: then it is sent as any
    message, and the run takes it when it begins. Inside a transaction too.
    """
    if run.epoch or kind not in (*_ENDS, _APPROVE) or current(host.dispatcher) is not None:
        return False
    arrival = host.dispatcher.sources.arrival(run.run_id)
    message = Message(run.run_id, guid, kind, AT_ONCE, arrival, payload=payload)
    if kind == _APPROVE:
        return await host.admissions.approve(message)
    return await host.admissions.call_up(message)
