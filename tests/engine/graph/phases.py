"""A graph run commit by commit: the ledgers of a step and of a message, and the semaphore, after each."""

from collections.abc import Callable
from typing import Any, NamedTuple

from perdure import ProgramCall
from perdure.core.ids import Guid, RunId, StepId
from perdure.core.journal import events as e
from perdure.core.ledger import digits_of, message_account, spell_balance, step_account
from perdure.core.ledger.digits import ACTIVITY, MESSAGE
from perdure.store.commit.bundle import Bundle
from perdure.store.store import Store
from perdure.testing.checkers import assert_sound
from perdure.testing.explorer import memory_store
from perdure.testing.graphs import ReplayCache
from perdure.testing.schedule import Chooser
from perdure.testing.script import Script, ScriptFunction
from perdure.testing.simulation import Simulation
from perdure.testing.workflows import MODES, run_once

GuidOf = Callable[[RunId], Guid]


class Phase(NamedTuple):
    """What the store holds after a commit."""

    step: int
    message: int
    semaphore: int

    def __str__(self) -> str:
        return f"{digits_of(self.step)} {digits_of(self.message)} {self.semaphore}"

    def spelled(self) -> str:
        """For people."""
        return (
            f"step     {spell_balance(self.step, ACTIVITY)}\n"
            f"message  {spell_balance(self.message, MESSAGE)}\n"
            f"semaphore {self.semaphore}\n"
        )


class Phases(Simulation):
    """Looks at one step and one message of the first run, whenever something is durable."""

    def __init__(
        self, store: Store, script: ScriptFunction | None, step: str, guid_of: GuidOf
    ) -> None:
        how = MODES["stepwise"], ("elsewhere",), Script(script), ReplayCache()
        super().__init__(store, Chooser(), *how)
        self.step = step_account(StepId(step))
        self.guid_of = guid_of
        self.run_id: RunId | None = None
        self.seen: list[Phase] = []

    async def _record(self, bundle: Bundle) -> None:
        await super()._record(bundle)
        for new, first in bundle.created:
            if self.run_id is None and isinstance(first.entries[0].event, e.ExecutionStarted):
                self.run_id = new.run_id
        assert self.run_id is not None
        run = await self.store.run(self.run_id)
        balances = await self.store.balances(self.run_id)
        message = message_account(self.guid_of(self.run_id))
        assert run is not None
        phase = Phase(balances.get(self.step, 0), balances.get(message, 0), run.semaphore)
        if phase.step and (not self.seen or self.seen[-1] != phase):
            self.seen.append(phase)


async def phases_of(
    call: ProgramCall[Any], step: str, guid_of: GuidOf, script: ScriptFunction | None = None
) -> list[Phase]:
    """The phases of a step and of the message that it has to do with, each in a commit of its own."""
    async with memory_store() as store:
        simulation = Phases(store, script, step, guid_of)
        await run_once(simulation, call)
        assert not simulation.violations
        await assert_sound(store)
        return simulation.seen
