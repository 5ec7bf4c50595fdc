"""Admission with faults: the host may die before or after each of its transactions."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from perdure.core.ids import HostId
from perdure.host.admission.admissions import Admissions
from perdure.store.admission_table import Admitted, Entered, Entrant

if TYPE_CHECKING:
    from perdure.testing.crashing_store import CrashingStore
    from perdure.testing.simulation import Simulation


class FaultyAdmission:
    """The admission of the simulation's store, as one explored host sees it."""

    def __init__(self, simulation: "Simulation", store: "CrashingStore") -> None:
        self._simulation = simulation
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._simulation.store.admission, name)

    async def enter(
        self, entrants: Sequence[Entrant], owner: HostId | None, now_ms: int
    ) -> list[Entered]:
        await self._store.require_alive()
        options = ["is done", "crash before", "crash after"]
        fault = self._simulation.choose(f"{len(entrants)} starts", options)
        if fault == "crash before":
            await self._store.die()
        entered = await self._simulation.store.admission.enter(entrants, owner, now_ms)
        made = {entrant.run.run_id for entrant in entrants} & {each.run_id for each in entered}
        self._simulation.note_made(made)
        if fault == "crash after":
            await self._store.die()
        return entered

    async def dequeue(self, owner: HostId | None, *rest: Any) -> Admitted:
        await self._store.require_alive()
        admitted = await self._simulation.store.admission.dequeue(owner, *rest)
        # No "crash before": then the host has changed nothing since its last transaction.
        if admitted.runs:
            what = f"admission of {len(admitted.runs)}"
            if self._simulation.choose(what, ["is done", "crash after"]) == "crash after":
                await self._store.die()
        return admitted


class AbsentAdmissions(Admissions):
    """Those of a sender that owns no run: it sends acts to pending runs, and hosts admit them."""

    def _look(self) -> None:
        pass
