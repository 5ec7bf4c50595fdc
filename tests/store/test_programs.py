"""Deployed programs, and which version is active."""

import asyncio

import pytest

from perdure.core.errors import InputError, PayloadTooLarge, UnknownVersion, VersionExists
from perdure.core.ids import HostId
from perdure.core.limits import MAX_NAME_LENGTH, MAX_PAYLOAD_BYTES
from perdure.store.rows.hosts import HostScope
from perdure.store.rows.records import DeployedProgram, NewProgram, StoredProgram
from perdure.store.store import Store
from tests.store.builders import NOW, Driven, assert_typed, contents, raw

pytestmark = pytest.mark.asyncio


async def deploy(store: Store, version: str, *, name: str = "checkout", at_ms: int = NOW) -> None:
    await store.deploy_programs([new(version, name)], at_ms)


def new(version: str, name: str = "checkout") -> NewProgram:
    return NewProgram(name, version, f"digest {version}", '{"nodes": []}')


async def active(store: Store) -> list[tuple[str, str]]:
    return [(p.name, p.version) for p in await store.programs() if p.is_active]


async def test_versions_are_deployed_and_read_back(store: Store) -> None:
    assert await store.programs() == []
    await deploy(store, "2", at_ms=NOW + 1)
    await deploy(store, "10", at_ms=NOW)
    await deploy(store, "1", name="billing")
    found = await store.programs()
    assert [(p.name, p.version) for p in found] == [
        ("billing", "1"),
        ("checkout", "10"),
        ("checkout", "2"),
    ]
    second = StoredProgram("checkout", "2", "digest 2", '{"nodes": []}', NOW + 1, False, 0, 0)
    assert found[2] == await store.program("checkout", "2") == second
    assert await store.program("checkout", "3") is None
    assert await store.program("nothing") is None


async def test_no_version_is_active_until_it_is_activated(store: Store) -> None:
    await deploy(store, "1")
    assert await store.program("checkout") is None
    await store.activate_program("checkout", "1")
    found = await store.program("checkout")
    assert found is not None
    assert (found.version, found.is_active) == ("1", True)


async def test_one_version_of_each_program_is_active(store: Store) -> None:
    for name in ("billing", "checkout"):
        for version in ("1", "2"):
            await deploy(store, version, name=name)
    await store.activate_program("checkout", "1")
    await store.activate_program("billing", "2")
    await store.activate_program("checkout", "2")
    await store.activate_program("checkout", "2")
    assert await active(store) == [("billing", "2"), ("checkout", "2")]


async def test_deploying_the_same_version_again_changes_nothing(store: Store) -> None:
    await deploy(store, "1")
    await store.activate_program("checkout", "1")
    before = await contents(store)
    await deploy(store, "1", at_ms=NOW + 9)
    assert await contents(store) == before


async def test_a_version_that_has_another_digest_is_refused(store: Store) -> None:
    await deploy(store, "1")
    before = await contents(store)
    with pytest.raises(VersionExists) as caught:
        await store.deploy_programs([NewProgram("checkout", "1", "another", "{}")], NOW)
    assert_typed(caught.value, "version-exists", "'1'", "'checkout'", "'digest 1'", "'another'")
    assert "another version" in caught.value.remedy
    assert await contents(store) == before


async def test_several_programs_are_deployed_together_or_not_at_all(store: Store) -> None:
    await deploy(store, "2")
    before = await contents(store)
    others = [new("1"), new("1", "billing"), new("3", "shipping")]
    with pytest.raises(VersionExists):
        await store.deploy_programs([*others, NewProgram("checkout", "2", "another", "{}")], NOW)
    assert await contents(store) == before
    await store.deploy_programs([*others, new("2")], NOW + 9)
    found = [(p.name, p.version, p.deployed_at_ms - NOW) for p in await store.programs()]
    assert found == [
        ("billing", "1", 9),
        ("checkout", "2", 0),
        ("checkout", "1", 9),
        ("shipping", "3", 9),
    ]
    await store.deploy_programs([], NOW)


async def test_two_programs_of_one_version_are_not_deployed_together(store: Store) -> None:
    before = await contents(store)
    with pytest.raises(VersionExists):
        await store.deploy_programs([new("1"), NewProgram("checkout", "1", "another", "{}")], NOW)
    assert await contents(store) == before


async def test_hosts_that_deploy_the_same_programs_in_different_order_do_not_deadlock(
    hosts: tuple[Store, Store],
) -> None:
    # Postgres takes a second to detect a deadlock, and then ends one of the two.
    async with asyncio.timeout(60):
        for number in range(30):
            programs = [new(f"{number}", name) for name in ("a", "b", "c", "d")]
            await asyncio.gather(
                hosts[0].deploy_programs(programs, NOW),
                hosts[1].deploy_programs(programs[::-1], NOW),
            )
    assert len(await hosts[0].programs()) == 120


async def test_a_version_that_was_not_deployed_is_not_activated(store: Store) -> None:
    for version in ("1", "2"):
        await deploy(store, version)
    await store.activate_program("checkout", "1")
    before = await contents(store)
    with pytest.raises(UnknownVersion) as caught:
        await store.activate_program("checkout", "3")
    assert_typed(caught.value, "unknown-version", "'checkout'", "'3'", "'1', '2'")
    with pytest.raises(UnknownVersion) as caught:
        await store.activate_program("nothing", "1")
    assert_typed(caught.value, "unknown-version", "'nothing'", "none")
    assert await contents(store) == before


