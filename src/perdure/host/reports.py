"""Reports: how the outcomes of bodies reach their runs."""

from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from perdure.core.ids import RunId
from perdure.engine.replay.facts import Outcome, complete
from perdure.engine.replay.warm import WarmRun
from perdure.host.batch import Batch
from perdure.host.bodies import Bodies
from perdure.host.body import Body
from perdure.host.parking import Told
from perdure.host.residents import Residents
from perdure.host.rounds import Rounds
from perdure.host.staging import Act, Staging

Advance = Callable[[RunId, Act, Told], Awaitable[bool]]
Spawn = Callable[[Coroutine[Any, Any, None]], None]

Ended = list[tuple[Body, Outcome]]


class Reports:
    """A run that is warm takes in all that came in one turn of the loop, in one turn of its own.

    Nobody waits for it. A run that is not warm, or is held, or can't go on, is advanced for each outcome by itself.
    """

    def __init__(
        self,
        bodies: Bodies,
        residents: Residents,
        staging: Staging,
        rounds: Rounds | None,
        advance: Advance,
        spawn: Spawn,
    ) -> None:
        """Without `rounds` every outcome is taken in by itself."""
        self._bodies = bodies
        self._residents = residents
        self._staging = staging
        self._rounds = rounds
        self._advance = advance
        self._spawn = spawn
        self._ended: dict[WarmRun, Ended] = {}

    def take(self, body: Body, outcome: Outcome) -> Awaitable[None] | None:
        """A body of one of this host's runs ended. What it returns, if anything, is to be awaited."""
        run = self._residents.get(body.info.run_id)
        if run is None or run.is_held or self._rounds is None:
            return self._tell(body, outcome)
        if run in self._ended:
            self._ended[run].append((body, outcome))
        else:
            ended = self._ended[run] = [(body, outcome)]
            run.in_flight += 1  # so that it stays in memory
            self._rounds.add(partial(self._begin, run), partial(self._told, ended))
        return None

    def _begin(self, run: WarmRun) -> Batch:
        """All that came until now; what comes next is for the next round."""
        ended = self._ended.pop(run)
        run.in_flight -= 1
        if run.is_held or self._residents.get(run.run_id) is not run:
            raise _NotNow
        return self._staging.feed(run, partial(_complete, ended))

    def _told(self, ended: Ended, failure: BaseException | None) -> None:
        for body, outcome in ended:
            if failure is None:
                self._bodies.forget(body)
            else:
                # A fresh load shows whether it is the program.
                self._spawn(self._tell(body, outcome))

    async def _tell(self, body: Body, outcome: Outcome) -> None:
        """Let the run take in one outcome, loaded afresh if need be."""
        try:
            await self._advance(body.info.run_id, body.tell(outcome), (body, outcome))
        finally:
            self._bodies.forget(body)


class _NotNow(Exception):
    """The run has left memory meanwhile, or somebody holds it."""


def _complete(ended: Ended, run: WarmRun) -> None:
    for body, outcome in ended:
        complete(run, body.info.step, body.info.attempt, outcome)
