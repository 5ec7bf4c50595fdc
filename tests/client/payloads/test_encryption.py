"""Encrypted stores: nothing of a user's values is readable in them, and replay survives a new key."""

import logging
from typing import Any

import pytest

import perdure
from perdure import (
    EncryptedCodec,
    Engine,
    Handle,
    Settings,
    Signal,
    task,
    workflow,
)
from perdure.core.journal.events import InvokeCompleted
from tests.client.engines import ALWAYS_REPLAY, assert_sound, until_published, until_recorded
from tests.client.payloads.stored_bytes import stored_bytes

OLD, NEW = bytes(range(64)), bytes(range(1, 65))
PLAIN = "zebra"
"""Part of every value that a user stores here."""

confirmed = Signal("flight_confirmed", dict)


@task
async def fly_hidden(order: str) -> dict[str, str]:
    perdure.stream("wings").append(f"{PLAIN}-chunk")
    perdure.publish("height", f"{PLAIN}-published")
    return {"flown": order, "kept": f"{PLAIN}-result"}


@task(queue="far")
async def fly_far_hidden(order: str) -> str:
    return f"{order} {PLAIN}-far"


@task
async def crash_land(order: str) -> None:
    raise ValueError(f"{PLAIN}-error {order}")


@workflow
async def hidden_leg(order: str) -> str:
    perdure.publish("child", f"{PLAIN}-child")
    return f"{order} {PLAIN}-landed"


@workflow
async def hidden_flight(order: str) -> str:
    flown = await fly_hidden(order)
    far = await fly_far_hidden(order)
    landed = await hidden_leg(order)
    caught = ""
    try:
        await crash_land(order)
    except ValueError as error:
        caught = str(error)
    perdure.publish("state", {f"{PLAIN}-key": "waiting"})
    confirmation = await confirmed.receive()
    if confirmation["fail"]:
        raise RuntimeError(f"{PLAIN}-failed")
    return f"{flown['kept']} {far} {landed} {caught} {confirmation['note']}"


@task
async def flown_twice(order: str) -> str:
    return order * 2


@perdure.graph(name="hidden_zoo")
async def zoo(order: str) -> list[str]:
    doubled = await perdure.gather(flown_twice(order), fly_far_hidden(order))
    note = await confirmed.receive()
    return [*doubled, note["note"]]


def encrypted(url: str, *keys: bytes, settings: Settings | None = None) -> Engine:
    return Engine(url, codec=EncryptedCodec(keys), settings=settings, queues=["far"])


async def test_no_value_of_a_run_is_readable_in_the_store(shared_url: str) -> None:
    async with encrypted(shared_url, NEW) as engine:
        waiting = await engine.start(hidden_flight(f"{PLAIN}-input"), key="order-1")
        graph = await engine.start(zoo(f"{PLAIN}-graph"))
        failing = await engine.start(hidden_flight(f"{PLAIN}-input"))
        await until_published(
            waiting, height=f"{PLAIN}-published", state={f"{PLAIN}-key": "waiting"}
        )
        assert PLAIN.encode() not in await stored_bytes(shared_url)
        for run, fails in ((waiting, False), (graph, False), (failing, True)):
            await run.signal(confirmed, {"fail": fails, "note": f"{PLAIN}-note"})
        assert f"{PLAIN}-error {PLAIN}-input" in await waiting.result()
        assert f"{PLAIN}-note" in await graph.result()
        with pytest.raises(RuntimeError, match=f"{PLAIN}-failed"):
            await failing.result()
        assert b"order-1" in await stored_bytes(shared_url)  # a start key is plain
        assert PLAIN.encode() not in await stored_bytes(shared_url)
        await assert_sound(engine)
    assert PLAIN.encode() not in await stored_bytes(shared_url)


async def test_a_new_key_reads_and_replays_what_an_old_key_encrypted(shared_url: str) -> None:
    async with encrypted(shared_url, OLD) as engine:
        runs: list[Handle[Any]] = [
            await engine.start(hidden_flight("a")),
            await engine.start(zoo("b")),
        ]
        await until_published(
            runs[0], height=f"{PLAIN}-published", state={f"{PLAIN}-key": "waiting"}
        )
        await until_recorded(engine, runs[1], InvokeCompleted, 2)
    async with encrypted(shared_url, NEW, OLD, settings=ALWAYS_REPLAY) as engine:
        for run in runs:
            again = engine.handle(run.run_id)
            await again.signal(confirmed, {"fail": False, "note": "signed"})
            assert "signed" in await again.result(30)
        await assert_sound(engine)


async def test_a_run_whose_key_is_missing_is_parked_until_the_key_is_back(
    shared_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with encrypted(shared_url, OLD) as engine:
        run = await engine.start(hidden_flight(f"{PLAIN}-input"))
        await until_published(run, height=f"{PLAIN}-published", state={f"{PLAIN}-key": "waiting"})
    caplog.clear()
    with caplog.at_level(logging.DEBUG):
        async with encrypted(shared_url, NEW) as engine:
            parked = engine.handle(run.run_id)
            await parked.signal(confirmed, {"fail": False, "note": "late"})
            with pytest.raises(perdure.RunDiverged):
                await parked.result(30)
    assert PLAIN not in caplog.text
    async with encrypted(shared_url, NEW, OLD) as engine:
        assert "late" in await engine.handle(run.run_id).result(30)


CODE = ["old"]


@workflow
async def changing(order: str) -> str:
    if CODE == ["failing"]:
        raise RuntimeError(f"{PLAIN} in {order}")
    await fly_hidden(order)
    await confirmed.receive()
    return order


async def test_a_divergence_shows_no_text_of_an_exception(
    shared_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    CODE[:] = ["old"]
    async with encrypted(shared_url, NEW) as engine:
        run = await engine.start(changing(f"{PLAIN}-input"))
        await until_recorded(engine, run, InvokeCompleted)
    caplog.clear()
    CODE[:] = ["failing"]
    async with encrypted(shared_url, NEW, settings=ALWAYS_REPLAY) as engine:
        again = engine.handle(run.run_id)
        await again.signal(confirmed, {"fail": False, "note": "x"})
        with pytest.raises(perdure.RunDiverged):
            await again.result(30)
        assert PLAIN.encode() not in await stored_bytes(shared_url)
    assert PLAIN not in caplog.text
