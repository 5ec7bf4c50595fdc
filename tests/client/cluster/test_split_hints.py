"""A network that cuts the connection for hints and leaves the others, and the other way round. On Postgres."""

from collections.abc import Callable

import pytest

from perdure import Engine, Settings, Signal, task, workflow
from perdure.core.hosts.hints import Hint
from perdure.core.ids import HostId
from perdure.store.hints import OnHint
from perdure.store.postgres.connections.hint_listener import PostgresHints
from perdure.store.postgres.connections.opening import Address
from perdure.store.postgres.store import PostgresStore
from perdure.testing.probe import Probe
from tests.chaos.proxy import Proxy
from tests.client.engines import assert_sound, until
from tests.postgres_server import PostgresServer

pytestmark = pytest.mark.postgres

LIMIT_S = 60
PATIENT = Settings(heartbeat=0.1, stale_after=600)
"""No host counts as dead here: that is what tests of takeovers are for."""

go = Signal("go", int)


@task(name="split.far", queue="split")
async def far(number: int) -> int:
    return number + 1


@workflow(name="split.both")
async def both(number: int) -> int:
    return await far(number) + await go.receive()


@pytest.fixture
def hints_by(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Sets the address by which engines that are opened from now on send and receive hints."""

    def use(url: str) -> None:
        def hint_channel(_: PostgresStore, host: HostId, on_hint: OnHint) -> PostgresHints:
            return PostgresHints(Address(url), host, on_hint)

        monkeypatch.setattr(PostgresStore, "hint_channel", hint_channel)

    return use


def through(proxy: Proxy, server: PostgresServer) -> str:
    return server.url().replace(f":{server.port}/", f":{proxy.port}/")


async def exchange(one: Engine, other: Engine) -> None:
    """A run of one host needs a task and a signal of the other."""
    run = await one.start(both(1))
    await other.handle(run.run_id).signal(go, 5)
    assert await other.handle(run.run_id).result(LIMIT_S) == 7


@pytest.mark.parametrize("is_lost", [False, True], ids=["late", "lost"])
async def test_while_the_connection_for_hints_is_cut_hosts_poll(
    is_lost: bool, private_postgres: PostgresServer, hints_by: Callable[[str], None]
) -> None:
    url = private_postgres.url()
    with Proxy(private_postgres.port) as proxy:
        hints_by(through(proxy, private_postgres))
        async with (
            Engine(url, settings=PATIENT) as one,
            Engine(url, settings=PATIENT, queues=["split"]) as other,
        ):
            await exchange(one, other)
            proxy.cut()
            await exchange(one, other)
            proxy.mend(is_lost=is_lost)
            await exchange(one, other)
            await assert_sound(one)


@pytest.mark.parametrize("is_lost", [False, True], ids=["late", "lost"])
async def test_hints_to_a_host_that_can_not_reach_the_store_lose_nothing(
    is_lost: bool, private_postgres: PostgresServer, hints_by: Callable[[str], None]
) -> None:
    url = private_postgres.url()
    hints_by(url)
    with Proxy(private_postgres.port) as proxy:
        cut_off = through(proxy, private_postgres)
        async with (
            Engine(url, settings=PATIENT) as one,
            Engine(cut_off, settings=PATIENT, queues=["split"]) as other,
        ):
            await exchange(one, other)
            owned = await other.start(both(3))
            heard: list[Hint] = []
            host = Probe(other).host
            act = host.hint_arrived

            def hear(hint: Hint) -> None:
                heard.append(hint)
                act(hint)

            host.hint_arrived = hear  # type: ignore[method-assign]
            proxy.cut()
            await one.handle(owned.run_id).signal(go, 4)
            mine = await one.start(both(1))
            await one.handle(mine.run_id).signal(go, 5)
            await until(lambda: any(h.messages for h in heard) and any(h.queues for h in heard))
            proxy.mend(is_lost=is_lost)
            assert await mine.result(LIMIT_S) == 7
            assert await owned.result(LIMIT_S) == 8
            await exchange(one, other)
            await assert_sound(one)
