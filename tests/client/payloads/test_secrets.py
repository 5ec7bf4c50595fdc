"""Secrets: tasks read them, and no store and no log holds them."""

import asyncio
import logging
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import (
    Engine,
    EnvironmentSecrets,
    FileSecrets,
    InputError,
    SecretExposed,
    SecretFilter,
    SecretRef,
    SecretScope,
    Signal,
    UnknownSecret,
    task,
    workflow,
)
from perdure.core.errors import OutsideRun
from tests.client.engines import assert_sound
from tests.client.payloads.stored_bytes import stored_bytes
from tests.client.retention.leaving import everything

PLANTED = "sk_live_\"quoted\\slash'Ünï-wombat"
LINES = "-----BEGIN KEY-----\nabcdefgh12345678\nzyxwvuts87654321\n-----END KEY-----"
TRACES = ("sk_live", "wombat", "abcdefgh1", "zyxwvuts8")
"""Parts of the two secrets: none may be found anywhere."""

gossip = Signal("gossip", str)


class Memory:
    """A provider of the user's own."""

    def __init__(self, **secrets: str) -> None:
        self.secrets = secrets
        self.asked: list[tuple[str, tuple[str, ...]]] = []

    async def secret(self, name: str, scope: tuple[str, ...]) -> str | None:
        self.asked.append((name, tuple(scope)))
        return self.secrets.get(name)


class LeakyError(Exception):
    def __init__(self, text: str, token: str) -> None:
        super().__init__(text, token)
        self.token = token


async def _leak(way: str, value: str) -> Any:  # noqa: C901, PLR0912 - one branch for each way out
    match way:
        case "return":
            return value
        case "return inside":
            return {"deep": [{"er": f"Bearer {value}"}]}
        case "return as a key":
            return {value: 1}
        case "return bytes":
            return value.encode()
        case "publish":
            perdure.publish("token", value)
        case "publish, and catch the error":
            try:
                perdure.publish("token", value)
            except SecretExposed:
                return "caught"
        case "publish as a name":
            perdure.publish(value[:200], 1)
        case "stream":
            perdure.stream("tokens").append(value)
        case "stream as a name":
            perdure.stream(value[:200]).append(1)
        case "raise":
            raise ValueError(f"bad token {value}")
        case "raise a type of its own":
            raise LeakyError("bad token", value)
        case "raise with repr":
            raise KeyError(value)
        case "raise from":
            try:
                raise ValueError(value)
            except ValueError as error:
                raise RuntimeError("no luck") from error
        case "raise with a note":
            noted = RuntimeError("no luck")
            noted.add_note(f"the token was {value}")
            raise noted
        case "raise a group":
            raise ExceptionGroup(f"all of {value}", [ValueError(value), KeyError(value)])
        case "log":
            perdure.log.warning("token %s", value, extra={"detail": value})
            logging.getLogger("shop").warning("token %r", value)
            try:
                raise ValueError(value)
            except ValueError:
                logging.getLogger("shop").exception("failed with %s", value)
                perdure.log.exception("failed")
        case _:
            raise AssertionError(way)
    return "nothing"


WAYS = [
    "return",
    "return inside",
    "return as a key",
    "return bytes",
    "publish",
    "publish, and catch the error",
    "publish as a name",
    "stream",
    "stream as a name",
    "raise",
    "raise a type of its own",
    "raise with repr",
    "raise from",
    "raise with a note",
    "raise a group",
    "log",
]
EXPOSING = [way for way in WAYS if not way.startswith(("raise", "log"))]


@task(name="leak_here")
async def leak_here(way: str, ref: SecretRef) -> Any:
    return await _leak(way, await perdure.secret(ref))


@task(name="leak_far", queue="secret-far")
async def leak_far(way: str, ref: SecretRef) -> Any:
    return await _leak(way, await perdure.secret(ref))


@task(name="leak_in_thread")
def leak_in_thread(way: str, ref: SecretRef) -> Any:
    return asyncio.run(_leak(way, perdure.secret(ref).wait()))


LEAKS = {"async": leak_here, "queued": leak_far, "sync": leak_in_thread}


@workflow
async def leaking(way: str, kind: str, ref: SecretRef) -> str:
    try:
        return f"returned {await LEAKS[kind](way, ref)}"
    except Exception as error:
        return f"{type(error).__name__}: {error} {getattr(error, '__notes__', '')}"


@perdure.graph(name="leaking_graph")
async def leaking_graph(way: str, ref: SecretRef) -> Any:
    try:
        return await leak_here(way, ref)
    except Exception:
        return "failed"


@pytest.fixture
def logged() -> Iterator[StringIO]:
    """What a handler with the filter writes, of every logger and level."""
    text = StringIO()
    handler = logging.StreamHandler(text)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    handler.addFilter(SecretFilter())
    root, before = logging.getLogger(), logging.getLogger().level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    yield text
    root.removeHandler(handler)
    root.setLevel(before)


def holds_secret(text: str | bytes) -> list[str]:
    as_text = text.decode(errors="replace") if isinstance(text, bytes) else text
    return [each for each in TRACES if each in as_text]


