"""Probation: steps that may be what their hosts died of begin one after the other.

A step that waits for its turn has not begun, and nothing says that it has: if this host dies meanwhile, that step is
not in doubt.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from perdure.core.ids import RunId, StepId
from perdure.core.replay.suspicion import Place, Suspect, is_suspect, next_suspect
from perdure.engine.machine import RunMachine
from perdure.engine.replay.promise import DurablePromise
from perdure.host.bodies import Bodies
from perdure.host.body import Body

MOST_PAUSES = 10
"""However many suspects there are, all have begun after about so many full pauses."""

Begin = Callable[[RunId, StepId], Awaitable[object]]


class Probation:
    """The suspects of this host. Each has a turn when the one before has ended, or has lived for a while.

    The first waits for a while, too: steps that are no suspects begin at once, and may be the cause.
    """

    def __init__(
        self,
        bodies: Bodies,
        begin: Begin,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        length_s: float,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._bodies = bodies
        self._begin = begin
        self._spawn = spawn
        self.length_s = length_s
        self._line: dict[Place, Suspect] = {}
        self._longest = 0
        """How long the line has been since it was empty."""
        self._turn: Place | None = None
        """Who may begin now."""
        self._pause: asyncio.TimerHandle | None = None
        """Runs while nobody may, because of the one that began last."""
        self._last_begun_ms = 0
        """When the last suspect began, of all that this host has heard of."""

    def hear(self, machine: RunMachine) -> None:
        """Take note of when the suspects of a run began, before what is to be failed of them is."""
        begun_ms = (promise.begun_at_ms for promise in machine.promises.values())
        self._last_begun_ms = max(self._last_begun_ms, *begun_ms, 0)

    def admits(self, run_id: RunId, promise: DurablePromise) -> bool:
        """Whether the step may begin now. One that may not is begun when it is its turn."""
        if not is_suspect(promise.deaths) or not self.length_s:
            return True
        place = run_id, promise.step
        if place == self._turn:
            return True
        is_idle = self.is_idle
        self._line[place] = Suspect(promise.deaths, promise.begun_at_ms)
        self._longest = max(self._longest, len(self._line))
        if is_idle:
            self._rest()
        return False

    @property
    def is_idle(self) -> bool:
        """Whether nobody is on probation, or waits for it."""
        return self._turn is None and self._pause is None and not self._line

    def drop(self, run_id: RunId, step: StepId) -> None:
        """Nobody wants the step any more."""
        self._line.pop((run_id, step), None)

    def watch(self, body: Body) -> None:
        """A suspect begins: the next one waits for it."""
        if body.life is None:
            # It has ended at once, or is not begun because its host stops.
            self._go_on()
        else:
            body.life.add_done_callback(partial(self._cut_short, self._rest()))

    def _rest(self) -> asyncio.TimerHandle:
        if self._pause is not None:
            self._pause.cancel()
        # Where many wait, a machine has died twice rather than a step has killed it: they are not kept for long.
        pause_s = self.length_s * min(1.0, MOST_PAUSES / max(1, self._longest))
        # No task: what only waits must not hold up a host that stops.
        self._pause = self._loop.call_later(pause_s, self._go_on)
        return self._pause

    def _cut_short(self, pause: asyncio.TimerHandle, _: object) -> None:
        if self._pause is pause:
            pause.cancel()
            self._go_on()

    def _go_on(self) -> None:
        self._pause = None
        if not self._line:
            self._longest = 0
        elif self._bodies.is_open:
            place = self._turn = next_suspect(self._line, self._last_begun_ms)
            del self._line[place]
            self._spawn(self._take_turn(*place))

    async def _take_turn(self, run_id: RunId, step: StepId) -> None:
        try:
            await self._begin(run_id, step)
        finally:
            self._turn = None
            body = self._bodies.find(run_id, step)
            if body is not None:
                self.watch(body)
            else:
                # It is not wanted any more, or is elsewhere, or waits for a slot and then for another turn.
                self._go_on()
