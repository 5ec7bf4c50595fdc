"""Order fulfilment: a payment, an approval with a deadline, a carrier that may fail, and a refund.

    python examples/checkout.py

What was paid is given back whenever the order does not go through, whether a person refuses it, no
person answers in time, or the carrier fails for good. The refund is a durable step like the others: kill the
process before, between or after, start it again, and the run resumes.
"""

import asyncio
import tempfile
from dataclasses import dataclass
from pathlib import Path

import perdure
from perdure import Engine, Retry, Signal, task, workflow


@dataclass
class Order:
    number: int
    cents: int
    city: str


class CarrierDown(Exception):
    """The carrier did not answer; it may next time."""


class NoSuchPlace(Exception):
    """No carrier goes there, today or tomorrow."""


class Refused(Exception):
    """The order is not to be fulfilled."""


approval = Signal("approval", bool)

BANK: dict[str, Order] = {}
"""Stands for a payment service that takes an idempotency key."""


@task
async def charge(order: Order) -> str:
    # A charge that is made again after a crash has the same key, and so changes nothing.
    payment = f"payment-{perdure.key()[:8]}"
    BANK[payment] = order
    return payment


@task
async def refund(payment: str) -> None:
    BANK.pop(payment, None)


@task(retry=Retry(attempts=5, first=0.05, give_up_on=NoSuchPlace), timeout=10)
async def ship(order: Order) -> str:
    if order.city == "Atlantis":
        raise NoSuchPlace(order.city)
    if perdure.info().attempt < 3:
        raise CarrierDown("try again")
    return f"parcel-{order.number}"


@workflow
async def fulfil(order: Order) -> str:
    payment = await charge(order)
    is_shipped = False
    try:
        await wait_for_approval(order)
        parcel = await ship(order)
        is_shipped = True
        return f"shipped as {parcel}"
    except Refused as reason:
        return f"{reason}, refunded"
    except NoSuchPlace:
        return "no carrier took it, refunded"
    finally:
        # Also when the run is cancelled, or fails with an unexpected error.
        if not is_shipped:
            await refund(payment)


async def wait_for_approval(order: Order) -> None:
    if order.cents < 10_000:
        return
    try:
        is_approved = await approval.receive(timeout=0.5)  # in real life: timedelta(days=3)
    except TimeoutError:
        raise Refused("nobody approved it in time") from None
    if not is_approved:
        raise Refused("refused by the manager")


async def main(url: str) -> None:
    orders = [
        Order(1, 25_000, "Lisbon"),
        Order(2, 30_000, "Oslo"),
        Order(3, 99_000, "Quito"),
        Order(4, 5_000, "Atlantis"),
    ]
    async with Engine(url) as engine:
        runs = await engine.start_many(
            map(fulfil, orders), keys=[f"order-{o.number}" for o in orders]
        )
        await runs[0].signal(approval, True)
        await runs[1].signal(approval, False)
        for order, run in zip(orders, runs, strict=True):
            print(f"order {order.number}: {await run.result(timeout=10)}")
    print("money kept:", *(f"order {order.number}" for order in BANK.values()))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(f"sqlite:///{Path(folder, 'orders.db')}"))
