"""Three services are asked at once, and their answers joined; one of them may fail.

    python examples/graph_fan_in.py

A node with several edges to it waits until each is decided, and runs if at least one was taken. So the join needs no
care for what fails: the path around the reviews is taken, or is skipped, and counts in both cases.
"""

import asyncio
import tempfile
from pathlib import Path

from perdure import Engine, GraphBuilder, GraphProgram, task

ASKED: list[str] = []


async def ask(service: str) -> None:
    """Return when all three are asked: they would wait for ever if they were asked in turn."""
    ASKED.append(service)
    while len(ASKED) < 3:  # noqa: ASYNC110 - as simple as can be
        await asyncio.sleep(0.01)


@task(timeout=10)
async def price(book: str) -> int:
    await ask("price")
    return len(book) * 100


@task(timeout=10)
async def stock(book: str) -> int:
    await ask("stock")
    return book.count("o")


@task(timeout=10)
async def reviews(book: str) -> list[str]:
    await ask("reviews")
    raise ConnectionError(f"no reviews of {book} today")


b = GraphBuilder("offer", input={"book": str})
for service in (price, stock, reviews):
    b.worker(service.name, service, input={"book": b.input.book})
b.assign("no_reviews", {"reviews": "[]"})
b.output("page", "f'{book}: {price} cents, {stock} left, {len(reviews)} reviews'")
for name in ("price", "stock", "reviews", "no_reviews"):
    b.edge(name, "page")
b.edge("reviews", "no_reviews", on="error")
offer = GraphProgram(b.build())


async def main(url: str) -> None:
    async with Engine(url) as engine:
        run = await engine.start(offer(book="Food of Love"))
        print(await run.result(timeout=30))
    print("asked at once:", *sorted(ASKED))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(f"sqlite:///{Path(folder, 'books.db')}"))