async def test_a_secret_that_tasks_leak_in_every_way_is_in_no_store_no_log_and_no_archive(
    shared_url: str, logged: StringIO, tmp_path: Path
) -> None:
    secrets, folder = [Memory(plain=PLANTED, lines=LINES)], tmp_path / "archive"
    async with Engine(
        shared_url, secrets=secrets, queues=["secret-far"], archive=str(folder)
    ) as engine:
        outcomes: dict[tuple[str, str], str] = {}
        runs = {
            (way, kind, name): await engine.start(leaking(way, kind, SecretRef(name)))
            for way in WAYS
            for kind in LEAKS
            for name in ("plain", "lines")
            if name == "plain" or kind == "async"
        }
        for (way, kind, name), run in runs.items():
            outcome = await run.result(60)
            assert not holds_secret(outcome), (way, kind, name, outcome)
            outcomes[way, kind] = outcome
        for way in EXPOSING:
            for kind in LEAKS:
                assert "SecretExposed" in outcomes[way, kind], (way, kind, outcomes[way, kind])
        for way in ("return", "raise"):
            graph = await engine.start(leaking_graph(way, SecretRef("plain")))
            assert await graph.result(60) == "failed"
        await assert_sound(engine)
        assert holds_secret(await stored_bytes(shared_url)) == []
        ids = [run.run_id for run in runs.values()]
        assert len(await engine.retention.archive(ids)) == len(ids)
        assert not await engine.retention.verify_archive(ids)
    assert holds_secret(await everything(shared_url, folder)) == []
    assert holds_secret(logged.getvalue()) == []
    assert "[secret plain]" in logged.getvalue()


@task
async def tell_others(ref: SecretRef, how: str, run_id: str) -> str:
    value = await perdure.secret(ref)
    engine = ENGINES[0]
    if how == "signal":
        await engine.handle(run_id).signal(gossip, f"psst {value}")
    elif how == "send":
        await engine.send("gossip", "key", value)
    elif how == "tag":
        await engine.start(leaking("return", "async", ref), tags={"token": value})
    elif how == "key":
        await engine.start(leaking("return", "async", ref), key=value)
    else:
        await engine.start(leaking(value, "async", ref))
    return "told"


ENGINES: list[Engine] = []


@workflow
async def gossiping(ref: SecretRef, how: str, run_id: str) -> str:
    return await tell_others(ref, how, run_id)


@pytest.mark.parametrize("how", ["signal", "send", "start", "tag", "key"])
async def test_a_task_can_not_send_a_secret_to_another_run(how: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/gossip.db"
    async with Engine(url, secrets=[Memory(plain=PLANTED)]) as engine:
        ENGINES[:] = [engine]
        run = await engine.start(gossiping(SecretRef("plain"), how, "r_" + "0" * 32))
        with pytest.raises(SecretExposed, match="plain"):
            await run.result(30)
        assert holds_secret(await stored_bytes(url)) == []


@task
async def use_secret(ref: SecretRef) -> int:
    return len(await perdure.secret(ref))


@workflow
async def using(ref: SecretRef) -> int:
    return await use_secret(ref)


@workflow
async def using_by_child(ref: SecretRef) -> int:
    return await using(ref)


async def test_a_run_reads_the_secrets_of_its_own_scope_alone(tmp_path: Path) -> None:
    for place, text in {"key": "unscoped", "acme/prod/key": "of acme prod!\n"}.items():
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(text)
    async with Engine("sqlite:///:memory:", secrets=[FileSecrets(tmp_path)]) as engine:
        ref = SecretRef("key")
        assert await (await engine.start(using(ref))).result() == len("unscoped")
        for program in (using, using_by_child):
            run = await engine.start(program(ref), scope="acme/web/prod")
            assert await run.result() == len("of acme prod!")
        for scope in ("acme/web/test", "other/web/prod", "acme/prod", "../x", "a/../../acme/prod"):
            if scope == "acme/prod":
                continue
            with pytest.raises(UnknownSecret):
                await (await engine.start(using(ref), scope=scope)).result()


async def test_providers_are_asked_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_SECRET_from_env", "value of env")
    memory = Memory(from_env="not this one", other="four")
    async with Engine("sqlite:///:memory:", secrets=[EnvironmentSecrets(), memory]) as engine:
        assert await (await engine.start(using(SecretRef("from_env")))).result() == 12
        assert memory.asked == []
        assert await (await engine.start(using(SecretRef("other")))).result() == 4
        assert memory.asked == [("other", ())]


async def test_a_variable_serves_one_scope_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_SECRET_acme__prod__key", "value of acme")
    provider = EnvironmentSecrets()
    assert await provider.secret("key", SecretScope.of("acme/web/prod")) == "value of acme"
    assert await provider.secret("acme__prod__key", SecretScope.of("")) is None
    assert await provider.secret("prod__key", SecretScope.of("acme")) is None
    assert await provider.secret("key", SecretScope.of("ACME/web/prod")) is None


@pytest.mark.parametrize("name", ["", "../key", "a/b", ".hidden", "x" * 256, 'say "hi"'])
def test_a_name_that_is_no_file_name_is_refused(name: str) -> None:
    with pytest.raises(InputError):
        SecretRef(name)


async def test_a_secret_can_be_read_in_tasks_only() -> None:
    with pytest.raises(OutsideRun):
        await perdure.secret("key")


async def test_a_secret_too_short_to_be_masked_is_refused() -> None:
    async with Engine("sqlite:///:memory:", secrets=[Memory(short="abc")]) as engine:
        with pytest.raises(InputError, match="4 characters"):
            await (await engine.start(using(SecretRef("short")))).result()


async def test_without_providers_no_secret_is_known() -> None:
    async with Engine("sqlite:///:memory:") as engine:
        with pytest.raises(UnknownSecret, match="Engine"):
            await (await engine.start(using(SecretRef("plain")))).result()


@pytest.mark.parametrize("given", [EnvironmentSecrets(), ["file"], None])
def test_providers_that_are_none_are_refused(given: Any) -> None:
    with pytest.raises(InputError, match="secrets is"):
        Engine("sqlite:///:memory:", secrets=given)
