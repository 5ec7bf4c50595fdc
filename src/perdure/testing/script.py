"""Scripts: what a user outside does to a run during an exploration, and when."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple

from perdure.client.runs.handle import Handle
from perdure.core.ids import StepId
from perdure.core.journal import events as e

NEVER = sys.maxsize
"""More commits than any schedule has."""

ScriptFunction = Callable[[Handle[Any]], Awaitable[None]]
"""Signals, answers or cancels the run through its handle. Called once, after the start."""


class After(NamedTuple):
    """A script that is played once `commits` commits are durable.

    It is played earlier if the run waits for a signal and only time could pass, or if there is nothing else to do.
    Hosts receive what it sends when no task runs any more; with `at_once`, also while tasks run.
    """

    commits: int
    script: ScriptFunction
    at_once: bool = False
    then: ScriptFunction | None = None
    """Played after `script`, when there is nothing else to do."""


class Script:
    """Plays a script function once, at its time."""

    def __init__(self, script: ScriptFunction | After | None) -> None:
        after = script if isinstance(script, After) or script is None else After(0, script)
        self._script = None if after is None else after.script
        self._after = 0 if after is None else after.commits
        self._at_once = after is not None and after.at_once
        self._then = None if after is None else after.then
        self.must_poll = False
        """Whether hosts must poll now for what the script has sent."""
        self._handle: Handle[Any] | None = None
        self.playing: set[asyncio.Task[None]] = set()

    @property
    def is_pending(self) -> bool:
        """Whether the run has started and the script has not been played."""
        return self._script is not None and self._handle is not None

    def open(self, handle: Handle[Any]) -> None:
        """Set the handle of the started run: from now on the script can be played."""
        self._handle = handle

    async def play(self, commits: int | None = None) -> bool:
        """Play the script if it is pending and, where `commits` is given, due. Returns whether this call played it."""
        is_due = commits is None or commits >= self._after
        if self._script is None or self._handle is None or not is_due:
            return False
        script, self._script = self._script, self._then
        self._then, self._after = None, NEVER
        # The sender is another process: it continues if the host dies whose commit triggered the script.
        playing = asyncio.ensure_future(_play(script, self._handle))
        self.playing.add(playing)
        playing.add_done_callback(self.playing.discard)
        await asyncio.shield(playing)
        self.must_poll = self._at_once
        return True


def awaits_signal(events: Iterable[e.Event]) -> bool:
    """Whether a workflow with this journal waits for a signal: for a step that is neither a timer nor a call."""
    begun: set[StepId] = set()
    wait: e.ExecutionAwaiting | None = None
    for event in events:
        match event:
            case e.InvokeScheduled(promise_id=step) | e.TimerScheduled(promise_id=step):
                begun.add(step)
            case e.ExecutionAwaiting():
                wait = event
            case e.ExecutionResumed():
                wait = None
            case _:
                pass
    return wait is not None and (wait.signal is not None or not begun.issuperset(wait.waiting_on))


async def _play(script: ScriptFunction, handle: Handle[Any]) -> None:
    await script(handle)
