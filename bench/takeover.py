"""Takeover of runs by another host: `python -m bench.takeover URL RUNS HOW` prints figures as JSON.

This process has an engine open. A child starts the runs on the same store; when each is in the middle of its second
step the child is killed with -9, or paused, as HOW says. Counted from there: the first of those steps begins here, the
last one begins, and the last run takes its step after that, by when every result is durable. A host that was killed is
seen to be gone, as both are on one machine; one that is paused is missed by its heartbeats, as any host elsewhere is.
"""

import asyncio
import json
import signal
import sys
import time

from bench.recovery import READY, bills, deliveries, engine_for

HOW = {"killed": signal.SIGKILL, "paused": signal.SIGSTOP}


async def measure(url: str, runs: int, how: str) -> dict[str, float]:
    bills.expect(runs)
    async with engine_for(url, runs):
        command = (sys.executable, "-m", "bench.recovery", url, str(runs), "victim")
        victim = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert victim.stdout is not None
        if await victim.stdout.readline() != READY.encode():
            raise SystemExit(f"the victim ended by itself, with status {await victim.wait()}")
        began = time.perf_counter()
        victim.send_signal(HOW[how])
        await bills.wait()
        if how == "paused":
            victim.kill()
        await victim.wait()
    resumed, continued = deliveries.moments, bills.moments
    assert len(resumed) == len(continued) == runs, "each step that was in doubt is begun once more"
    return {
        "first_s": resumed[0] - began,
        "last_s": resumed[-1] - began,
        "over_s": continued[-1] - began,
    }


def main() -> None:
    url, runs, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    sys.stdout.write(json.dumps(asyncio.run(measure(url, runs, how))) + "\n")


if __name__ == "__main__":
    main()
