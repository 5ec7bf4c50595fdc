"""A script is played by a sender outside, which outlives the hosts."""

import asyncio
from typing import Any, cast

import pytest

from perdure import Handle
from perdure.testing.script import After, Script


async def test_script_continues_when_the_host_dies_whose_commit_triggered_it() -> None:
    may_continue, sent = asyncio.Event(), []

    async def send(_: Handle[Any]) -> None:
        sent.append("one")
        await may_continue.wait()
        sent.append("two")

    script = Script(After(2, send))
    script.open(cast("Handle[Any]", object()))
    assert not await script.play(1)
    host = asyncio.ensure_future(script.play(2))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    host.cancel()
    with pytest.raises(asyncio.CancelledError):
        await host
    (playing,) = script.playing
    may_continue.set()
    await playing
    assert sent == ["one", "two"]
    assert not await script.play()
