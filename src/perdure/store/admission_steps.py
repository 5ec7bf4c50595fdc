"""The transactions of admission as sequences of statements, which both databases execute.

A step asks for a statement by name and gets its rows. So the order of locks and writes is written once: limits first,
in the order of their slots, then new runs in the order of their keys, then places in line before the rows of their
runs.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from perdure.core.admission.deciding import Fate, Standing, Verdict, judge, room, round_robin
from perdure.core.admission.rules import NO_SLOT, Rules, Setting, in_force
from perdure.core.graph.identity import mailbox_of
from perdure.core.ids import HostId, RunId
from perdure.core.journal.entry import genesis
from perdure.core.messages import AT_ONCE, Message
from perdure.core.replay.identity import cancel_guid
from perdure.core.streams.chunks import ROOT
from perdure.store.admission_table import (
    DELAYED,
    MOST_ADMITTED,
    MOST_SLOTS,
    READY,
    Admitted,
    Entered,
    Entrant,
    Pending,
    SlotStanding,
    StoredSetting,
)
from perdure.store.commit.bundle import FIRST_EPOCH
from perdure.store.commit.graph_index import KEY
from perdure.store.rows.records import Run, enrolled_rows
from perdure.store.rows.runs import run_from

T = TypeVar("T")

REPLACED = "another start replaced it"
MOST_REPLACED = 1000
"""Waiting runs that one start cancels at most."""


class AskStore(NamedTuple):
    """A statement to execute: with many `rows` of values, or once with named `values`."""

    name: str
    rows: Sequence[tuple[Any, ...]] | None = None
    values: Mapping[str, Any] | None = None


Steps = Generator[AskStore, list[Any], T]
"""Asks for statements, receives their rows, and returns what the transaction did."""


class _Known(NamedTuple):
    """A limit under its lock."""

    rules: Rules
    served: str
    standing: Standing


def _known(row: Any) -> _Known:
    _, rules, served, arrival_us, body = row
    setting = None if body is None else msgspec.json.decode(body, type=Setting)
    declared = msgspec.json.decode(rules, type=Rules)
    return _Known(in_force(declared, setting), served, Standing(arrival_us=arrival_us))


def _count(slot: str, known: _Known) -> Steps[None]:
    rules, standing = known.rules, known.standing
    most = {"running": rules.running or 0, "waiting": 1 if rules.queued is None else rules.queued}
    ((running, ready, waiting),) = yield AskStore("count_slot", values={"slot": slot, **most})
    standing.running, standing.ready, standing.waiting = running, ready, waiting


def enter(entrants: Sequence[Entrant], owner: HostId | None, now_ms: int) -> Steps[list[Entered]]:
    """Decide on starts. Those of one slot are decided in their order."""
    limits = yield from _know_limits(entrants)
    verdicts = []
    for entrant in entrants:
        is_ready = entrant.state == READY
        known = limits.get(entrant.slot)
        if known is not None:
            verdict = judge(known.rules, known.standing, now_ms, is_ready=is_ready)
        else:
            verdict = Verdict(Fate.ADMIT if is_ready else Fate.WAIT)
        verdicts.append(verdict)
    # Before runs of this transaction are in the line.
    outcomes: dict[int, Entered] = {}
    for number, (entrant, verdict) in enumerate(zip(entrants, verdicts, strict=True)):
        if verdict.fate is Fate.REJECT:
            outcomes[number] = Entered(Fate.REJECT, entrant.run.run_id, verdict.retry_ms)
        elif verdict.fate is Fate.JOIN and (holder := (yield from _holder(entrant.slot))):
            outcomes[number] = Entered(Fate.JOIN, holder)
    cancels: dict[str, tuple[tuple[Message, HostId | None], ...]] = {}
    for entrant, verdict in zip(entrants, verdicts, strict=True):
        if verdict.fate is Fate.REPLACE and entrant.slot not in cancels:
            cancels[entrant.slot] = yield from _replace(entrant.slot, now_ms)
    made = [number for number in range(len(entrants)) if number not in outcomes]
    outcomes |= yield from _add(entrants, verdicts, made, owner, now_ms)
    yield from _charge(limits)
    return [
        msgspec.structs.replace(outcomes[number], cancels=cancels.pop(entrant.slot, ()))
        if outcomes[number].fate is Fate.REPLACE
        else outcomes[number]
        for number, entrant in enumerate(entrants)
    ]


def _know_limits(entrants: Sequence[Entrant]) -> Steps[dict[str, _Known]]:
    """The limits of the starts, locked and counted."""
    rows = {
        entrant.slot: (entrant.slot, entrant.name, msgspec.json.encode(entrant.rules).decode())
        for entrant in entrants
        if entrant.slot != NO_SLOT
    }
    if not rows:
        return {}
    known = yield AskStore("lock_limits", rows=[(slot,) for slot in sorted(rows)])
    found = {row[0]: row for row in known}
    # Most starts find their limit as it is, and write nothing here.
    news = [
        row for slot, row in sorted(rows.items()) if slot not in found or found[slot][1] != row[2]
    ]
    if news:
        found |= {row[0]: row for row in (yield AskStore("know_limits", rows=news))}
    limits = {slot: _known(row) for slot, row in found.items()}
    for slot in sorted(limits):
        yield from _count(slot, limits[slot])
    return limits


def _holder(slot: str) -> Steps[RunId | None]:
    """The run that a start of this slot joins: the oldest one that holds it, else the first in line."""
    rows = yield AskStore("select_holder_to_join", values={"slot": slot})
    if not rows:
        rows = yield AskStore("select_in_line", values={"slot": slot, "limit": 1})
    return RunId(rows[0][0]) if rows else None


def _replace(slot: str, now_ms: int) -> Steps[tuple[tuple[Message, HostId | None], ...]]:
    """Cancel the run that holds the slot longest, and those that wait for it."""
    cancels: list[tuple[Message, HostId | None]] = []
    for run_id, chain, owner in (yield AskStore("select_holders", values={"slot": slot})):
        guid = cancel_guid(RunId(chain or run_id))
        cancels.append((_cancel(RunId(run_id), guid, now_ms), owner))
    waiting = yield AskStore("select_in_line", values={"slot": slot, "limit": MOST_REPLACED})
    if waiting:
        yield AskStore("call_up", rows=[(run_id,) for (run_id,) in waiting])
        yield AskStore("give_up_slots", rows=[(run_id,) for (run_id,) in waiting])
    for (run_id,) in waiting:
        cancels.append((_cancel(RunId(run_id), cancel_guid(RunId(run_id)), now_ms), None))
    if cancels:
        yield AskStore("send", rows=[_message_row(message) for message, _ in cancels])
    return tuple(cancels)


def _cancel(run_id: RunId, guid: Any, now_ms: int) -> Message:
    return Message(run_id, guid, "cancel", AT_ONCE, now_ms, payload=REPLACED.encode())


def _add(
    entrants: Sequence[Entrant],
    verdicts: Sequence[Verdict],
    made: Sequence[int],
    owner: HostId | None,
    now_ms: int,
) -> Steps[dict[int, Entered]]:
    """Insert the runs that are admitted or wait; find those that have the keys of the others."""
    if not made:
        return {}
    made = sorted(made, key=lambda number: _place(entrants[number]))
    handed = [
        (run.replaces, run.run_id)
        for number in made
        if (run := entrants[number].run).replaces is not None
    ]
    if handed:
        yield AskStore("hand_over_keys", rows=handed)
    rows = [_run_row(entrants[number], verdicts[number], owner) for number in made]
    added = {row[0] for row in (yield AskStore("add_runs", rows=rows))}
    outcomes: dict[int, Entered] = {}
    messages, places, enrolled, tagged = [], [], [], []
    for number in made:
        entrant, verdict = entrants[number], verdicts[number]
        run = entrant.run
        if run.run_id not in added:
            values = {
                **{"run_id": run.run_id, "scope": run.scope},
                **{"program": run.program, "key": run.key},
            }
            ((taken,),) = yield AskStore("select_taken", values=values)
            outcomes[number] = Entered(None, RunId(taken))
            continue
        outcomes[number] = Entered(verdict.fate, run.run_id, verdict.retry_ms)
        messages.append(_message_row(entrant.message))
        enrolled += enrolled_rows(run)
        if verdict.fate is not Fate.ADMIT:
            places.append(_pending_row(entrant, verdict, now_ms))
            tagged += _tag_rows(entrant)
    if messages:
        yield AskStore("send", rows=messages)
    if places:
        yield AskStore("wait_in_line", rows=places)
    if enrolled:
        yield AskStore("enrol_runs", rows=enrolled)
    if tagged:
        yield AskStore("tag_waiting", rows=tagged)
    return outcomes


def _place(entrant: Entrant) -> tuple[str, str, str]:
    run = entrant.run
    return run.key or "", run.scope, run.run_id


def _run_row(entrant: Entrant, verdict: Verdict, owner: HostId | None) -> tuple[Any, ...]:
    run, is_admitted = entrant.run, verdict.fate is Fate.ADMIT
    return (
        *(run.run_id, run.scope, run.program, run.version, run.digest, run.key),
        *(owner if is_admitted else None, FIRST_EPOCH if is_admitted else 0),
        *(genesis(run.run_id), run.created_at_ms, entrant.slot or None),
    )


def _tag_rows(entrant: Entrant) -> list[tuple[Any, ...]]:
    run = entrant.run
    return [
        (
            *(run.run_id, ROOT.step, KEY, mailbox_of(name, value, run.scope)),
            *(name, value, run.created_at_ms),
        )
        for name, value in entrant.tags
    ]


def _message_row(message: Message) -> tuple[Any, ...]:
    about = message.run_id, message.guid, message.kind, message.payload
    return (*about, message.due_at_ms, message.arrival)


def _pending_row(entrant: Entrant, verdict: Verdict, now_ms: int) -> tuple[Any, ...]:
    state, ready_at_ms, run = entrant.state, entrant.ready_at_ms, entrant.run
    if verdict.fate is Fate.DELAY:
        state, ready_at_ms = DELAYED, now_ms + verdict.retry_ms
    return (
        *(run.run_id, entrant.slot, run.scope, run.program),
        *(entrant.priority, state, ready_at_ms, entrant.until_ms),
    )


def _charge(limits: Mapping[str, _Known]) -> Steps[None]:
    """Write when the rates have the next start due."""
    rows = [
        (slot, known.served, known.standing.arrival_us)
        for slot, known in sorted(limits.items())
        if known.rules.pace is not None
    ]
    if rows:
        yield AskStore("charge_limits", rows=rows)


def dequeue(
    owner: HostId | None,
    programs: Sequence[str],
    now_ms: int,
    slots: Sequence[str],
    after: str,
) -> Steps[Admitted]:
    """Admit runs that may begin now."""
    ended = yield AskStore("end_delays", values={"now_ms": now_ms, "limit": MOST_ADMITTED})
    busy = yield AskStore("select_busy_slots", values={"after": after, "limit": MOST_SLOTS})
    wanted = {slot for (slot,) in (*ended, *busy)} | set(slots)
    chosen: list[tuple[str, str]] = []
    chosen += yield from _next_without_limit()
    wanted.discard(NO_SLOT)
    if wanted:
        rows = yield AskStore("lock_limits", rows=[(slot,) for slot in sorted(wanted)])
        for row in rows:
            chosen += yield from _next_of_slot(row, now_ms, MOST_ADMITTED - len(chosen))
    is_full = len(busy) == MOST_SLOTS
    has_more = len(chosen) >= MOST_ADMITTED or len(ended) == MOST_ADMITTED
    runs = yield from _admit(chosen, owner, frozenset(programs))
    return Admitted(runs, has_more or is_full, busy[-1][0] if is_full else NO_SLOT)


def _next_without_limit() -> Steps[list[tuple[str, str]]]:
    """Runs that wait for no limit, of each scope in turn."""
    lines = yield from _lines(NO_SLOT, "", MOST_ADMITTED)
    return [line for _, line in round_robin(lines, "", MOST_ADMITTED)]


def _next_of_slot(row: Any, now_ms: int, most: int) -> Steps[list[tuple[str, str]]]:
    """The runs that a limit lets begin now, of each scope in turn; charges the limit for them."""
    slot, known = row[0], _known(row)
    rules, standing = known.rules, known.standing
    if rules.pace is not None and not rules.pace.allowed(standing.arrival_us, now_ms, 1):
        return []
    yield from _count(slot, known)
    count = room(rules, standing, now_ms, most)
    if count <= 0 or not standing.ready:
        return []
    lines = yield from _lines(slot, known.served, count)
    chosen = round_robin(lines, known.served, count)
    if not chosen:
        return []
    arrival_us = standing.arrival_us
    if rules.pace is not None:
        arrival_us = rules.pace.after(arrival_us, now_ms, len(chosen))
    yield AskStore("charge_limits", rows=[(slot, chosen[-1][0], arrival_us)])
    return [line for _, line in chosen]


def _lines(slot: str, served: str, count: int) -> Steps[dict[str, list[tuple[str, str]]]]:
    """The next `count` runs of each scope, from the scope after `served` on: no more scopes than may have a turn."""
    later = yield from _scopes(slot, served, count)
    scopes = [scope for (scope,) in later]
    if len(scopes) < count:
        first = yield from _scopes(slot, None, count)
        scopes += [scope for (scope,) in first if scope not in scopes]
    lines = {}
    for scope in scopes[:count]:
        values = {"slot": slot, "scope": scope, "limit": count}
        rows = yield AskStore("select_line", values=values)
        lines[scope] = [(run_id, program) for run_id, program in rows]
    return lines


def _scopes(slot: str, served: str | None, count: int) -> Steps[list[Any]]:
    """Scopes after the one that was served, or all."""
    # The empty scope sorts first, and nothing sorts before it.
    name = "select_scopes" if served is None else "select_line_scopes"
    values: dict[str, Any] = {"slot": slot, "limit": count}
    if served is not None:
        values = {"slot": slot, "served": served, "limit": count}
    return (yield AskStore(name, values=values))


def _admit(
    chosen: Iterable[tuple[str, str]], owner: HostId | None, programs: frozenset[str]
) -> Steps[tuple[Run, ...]]:
    owners = {run_id: owner if program in programs else None for run_id, program in chosen}
    if not owners:
        return ()
    left = yield AskStore("leave_line", rows=[(run_id,) for run_id in sorted(owners)])
    if not left:
        return ()
    debounced = sorted(run_id for run_id, until_ms in left if until_ms is not None)
    if debounced:
        yield AskStore("forget_keys", rows=[(run_id,) for run_id in debounced])
    rows = sorted((run_id, owners[run_id]) for run_id, _ in left)
    return tuple([run_from(row) for row in (yield AskStore("admit", rows=rows))])


def call_up(message: Message) -> Steps[bool]:
    """Send a pending run a message that ends it, and let it leave the line."""
    if not (yield AskStore("call_up", rows=[(message.run_id,)])):
        return False
    yield AskStore("give_up_slots", rows=[(message.run_id,)])
    yield AskStore("send", rows=[_message_row(message)])
    return True


def approve(message: Message, now_ms: int) -> Steps[bool]:
    values = {"run_id": message.run_id, "now_ms": now_ms}
    if not (yield AskStore("approve", values=values)):
        return False
    yield AskStore("send", rows=[_message_row(message)])
    return True


def put_off(message: Message, ready_at_ms: int) -> Steps[bool]:
    values = {"run_id": message.run_id, "ready_at_ms": ready_at_ms}
    if not (yield AskStore("put_off", values=values)):
        return False
    changed = {"run_id": message.run_id, "guid": message.guid, "payload": message.payload}
    yield AskStore("change_input", values=changed)
    return True


def find_pending(run_id: RunId) -> Steps[Pending | None]:
    rows = yield AskStore("select_pending", values={"run_id": run_id})
    return Pending(*rows[0]) if rows else None


def set_limit(name: str, setting: Setting, at_ms: int) -> Steps[None]:
    body = msgspec.json.encode(setting).decode()
    yield AskStore(
        "set_limit", values={"kind": "limit", "name": name, "body": body, "at_ms": at_ms}
    )


def reset_limit(name: str) -> Steps[bool]:
    return bool((yield AskStore("reset_limit", values={"kind": "limit", "name": name})))


def find_settings() -> Steps[list[StoredSetting]]:
    rows = yield AskStore("select_settings", values={"kind": "limit"})
    return [
        StoredSetting(kind, name, msgspec.json.decode(body, type=Setting), at_ms)
        for kind, name, body, at_ms in rows
    ]


def find_standing(slot: str) -> Steps[tuple[SlotStanding, Setting | None]]:
    rows = yield AskStore("select_standing", values={"slot": slot})
    found, rules, arrival_us, running, waiting, body = rows[0]
    setting = None if body is None else msgspec.json.decode(body, type=Setting)
    declared = msgspec.json.decode(rules, type=Rules)
    return SlotStanding(found, declared, arrival_us, running, waiting), setting


def find_slots(name: str, after: str, limit: int) -> Steps[list[SlotStanding]]:
    rows = yield AskStore("select_limits", values={"after": after, "name": name, "limit": limit})
    return [
        SlotStanding(slot, msgspec.json.decode(rules, type=Rules), arrival_us, running, waiting)
        for slot, rules, arrival_us, running, waiting in rows
    ]
