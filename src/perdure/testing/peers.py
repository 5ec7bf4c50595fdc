"""Takeovers, claims of unowned runs, and host snapshots with faults."""

from typing import TYPE_CHECKING, Any

import msgspec

from perdure.core.ids import HostId
from perdure.store.rows.hosts import HostScope, HostSnapshot
from perdure.store.rows.records import Run

if TYPE_CHECKING:
    from perdure.testing.crashing_store import CrashingStore
    from perdure.testing.simulation import Simulation


async def faulty_takeover(
    simulation: "Simulation", store: "CrashingStore", from_owner: HostId, owner: HostId, limit: int
) -> list[Run]:
    """Take over runs of `from_owner`. The host may die before, after, or after the first run alone.

    In the last case two dead hosts own the runs: this one owns one run, and `from_owner` the others.
    """
    await store.may_claim.wait()
    await store.require_alive()
    options = ["is done", "crash before", "crash after one run", "crash after"]
    fault = simulation.choose(f"takeover from {from_owner}", options)
    if fault == "crash before":
        await store.die()
    limit = 1 if fault == "crash after one run" else limit
    runs = await simulation.store.take_over(from_owner, owner, limit)
    if fault != "is done":
        await store.die()
    return runs


async def faulty_claim(
    simulation: "Simulation", store: "CrashingStore", name: str, *args: Any, **options: Any
) -> Any:
    """Call `claim_runs` or `take_run`. If that takes a run, the host may die before or after."""
    if name == "claim_runs":
        await store.may_claim.wait()
    await store.require_alive()
    if simulation.explored_program is None or not await _takes_any(simulation, name, *args):
        return await getattr(simulation.store, name)(*args, **options)
    fault = simulation.choose(name, ["is done", "crash before", "crash after"])
    if fault == "crash before":
        await store.die()
    taken = await getattr(simulation.store, name)(*args, **options)
    if fault == "crash after":
        await store.die()
    return taken


async def _takes_any(simulation: "Simulation", name: str, *args: Any) -> bool:
    if name == "claim_runs":
        return await simulation.store.count_open(None) > 0
    run_id, former, _ = args
    run = await simulation.store.run(run_id)
    return run is not None and not run.is_over and run.owner == former


async def faulty_snapshot(
    simulation: "Simulation", store: "CrashingStore", scope: HostScope
) -> HostSnapshot:
    """The host's snapshot. While messages wait to be delivered again it says that a message is due."""
    await store.require_alive()
    snapshot = await simulation.store.host_snapshot(scope)
    return msgspec.structs.replace(snapshot, next_due_ms=0) if store.late else snapshot
