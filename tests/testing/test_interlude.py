"""Whoever is outside lives longer than the hosts that it happens to."""

import asyncio
from typing import Any, cast

import pytest

from perdure import Handle
from perdure.testing.interlude import After, Interlude


async def test_a_script_goes_on_when_the_host_dies_that_it_is_played_in() -> None:
    may_go_on, said = asyncio.Event(), []

    async def script(_: Handle[Any]) -> None:
        said.append("one")
        await may_go_on.wait()
        said.append("two")

    interlude = Interlude(After(2, script))
    interlude.open(cast("Handle[Any]", object()))
    assert not await interlude.play(1)
    host = asyncio.ensure_future(interlude.play(2))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    host.cancel()
    with pytest.raises(asyncio.CancelledError):
        await host
    (playing,) = interlude.playing
    may_go_on.set()
    await playing
    assert said == ["one", "two"]
    assert not await interlude.play()
