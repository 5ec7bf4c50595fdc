"""Channels that carry hints between processes: sockets beside a SQLite file, notifications of Postgres."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from perdure.core.hosts.hints import channel_name
from perdure.core.ids import HostId
from perdure.store.opening import open_store
from perdure.store.postgres.connections import hint_listener
from perdure.store.postgres.connections.hint_listener import PostgresHints
from perdure.store.postgres.connections.opening import Address
from perdure.store.sqlite.hint_sockets import SqliteHints
from tests.postgres_server import PostgresServer

POSTGRES = pytest.param("postgres", marks=pytest.mark.postgres)
ONE, TWO, THREE = HostId("h_one"), HostId("h_two"), HostId("h_three")


class Listening:
    """A channel with what it has received."""

    def __init__(self, url: str, host: HostId) -> None:
        self.received: list[bytes] = []
        self._grown = asyncio.Event()
        self.channel: SqliteHints | PostgresHints
        if url.startswith("sqlite:///"):
            self.channel = SqliteHints(url.removeprefix("sqlite:///"), host, self._receive)
        else:
            self.channel = PostgresHints(Address(url), host, self._receive)

    def _receive(self, data: bytes) -> None:
        self.received.append(data)
        self._grown.set()

    async def until(self, *expected: bytes) -> None:
        """Wait until exactly these have arrived, in any order."""
        async with asyncio.timeout(60):
            while sorted(self.received) != sorted(expected):
                self._grown.clear()
                await self._grown.wait()

    async def until_one(self, expected: bytes) -> None:
        async with asyncio.timeout(60):
            while expected not in self.received:
                self._grown.clear()
                await self._grown.wait()


@pytest.fixture(params=["sqlite", POSTGRES])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/hints.db"
    found: str = request.getfixturevalue("emptied_postgres")
    return found


@pytest.fixture
async def three(url: str) -> AsyncIterator[tuple[Listening, Listening, Listening]]:
    async with AsyncExitStack() as stack:
        channels = []
        for host in (ONE, TWO, THREE):
            listening = Listening(url, host)
            await listening.channel.open()
            stack.callback(listening.channel.close)
            channels.append(listening)
        yield channels[0], channels[1], channels[2]


async def test_a_hint_to_one_process_reaches_it_alone(
    three: tuple[Listening, Listening, Listening],
) -> None:
    one, two, other = three
    await one.channel.send(TWO, b"for two")
    await one.channel.send(THREE, b"for three")
    await two.until(b"for two")
    await other.until(b"for three")
    assert not one.received


async def test_a_hint_to_all_reaches_every_other_process(
    three: tuple[Listening, Listening, Listening],
) -> None:
    one, two, other = three
    await one.channel.send(None, b"for all")
    await two.until(b"for all")
    await other.until(b"for all")


async def test_a_hint_to_a_process_that_is_gone_is_lost_without_an_error(
    three: tuple[Listening, Listening, Listening],
) -> None:
    one, two, other = three
    other.channel.close()
    await one.channel.send(THREE, b"lost")
    await one.channel.send(HostId("h_never"), b"lost, too")
    await one.channel.send(TWO, b"next")
    await two.until(b"next")
    one.channel.close()
    await one.channel.send(TWO, b"of a closed one")
    assert two.received == [b"next"]


async def test_a_renamed_process_receives_under_its_new_name(
    three: tuple[Listening, Listening, Listening],
) -> None:
    one, two, _ = three
    await two.channel.rename(HostId("h_new"))
    if isinstance(two.channel, PostgresHints):
        await two.until_one(b"")  # connected again
    await one.channel.send(HostId("h_new"), b"welcome")
    await two.until_one(b"welcome")


async def test_a_store_in_memory_has_no_channel() -> None:
    store = await open_store("sqlite:///:memory:")
    assert store.hint_channel(ONE, lambda _: None) is None
    await store.close()


class TestSockets:
    """What only sockets do."""

    async def test_sockets_are_removed_with_their_processes(self, tmp_path: Path) -> None:
        url, directory = f"sqlite:///{tmp_path}/a.db", tmp_path / "a.db-hints"
        one, two = Listening(url, ONE), Listening(url, TWO)
        await one.channel.open()
        await two.channel.open()
        assert {each.name for each in directory.iterdir()} == set(map(channel_name, (ONE, TWO)))
        one.channel.close()
        assert [each.name for each in directory.iterdir()] == [channel_name(TWO)]
        two.channel.close()
        assert not directory.exists()

    async def test_the_socket_of_a_killed_process_is_removed_by_the_next_sender(
        self, tmp_path: Path
    ) -> None:
        directory = tmp_path / "a.db-hints"
        directory.mkdir()
        dead = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        dead.bind(str(directory / "dead"))
        dead.close()
        (directory / "notes.txt").write_text("a user's file")
        one = Listening(f"sqlite:///{tmp_path}/a.db", ONE)
        await one.channel.open()
        await one.channel.send(None, b"hello")
        assert {each.name for each in directory.iterdir()} == {"notes.txt", channel_name(ONE)}
        one.channel.close()
        assert directory.exists()

    async def test_a_long_path_works(self, tmp_path: Path) -> None:
        deep = tmp_path / ("d" * 100) / ("e" * 100)
        deep.mkdir(parents=True)
        one, two = (Listening(f"sqlite:///{deep}/a.db", host) for host in (ONE, TWO))
        await one.channel.open()
        await two.channel.open()
        await one.channel.send(TWO, b"far")
        await one.channel.send(None, b"all")
        await two.until(b"far", b"all")
        one.channel.close()
        two.channel.close()
        assert not (deep / "a.db-hints").exists()

    async def test_a_directory_that_can_not_be_made_leaves_polling(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (tmp_path / "a.db-hints").write_text("in the way")
        one = Listening(f"sqlite:///{tmp_path}/a.db", ONE)
        with caplog.at_level(logging.INFO, "perdure.store"):
            await one.channel.open()
        assert "by polling" in caplog.text
        await one.channel.send(None, b"lost")
        one.channel.close()

    async def test_hints_to_a_busy_process_wait_for_it(self, tmp_path: Path) -> None:
        url = f"sqlite:///{tmp_path}/a.db"
        one, two = Listening(url, ONE), Listening(url, TWO)
        await one.channel.open()
        await two.channel.open()
        hints = [b"%d" % number for number in range(1000)]
        for hint in hints:  # more than a socket's buffer holds
            await one.channel.send(TWO, hint)
        await two.until(*hints)
        one.channel.close()
        two.channel.close()


@pytest.mark.postgres
class TestNotifications:
    """What only notifications do."""

    async def test_a_lost_connection_is_opened_again_and_reported(
        self, private_postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(hint_listener, "FIRST_DELAY_S", 0.01)
        one, two = Listening(private_postgres.url(), ONE), Listening(private_postgres.url(), TWO)
        await one.channel.open()
        await two.channel.open()
        private_postgres.stop(immediate=True)
        await one.channel.send(TWO, b"lost")
        private_postgres.start()
        await one.until_one(b"")
        await two.until_one(b"")
        await one.channel.send(TWO, b"again")
        await two.until_one(b"again")
        assert b"lost" not in two.received
        one.channel.close()
        two.channel.close()

    async def test_a_server_that_is_down_at_first_is_found_later(
        self, private_postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(hint_listener, "FIRST_DELAY_S", 0.01)
        private_postgres.stop(immediate=True)
        one = Listening(private_postgres.url(), ONE)
        await one.channel.open()
        private_postgres.start()
        await one.until_one(b"")
        one.channel.close()

    async def test_behind_a_pooler_that_drops_notifications_it_polls_and_says_so_once(
        self,
        emptied_postgres: str,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """A pooler in transaction mode announces a process of its own, and drops notifications."""
        monkeypatch.setattr(hint_listener, "ECHO_S", 0.01)
        monkeypatch.setattr(PostgresHints, "_is_direct", _false)
        monkeypatch.setattr(PostgresHints, "_arrived", lambda *_: None)
        one, two = Listening(emptied_postgres, ONE), Listening(emptied_postgres, TWO)
        await one.channel.open()
        monkeypatch.undo()
        await two.channel.open()
        await one.channel.send(TWO, b"still sent")
        await two.until(b"still sent")
        assert caplog.text.count("by polling") == 1
        one.channel.close()
        two.channel.close()


async def _false(*_: object) -> bool:
    return False
