import logging

import pytest

import perdure
from perdure import Engine, RunFieldsFilter, task, workflow
from tests.client.engines import opened

bank = logging.getLogger("tests.bank")


@task(name="logged.charge")
async def charge() -> None:
    bank.warning("charging", extra={"step": "mine"})
    bank.warning("charged")


@workflow(name="logged.checkout")
async def checkout() -> str:
    bank.warning("deciding")
    await charge()
    return perdure.info().run_id


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def kept() -> Kept:
    handler = Kept()
    handler.addFilter(RunFieldsFilter())
    bank.addHandler(handler)
    return handler


async def test_the_filter_adds_run_step_attempt_and_trace_to_every_line(kept: Kept) -> None:
    engine: Engine
    async with opened("sqlite:///:memory:") as engine:
        bank.warning("outside")
        run_id = await (await engine.start(checkout())).result(60)
    bank.removeHandler(kept)
    fields = [
        [getattr(record, name, None) for name in ("run_id", "program", "step", "attempt")]
        for record in kept.records
    ]
    assert fields == [
        [None] * 4,
        [run_id, "logged.checkout", "root", None],
        [run_id, "logged.checkout", "mine", 1],
        [run_id, "logged.checkout", "root.0", 1],
    ]
    traces = [getattr(record, "trace_id", None) for record in kept.records]
    assert traces == [None, *[run_id.removeprefix("r_")] * 3]
