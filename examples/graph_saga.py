"""A saga: what was booked is cancelled, last first, when a later booking fails.

    python examples/graph_saga.py

`@graph` compiles the function to a graph: each `except` becomes an edge for errors, and each compensation a durable
step. Kill the process between two of them, start it again, and the rest is cancelled, too.
"""

import asyncio
import tempfile
from pathlib import Path

from perdure import Engine, graph, task


class SoldOut(Exception):
    """There is none left."""


BOOKED: list[str] = []
"""Stands for the books of an airline, a hotel and a garage."""


@task
async def book(what: str, city: str) -> str:
    if city == "Cannes" and what == "car":
        raise SoldOut(f"no {what} is left in {city}")
    BOOKED.append(f"{what} in {city}")
    return BOOKED[-1]


@task
async def cancel(booking: str) -> None:
    print(f"cancels the {booking}")
    BOOKED.remove(booking)


@graph
async def book_trip(city: str) -> str:
    flight = await book("flight", city)
    try:
        hotel = await book("hotel", city)
        try:
            car = await book("car", city)
        except Exception:
            await cancel(hotel)
            raise
    except SoldOut as problem:
        await cancel(flight)
        return f"no trip: {problem}"
    return f"{flight}, {hotel}, {car}"


async def main(url: str) -> None:
    async with Engine(url) as engine:
        for city in ("Lisbon", "Cannes"):
            run = await engine.start(book_trip(city), key=city)
            print(await run.result(timeout=30))
    print("booked:", ", ".join(BOOKED))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(f"sqlite:///{Path(folder, 'trips.db')}"))
