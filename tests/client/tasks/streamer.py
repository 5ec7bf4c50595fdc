"""A process of its own that streams and may be killed: `python -m tests.client.tasks.streamer URL STEPS CHUNKS`.

When started again, it resumes its run by its key.
"""

import asyncio
import os
import sys
import time

import perdure
from perdure import Engine, Settings, task, workflow

KEY = "the-speech"


@task(name="streamer.speak")
async def speak(step: int, chunks: int) -> None:
    words = perdure.stream("words")
    for number in range(chunks):
        words.append(f"{step}.{number}")
        await asyncio.sleep(0.001)


@task(name="streamer.speak-in-a-thread")
def speak_in_a_thread(step: int, chunks: int) -> None:
    for number in range(chunks):
        perdure.stream("words").append(f"{step}.{number}")
        time.sleep(0.001)


@workflow(name="streamer.speech")
async def speech(steps: int, chunks: int) -> None:
    for step in range(steps):
        await (speak(step, chunks) if step % 2 else speak_in_a_thread(step, chunks))
        perdure.stream("words").append(f"{step} done")


async def main(url: str, steps: int, chunks: int) -> None:
    async with Engine(url, settings=Settings(max_doubts=50, probation=0)) as engine:
        run = await engine.start(speech(steps, chunks), key=KEY)
        os.write(sys.stdout.fileno(), f"{run.run_id}\n".encode())
        await run.result()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