async def test_activations_of_each_version_are_counted(store: Store) -> None:
    for version in ("1", "2", "3"):
        await deploy(store, version)
    for version in ("1", "1", "2", "1"):
        await store.activate_program("checkout", version)
    counts = {p.version: (p.activations, p.is_active) for p in await store.programs()}
    assert counts == {"1": (2, True), "2": (1, False), "3": (0, False)}


async def test_programs_with_known_digests_are_not_read_again(store: Store) -> None:
    for version in ("1", "2"):
        await deploy(store, version)
    await deploy(store, "1", name="billing")
    await store.activate_program("checkout", "2")
    first = DeployedProgram("checkout", "1", "digest 1", None, False, 0)
    second = DeployedProgram("checkout", "2", "digest 2", '{"nodes": []}', True, 1)
    assert await store.deployed(["digest 1"], "checkout") == [first, second]
    found = await store.deployed([])
    assert [(each.name, each.content) for each in found] == [
        (name, '{"nodes": []}') for name in ("billing", "checkout", "checkout")
    ]
    assert await store.deployed([], "nothing") == []


async def test_each_deployment_and_activation_changes_the_host_snapshot(store: Store) -> None:
    scope = HostScope(HostId("here"), (), (), NOW)
    seen = [(await store.host_snapshot(scope)).deployments]

    async def look() -> None:
        seen.append((await store.host_snapshot(scope)).deployments)

    for version in ("1", "2"):
        await deploy(store, version)
        await look()
    for version in ("1", "2", "1"):
        await store.activate_program("checkout", version)
        await look()
    assert seen == sorted(set(seen)), "a number that grows with each of them"
    await deploy(store, "1")
    await store.activate_program("checkout", "1")
    await look()
    assert seen[-1] == seen[-2], "and with nothing else"


async def test_open_runs_of_each_version_are_counted(store: Store) -> None:
    for version in ("1", "2", "3"):
        await deploy(store, version)
    await deploy(store, "1", name="billing")
    runs = [Driven() for _ in range(4)]
    for run, version in zip(runs, "1122", strict=True):
        await store.commit(run.start(version=version))
        await store.commit(run.first_step())
    await store.commit(runs[3].finish())
    counts = {(p.name, p.version): p.open_runs for p in await store.programs()}
    assert counts == {
        ("billing", "1"): 0,
        ("checkout", "1"): 2,
        ("checkout", "2"): 1,
        ("checkout", "3"): 0,
    }
    found = await store.program("checkout", "1")
    assert found is not None
    assert found.open_runs == 2


async def test_hosts_that_activate_at_once_leave_one_active(hosts: tuple[Store, Store]) -> None:
    versions = [str(number) for number in range(6)]
    for version in versions:
        await deploy(hosts[0], version)
    for _ in range(5):
        async with asyncio.timeout(60):
            await asyncio.gather(
                *(
                    hosts[n % 2].activate_program("checkout", version)
                    for n, version in enumerate(versions * 2)
                )
            )
        assert len(await active(hosts[0])) == 1


async def test_of_hosts_that_deploy_one_version_at_once_one_wins(
    hosts: tuple[Store, Store],
) -> None:
    for number in range(10):
        found = await asyncio.gather(
            *(
                store.deploy_programs(
                    [NewProgram("checkout", str(number), f"digest {n}", f"[{n}]")], NOW
                )
                for n, store in enumerate(hosts)
            ),
            return_exceptions=True,
        )
        assert [type(outcome) for outcome in found if outcome] == [VersionExists]
        program = await hosts[0].program("checkout", str(number))
        assert program is not None
        assert program.digest[-1] == program.content[1] == str(found.index(None))


@pytest.mark.usefixtures("tampering")
async def test_the_database_refuses_a_second_active_version(store: Store) -> None:
    for version in ("1", "2"):
        await deploy(store, version)
    await store.activate_program("checkout", "1")
    with pytest.raises(Exception, match=r"(?i)unique"):
        await raw(store, "UPDATE {}program SET is_active = 1")


async def test_a_program_that_a_store_can_not_keep_is_not_deployed(store: Store) -> None:
    before = await contents(store)
    for bad in (("a\0b", "1", "d", "{}"), ("a", "1\udc80", "d", "{}"), ("a", "1", "d", "\0")):
        with pytest.raises(InputError):
            await store.deploy_programs([new("1"), NewProgram(*bad)], NOW)
    with pytest.raises(InputError, match="at_ms"):
        await store.deploy_programs([new("1")], 2**63)
    with pytest.raises(InputError, match=f"{MAX_NAME_LENGTH}"):
        await store.deploy_programs([new("1"), new("1", "a" * (MAX_NAME_LENGTH + 1))], NOW)
    large = NewProgram("a", "1", "d", "x" * (MAX_PAYLOAD_BYTES + 1))
    with pytest.raises(PayloadTooLarge) as caught:
        await store.deploy_programs([new("1"), large], NOW)
    assert_typed(caught.value, "payload-too-large", "'a'", f"{MAX_PAYLOAD_BYTES:,}")
    assert await contents(store) == before
