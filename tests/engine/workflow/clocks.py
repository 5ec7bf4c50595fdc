"""Workflows whose results tell the order of what they hear, for hosts and senders whose clocks differ."""

from typing import Any

import perdure
from perdure import Handle, Signal, task, workflow

word = Signal("clocks.word", str)


@task(name="clocks.noted", queue="elsewhere")
async def noted(text: str) -> str:
    return f"noted {text}"


@workflow(name="clocks.hearing")
async def hearing() -> list[str]:
    """Two words in their order, each in time; a sleep, and a queued task, by whichever host's clock."""
    heard = [await word.receive(timeout=60), await word.receive(timeout=60)]
    await perdure.sleep(1)
    return [*heard, await noted(heard[0])]


async def speak(run: Handle[Any]) -> None:
    await run.signal(word, "first")
    await run.signal(word, "second")
