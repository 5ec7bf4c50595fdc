"""An interlude: what somebody outside does to a run, at a moment of its life."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from perdure.client.handle import Handle

Script = Callable[[Handle[Any]], Awaitable[None]]
"""What somebody outside does to the run: signals, a cancel. Called once, after the start."""


class After(NamedTuple):
    """A script that is played when so many commits are durable, or nothing else is to do."""

    commits: int
    script: Script


class Interlude:
    """A script, and whether it was played."""

    def __init__(self, script: Script | After | None) -> None:
        self._after, self._script = script if isinstance(script, After) else (0, script)
        self._handle: Handle[Any] | None = None
        self.playing: set[asyncio.Task[None]] = set()

    def open(self, handle: Handle[Any]) -> None:
        """The run is there, from now on."""
        self._handle = handle

    async def play(self, commits: int | None = None) -> bool:
        """Play it, if it is time; without a number it is. Whether it was played now."""
        is_time = commits is None or commits >= self._after
        if self._script is None or self._handle is None or not is_time:
            return False
        script, self._script = self._script, None
        # Whoever is outside goes on though the host dies that it happens to.
        playing = asyncio.ensure_future(_play(script, self._handle))
        self.playing.add(playing)
        playing.add_done_callback(self.playing.discard)
        await asyncio.shield(playing)
        return True


async def _play(script: Script, handle: Handle[Any]) -> None:
    await script(handle)
