"""Map and reduce as a graph, and a process that is killed in the middle of it.

    python examples/graph_map_reduce.py

Words are counted in each text side by side, and the counts are added up. A child process begins, and is killed with
SIGKILL when three of four texts are counted. This process takes the run over: only the fourth is counted here.
"""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from perdure import Engine, GraphBuilder, GraphProgram, task
from perdure.core.journal.events import InvokeCompleted

TEXTS = [
    "the whale is white",
    "the ship is lost",
    "the captain and the whale",
    "call me Ishmael",
]
IS_DOOMED = len(sys.argv) > 1


@task
async def count(text: str) -> dict[str, int]:
    if IS_DOOMED and text == TEXTS[-1]:
        await asyncio.sleep(3600)  # the end comes before
    print(f"process {'1' if IS_DOOMED else '2'} counts {text!r}", flush=True)
    return dict(Counter(text.split()))


@task
async def add_up(counts: list[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return dict(total.most_common(3))


b = GraphBuilder("count_words", input={"texts": list})
b.spread("each", b.input.texts, item="text")
b.worker("map", count, input={"text": "text"})
b.aggregate("all", of="each", collect="map", into="counts")
b.worker("reduce", add_up, input={"counts": "counts"})
b.output("done", "reduce")
b.chain("each", "map", "all", "reduce", "done")
count_words = GraphProgram(b.build())


async def begin_and_die(url: str) -> None:
    async with Engine(url) as engine:
        run = await engine.start(count_words(texts=TEXTS), key="moby-dick")
        counted = 0
        async for entry in run.events():
            counted += isinstance(entry.event, InvokeCompleted)
            if counted == 3:
                os.kill(os.getpid(), signal.SIGKILL)


async def main(url: str) -> None:
    command = [sys.executable, __file__, url]
    child = await asyncio.to_thread(subprocess.run, command, check=False)
    print(f"process 1 was killed (exit {child.returncode})", flush=True)
    async with Engine(url) as engine:
        # The same key: this is the run that was begun.
        run = await engine.start(count_words(texts=TEXTS), key="moby-dick")
        print(await run.result(timeout=30))


if __name__ == "__main__":
    if IS_DOOMED:
        asyncio.run(begin_and_die(sys.argv[1]))
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(f"sqlite:///{Path(folder, 'words.db')}"))
