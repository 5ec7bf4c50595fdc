"""Starts that tests hand to the admission of a store, and the beginnings and ends of their runs."""

import os
from typing import Any

from perdure.core.admission.input import start_guid
from perdure.core.admission.rules import NO_SLOT, Rules, slot_name
from perdure.core.ids import new_run_id
from perdure.core.journal import events as e
from perdure.core.journal.entry import NONCE_BYTES
from perdure.core.journal.journal import Journal
from perdure.core.messages import START, Message
from perdure.store.admission_table import NEVER_DUE_MS, Entrant
from perdure.store.commit.bundle import Bundle
from perdure.store.commit.fence import Fence
from perdure.store.rows.records import NewRun, Run
from perdure.store.store import Store
from tests.store.builders import NOW

PROGRAM = "report"


def entrant(number: int, rules: Rules | None = None, *, scope: str = "", **more: Any) -> Entrant:
    """A start; `more` has `key`, `limit_key`, and fields of `Entrant`. Without rules it has no limit."""
    run_id = new_run_id(NOW + number, os.urandom(10))
    key, limit_key = more.pop("key", None), more.pop("limit_key", "")
    slot = NO_SLOT if rules is None else slot_name("L", more.pop("limit_scope", scope), limit_key)
    run = NewRun(run_id, PROGRAM, NOW + number, scope, "1", "d1", key, slot=slot or None)
    message = Message(run_id, start_guid(run_id), START, NEVER_DUE_MS, NOW, payload=b"{}\n{}")
    name = "" if rules is None else "L"
    return Entrant(run, message, slot, name, rules or Rules(), **more)


async def begin(store: Store, run: Run) -> Journal:
    """The first commit of an admitted run."""
    journal, bundle = Journal(run.run_id), Bundle()
    slot = (await store.list_rows(run.run_id)).slot
    started = e.ExecutionStarted(
        *(run.program, run.digest, "00" * 32, run.version),
        idempotency_key=run.key,
        scope=run.scope,
        slot=slot,
        payload=b"{}",
    )
    fence = Fence(run.run_id, run.epoch)
    bundle.append(fence, journal.append([started], NOW, os.urandom(NONCE_BYTES)))
    bundle.acknowledge(fence, start_guid(run.run_id))
    await store.commit(bundle)
    return journal


async def end(store: Store, run: Run, journal: Journal) -> None:
    """The last commit of a run that has begun."""
    bundle = Bundle()
    completed = e.ExecutionCompleted(released=1, payload=b"null")
    bundle.append(
        Fence(run.run_id, run.epoch), journal.append([completed], NOW, os.urandom(NONCE_BYTES))
    )
    await store.commit(bundle)


async def run_of(store: Store, start: Entrant) -> Run:
    found = await store.run(start.run.run_id)
    assert found is not None
    return found


async def finish(store: Store, start: Entrant) -> None:
    """Begin and end the admitted run of a start."""
    run = await run_of(store, start)
    await end(store, run, await begin(store, run))
