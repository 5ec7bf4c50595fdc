"""Order fulfilment as a graph: a payment, an approval with a deadline, a carrier that may fail, and a refund.

    python examples/graph_order.py

`graph_order.yaml` is the program; here are the tasks that it calls. The sender of the approval
knows the order id but no run id: a signal goes to a topic and a key, and may arrive before a run waits for it.
"""

import asyncio
import tempfile
from pathlib import Path

import perdure
from perdure import Engine, GraphProgram, RunStatus, load_graph, task

BANK: dict[str, str] = {}
"""Stands for a payment service that takes an idempotency key."""


@task
async def charge(order_id: str, cents: int) -> str:
    # A charge that is made again after a crash has the same key, and so changes nothing.
    payment = f"payment-{perdure.key()[:8]}"
    BANK[payment] = f"{order_id} ({cents} cents)"
    return payment


@task
async def refund(payment: str) -> None:
    BANK.pop(payment, None)


@task
async def ship(order_id: str, city: str) -> str:
    if city == "Atlantis":
        raise LookupError(f"{city} is not on the map")
    if perdure.info().attempt < 3:
        raise ConnectionError("try again")
    return f"parcel-{order_id}"


order = GraphProgram(load_graph(Path(__file__).with_suffix(".yaml")))

ORDERS = [
    {"order_id": "A1", "customer": "Ada", "cents": 25_000, "city": "Lisbon"},
    {"order_id": "A2", "customer": "Ada", "cents": 30_000, "city": "Oslo"},
    {"order_id": "B1", "customer": "Bob", "cents": 99_000, "city": "Quito", "patience": 0.5},
    {"order_id": "B2", "customer": "Bob", "cents": 5_000, "city": "Atlantis"},
]


async def main(url: str) -> None:
    async with Engine(url) as engine:
        await engine.send("approval", "A1", True)  # sent before the run waits for it
        runs = await engine.start_many(order(**given) for given in ORDERS)
        await engine.send("approval", "A2", False)
        for given, run in zip(ORDERS, runs, strict=True):
            print(f"{given['order_id']}: {await run.result(timeout=30)}")
        for customer, counts in (await engine.statistics("order", "customer")).items():
            print(f"{customer}: {counts[RunStatus.COMPLETED]} orders are through")
    print("money kept:", *BANK.values())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(f"sqlite:///{Path(folder, 'orders.db')}"))
