"""Explains a run from its store alone: reads what the explanation needs to know."""

from collections.abc import Callable, Sequence

from perdure.authoring.values.failures import failure_text
from perdure.client.hosts import HostState, host_list
from perdure.client.runs.description import DescribedRun, describe_closed, describe_with_journal
from perdure.core.admission.place import PlaceInLine
from perdure.core.admission.rules import NO_SLOT, in_force, parse_slot
from perdure.core.codec import Codec
from perdure.core.ids import HostId, RunId
from perdure.core.journal import events as e
from perdure.core.journal.entry import Entry
from perdure.core.runs.description import Description
from perdure.core.runs.explaining import Explanation, explain
from perdure.core.runs.obstacles import (
    Cause,
    EarlySignal,
    HostFact,
    QueueFact,
    RunSituation,
    causes_of,
)
from perdure.core.runs.pausing import pause_of
from perdure.core.runs.waits import ChildWait, SignalWait
from perdure.host.runs.dispatcher import Dispatcher
from perdure.store.admission_table import DELAYED, READY, WAITING
from perdure.store.rows.records import Run

MOST_CHILDREN = 20
"""Child runs that one explanation looks into at most."""

WATCH_MS = 5000
"""How long a host on another machine is watched for a heartbeat at most."""

LAST_ENTRIES = 2000
"""Entries that are read of a closed run: a cancellation whose request is older has a reason in the last one."""

StatusOf = Callable[[Run], str]


async def explain_run(dispatcher: Dispatcher, run_id: RunId, status_of: StatusOf) -> Explanation:
    """Why the run does not move. Of the child runs that it waits for, says the same."""
    return explain(await situation_of(dispatcher, run_id, status_of))


async def situation_of(dispatcher: Dispatcher, run_id: RunId, status_of: StatusOf) -> RunSituation:
    """What the explanation of a run needs to know, its description included."""
    return await _Reading(dispatcher, status_of).situation(run_id)


class _Reading:
    """What one explanation reads: hosts and queues once, and each run that it comes to."""

    def __init__(self, dispatcher: Dispatcher, status_of: StatusOf) -> None:
        self._dispatcher = dispatcher
        self._store = dispatcher.store
        self.status_of = status_of
        self._hosts: list[HostState] | None = None
        self._seen: set[RunId] = set()

    async def situation(self, run_id: RunId) -> RunSituation:
        self._seen.add(run_id)
        store, codec = self._store, self._dispatcher.codec
        now_ms = self._dispatcher.sources.now_ms()
        run = await store.run(run_id)
        if run is not None and run.is_over:
            last = await store.entries(run_id, max(0, run.seq - LAST_ENTRIES), run.seq)
            description = describe_closed(run, self.status_of(run), last)
            return RunSituation(
                description=description, now_ms=now_ms, error=_error(codec, last[-1:])
            )
        described = await describe_with_journal(self._dispatcher, run_id, self.status_of)
        description, entries = described.description, described.entries
        if description.closed_at_ms is not None:
            return RunSituation(
                description=description, now_ms=now_ms, error=_error(codec, entries[-1:])
            )
        hosts = await self._host_facts()
        queues = await store.queue_rows(now_ms)
        dead = [
            reason or kind.kind
            for kind, state, reason in await store.messages(run_id)
            if state == "dead"
        ]
        return RunSituation(
            description=description,
            now_ms=now_ms,
            hosts=hosts,
            queues={row.queue: QueueFact(row.due, row.claimed) for row in queues},
            early=_early(described),
            dead_letters=dead,
            place=await self._place(run),
            pause=None if description.pause_reason is None else pause_of(entries),
            children={child: await self._child(child) for child in self._children(description)},
            locked_ms=await store.locked_ms(),
        )

    async def _place(self, run: Run | None) -> PlaceInLine | None:
        """The place in line of a pending run."""
        if run is None or run.epoch:
            return None
        admission = self._store.admission
        pending = await admission.pending(run.run_id)
        if pending is None:
            return None
        if pending.state != READY or pending.slot == NO_SLOT:
            is_delayed = pending.state == DELAYED
            ready_at_ms = pending.ready_at_ms if is_delayed else None
            return PlaceInLine(pending.state == WAITING, ready_at_ms)
        standing, setting = await admission.standing(pending.slot)
        rules = in_force(standing.rules, setting)
        name, _, key = parse_slot(pending.slot)
        now_ms, pace = self._dispatcher.sources.now_ms(), rules.pace
        wait_ms = 0 if pace is None else pace.wait_ms(standing.arrival_us, now_ms)
        return PlaceInLine(
            limit=name,
            key=key,
            holding=standing.running,
            running=rules.running,
            waiting=standing.waiting,
            rate_until_ms=now_ms + wait_ms if wait_ms else None,
        )

    def _children(self, description: Description) -> Sequence[RunId]:
        """The child runs to look into: chains of them end at the limit."""
        waited = [wait.run_id for wait in description.waits if isinstance(wait, ChildWait)]
        room = max(0, MOST_CHILDREN - len(self._seen))
        return [run_id for run_id in waited if run_id not in self._seen][:room]

    async def _child(self, run_id: RunId) -> tuple[Cause, ...]:
        end = await self._store.chain_end(run_id)
        return tuple(causes_of(await self.situation(run_id if end is None else end.run_id)))

    async def _host_facts(self) -> dict[HostId, HostFact]:
        if self._hosts is None:
            self._hosts = await host_list(self._store, WATCH_MS)
        return {host.host: HostFact(host.host, host.is_alive, host.queues) for host in self._hosts}


def _early(described: DescribedRun) -> list[EarlySignal]:
    """Signals that were delivered, and that the program neither has received nor waits for."""
    state, waits = described.steps.state, described.description.waits
    awaited = {wait.name for wait in waits if isinstance(wait, SignalWait)}
    early = {key for key in state.deliveries if key not in state.consumed and key[0] not in awaited}
    if not early:
        return []
    events = ((entry.event, entry.at_ms) for entry in described.entries)
    return [
        EarlySignal(event.signal_name, at_ms)
        for event, at_ms in events
        if isinstance(event, e.SignalDelivered) and (event.signal_name, event.delivery_id) in early
    ]


def _error(codec: Codec, entries: Sequence[Entry]) -> str:
    last = entries[-1].event if entries else None
    return _error_text(codec, last.payload) if isinstance(last, e.ExecutionFailed) else ""


def _error_text(codec: Codec, payload: bytes | None) -> str:
    failure = failure_text(codec, payload)
    return f"{failure.type_name}: {failure.message}" if failure.message else failure.type_name
