"""`perdure init`: a small project that runs."""

from pathlib import Path

from perdure import InputError
from perdure.cli.output import console

FILES = {
    "app.py": '''"""An order is charged, waits for an approval, and is shipped."""

from datetime import timedelta

from perdure import Engine, Retry, Signal, task, workflow

approval = Signal("approval", bool)


@task(retry=Retry(attempts=5))
async def charge(order: str, cents: int) -> str:
    return f"charged {cents} cents for {order}"


@task
async def ship(order: str) -> str:
    return f"shipped {order}"


@workflow
async def checkout(order: str, cents: int) -> str:
    await charge(order, cents)
    if not await approval.receive(timeout=timedelta(days=7)):
        return f"{order} was refused"
    return await ship(order)


engine = Engine("sqlite:///orders.db")
''',
    "test_app.py": '''"""`pytest` runs the workflow, and under every crash that its commits allow."""

from app import approval, checkout
from perdure import Engine


async def run() -> str:
    async with Engine("sqlite:///:memory:") as engine:
        run = await engine.start(checkout("order-1", 500))
        await run.signal(approval, True)
        return await run.result(60)


def test_approved_order_is_shipped() -> None:
    import asyncio

    assert asyncio.run(run()) == "shipped order-1"
''',
    "perdure.toml": '# The store that the commands of `perdure` use.\nstore = "sqlite:///orders.db"\n',
    "README.md": """# Orders

Start a worker in one terminal, and leave it running:

    perdure worker app:engine

In another, start a run, see why it waits, and send it the approval:

    perdure runs start app:checkout '{"order": "order-1", "cents": 500}'
    perdure explain RUN
    perdure runs signal RUN approval true
    perdure runs result RUN

Kill the worker at any moment (`kill -9`) and start it again: the run continues, and nothing that finished is done
again. `pytest` runs the test.
""",
}


def init(folder: Path = Path(), /) -> int:
    """Make a small project: a workflow, a test, the setting of the store, and a README.

    Parameters
    ----------
    folder
        Where to make it. Default: this folder. No file is replaced.
    """
    taken = [name for name in FILES if (folder / name).exists()]
    if taken:
        raise InputError(f"{folder / taken[0]} exists", "pass a new folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in FILES.items():
            with (folder / name).open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise InputError(
            f"{folder} can't be written ({error.strerror})", "pass another folder"
        ) from None
    screen = console()
    screen.print(f"made {', '.join(str(folder / name) for name in FILES)}", soft_wrap=True)
    screen.print(
        f"read {folder / 'README.md'}, or begin with: perdure worker app:engine", soft_wrap=True
    )
    return 0
