"""What commands show of one run: its description, its explanation, and its last steps."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from perdure.client.runs.explaining import situation_of
from perdure.client.runs.handle import Handle
from perdure.client.runs.status import status_of
from perdure.core.ids import RunId
from perdure.core.ledger import is_step_account, step_account
from perdure.core.replay.recorded import RecordedStep, recorded_steps
from perdure.core.runs.description import Description
from perdure.core.runs.explaining import Explanation, explain
from perdure.core.runs.snapshot import ApplicationError
from perdure.core.runs.step_records import StepRecord, StepRecords
from perdure.store.store import Store

_ANY_ERROR: Final = ApplicationError("", "")
"""Errors are shown from the recorded steps."""

ENTRIES_OF_LAST_STEPS = 2000
"""Entries that are read for the last steps: reading a long journal takes seconds."""


class RunOverview(NamedTuple):
    """`is_cut` says that there are earlier steps; `earlier` counts those of them that have an account.

    Those are tasks, child runs, timers, and all steps of a graph; signals and recorded values of a workflow have none.
    """

    description: Description
    explanation: Explanation
    steps: list[RecordedStep]
    times: dict[str, StepRecord]
    """What each step did with its time, as far as the entries that were read say."""
    tags: Mapping[str, str]
    is_cut: bool
    earlier: int


async def overview_of(handle: Handle[Any], most_steps: int | None) -> RunOverview:
    """An overview of the run, or of the last run of its chain; without `most_steps`, with all steps."""
    end = await handle._chain_end()
    store = handle._dispatcher.store
    first = 0 if most_steps is None else max(0, end.seq - ENTRIES_OF_LAST_STEPS)
    situation = await situation_of(handle._dispatcher, end.run_id, status_of)
    entries = await store.entries(end.run_id, first)
    steps = list(recorded_steps(entries).values())
    times = StepRecords(lambda _: _ANY_ERROR)
    times.begin(end.run_id)
    for entry in entries:
        times.apply(entry)
    shown = steps if most_steps is None else steps[-most_steps:]
    is_cut = first > 0 or len(shown) < len(steps)
    earlier = await _earlier(store, end.run_id, shown) if is_cut else 0
    by_step = {str(record.step): record for record in times.records}
    listed = await store.listed_run(end.run_id)
    tags = {} if listed is None else listed.tags
    return RunOverview(
        situation.description, explain(situation), shown, by_step, tags, is_cut, earlier
    )


async def _earlier(store: Store, run_id: RunId, shown: list[RecordedStep]) -> int:
    accounts = {account for account in await store.balances(run_id) if is_step_account(account)}
    return len(accounts.difference(step_account(step.step) for step in shown))
