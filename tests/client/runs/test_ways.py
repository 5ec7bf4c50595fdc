"""How many files a step and a signal pass on their way to the commit, and that `docs/internals/ways.md` lists them."""

import re
import sys
from collections.abc import Coroutine, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import perdure
from perdure import Engine, Settings, Signal, task, workflow
from perdure.core.journal.events import ExecutionAwaiting, SignalDelivered
from perdure.core.messages import Message
from perdure.host.messages.delivery import Delivery
from perdure.store.sqlite.commit_latency import CommitLatency
from perdure.store.sqlite.connections.connection import compiled
from tests.client.engines import opened, until_recorded
from tests.paths import ROOT

SOURCE = Path(perdure.__file__).parent
PAGE = ROOT / "docs" / "internals" / "ways.md"

LAYERS = ("core", "authoring", "store", "engine", "host", "client")
"""Lower layers first. Authoring and store don't know each other."""

Pass = tuple[str, str]
"""A call within Perdure: the file of the caller and the file of the called function."""


class Tracer:
    """Records ways: the calls from each `begin` to the commit of the next group, in order."""

    def __init__(self) -> None:
        self._way: list[Pass] | None = None
        self.ways: list[list[Pass]] = []
        """The ways that ended in a commit."""

    def begin(self) -> None:
        self._way = []

    def profile(self, frame: FrameType, event: str, argument: Any) -> None:
        if self._way is None:
            return
        if event == "c_call" and _commits(argument):
            self.ways.append(self._way)
            self._way = None
        elif event == "call" and (called := _file_of(frame)) is not None:
            self._way.append((_caller_of(frame) or called, called))

    @property
    def shortest(self) -> list[Pass]:
        """Without what the host did beside it: a heartbeat or a poll may come in between."""
        return min(self.ways, key=lambda way: len(files(way)))


def files(way: list[Pass]) -> list[str]:
    return list(dict.fromkeys(called for _, called in way))


def climbs(way: list[Pass]) -> list[Pass]:
    """The calls from a layer into one above it."""
    return [each for each in way if _layer(each[1]) > _layer(each[0])]


def _commits(called: Any) -> bool:
    """Whether it is the native writer's call that commits a group."""
    return (
        compiled is not None
        and isinstance(getattr(called, "__self__", None), compiled.NativeWriter)
        and called.__name__ in ("write", "submit")
    )


def _file_of(frame: FrameType) -> str | None:
    path = Path(frame.f_code.co_filename)
    return path.relative_to(SOURCE).as_posix() if path.is_relative_to(SOURCE) else None


def _caller_of(frame: FrameType) -> str | None:
    back = frame.f_back
    while back is not None:
        if (file := _file_of(back)) is not None:
            return file
        back = back.f_back
    return None


def _layer(file: str) -> int:
    return LAYERS.index(file.split("/", maxsplit=1)[0])


def listed(heading: str) -> list[str]:
    """The files that the page lists under a heading, in order."""
    section = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)
    (text,) = (each for each in section if each.startswith(heading))
    return re.findall(r"^\d+\. `([\w/]+\.py)`", text, re.MULTILINE)


current: list[Tracer] = []
"""The tracer of the running test."""

COUNT = 10

approved = Signal("ways.approved", int)


@task(name="ways.charge")
async def charge(order: int) -> int:
    return order


@workflow(name="ways.orders")
async def orders() -> int:
    total = 0
    for order in range(COUNT):
        current[-1].begin()
        total += await charge(order)
    return total


@workflow(name="ways.approvals")
async def approvals() -> int:
    return sum(await perdure.gather(*(approved.receive() for _ in range(COUNT))))


@pytest.fixture
def tracer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tracer]:
    if compiled is None:
        pytest.skip("without the compiled part, groups take another way")
    # However slow this machine is now: a lone bundle is written in the thread of the event loop.
    monkeypatch.setattr(CommitLatency, "record", lambda *_: None)
    current.append(Tracer())
    sys.setprofile(current[-1].profile)
    yield current[-1]
    sys.setprofile(None)
    current.pop()


async def test_a_step_passes_at_most_20_files_and_4_climbs(tracer: Tracer, tmp_path: Path) -> None:
    async with opened(f"sqlite:///{tmp_path / 'ways.db'}") as engine:
        assert await (await engine.start(orders())).result(60) == 45
    way = tracer.shortest
    assert len(files(way)) <= 20
    assert len(climbs(way)) <= 4
    assert files(way) == listed("A step")


async def test_a_signal_of_another_process_passes_at_most_30_files(
    tracer: Tracer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver = Delivery.deliver

    def begin(delivery: Delivery, message: Message) -> Coroutine[Any, Any, None]:
        tracer.begin()
        return deliver(delivery, message)

    url = f"sqlite:///{tmp_path / 'ways.db'}"
    settings = Settings(heartbeat=0.1)
    async with opened(url, settings) as engine, Engine(url, hosts=False) as sender:
        run = await engine.start(approvals())
        await until_recorded(engine, run, ExecutionAwaiting)
        monkeypatch.setattr(Delivery, "deliver", begin)
        for number in range(COUNT):
            await sender.handle(run.run_id).signal(approved, number)
            await until_recorded(engine, run, SignalDelivered, number + 1)
        assert await run.result(60) == 45
    way = tracer.shortest
    assert len(files(way)) <= 30
    assert files(way) == listed("A signal")
