"""A loop in a graph: each turn tries the next carrier, and waits longer than the one before.

    python examples/graph_retry_loop.py

Retries of a worker repeat the same call. Here each turn is another call, so the graph has a way back: a cycle returns
to a hook, with other values for some variables. What is behind the hook happens once for each turn, in a plane of its
own: the ids of its steps have the number of the turn.
"""

import asyncio
import tempfile
from pathlib import Path

from perdure import Engine, GraphBuilder, GraphProgram, task
from perdure.core.journal.events import InvokeScheduled


class CarrierFull(Exception):
    """No room; another carrier may have some."""


@task
async def ship(parcel: str, carrier: str) -> str:
    if carrier.startswith("full"):
        raise CarrierFull(f"{carrier} has no room")
    return f"{parcel} by {carrier}"


b = GraphBuilder("find_carrier", input={"parcel": str, "carriers": list})
b.assign("begin", {"turn": 0, "delay": 0.01})
b.hook("try_one", cycle=True)
b.worker(
    "ship",
    ship,
    input={"parcel": b.input.parcel, "carrier": "carriers[turn]"},
    output={"shipped": "result"},
)
b.output("done", "f'{shipped}, turn {turn + 1}'")
b.branch("more")
b.sleep("wait", "delay")
b.cycle("again", "try_one", input={"turn": "turn + 1", "delay": "delay * 2"})
b.fail("give_up", again="problem")

b.chain("begin", "try_one", "ship", "done")
b.edge("ship", "more", on="error", errors=[CarrierFull], bind="problem")
b.edge("more", "wait", when="turn + 1 < len(carriers)")
b.edge("more", "give_up")
b.chain("wait", "again")
find_carrier = GraphProgram(b.build())


async def main(url: str) -> None:
    async with Engine(url) as engine:
        call = find_carrier(parcel="P1", carriers=["full post", "full rail", "river"])
        run = await engine.start(call)
        print(await run.result(timeout=30))
        async for entry in run.events():
            if isinstance(entry.event, InvokeScheduled):
                print(entry.event.promise_id)
        try:
            run = await engine.start(find_carrier(parcel="P2", carriers=["full post", "full rail"]))
            await run.result(timeout=30)
        except CarrierFull as problem:
            print(f"given up: {problem}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(f"sqlite:///{Path(folder, 'parcels.db')}"))
