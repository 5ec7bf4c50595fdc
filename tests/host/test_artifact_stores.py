"""What every artifact store guarantees: a directory, S3 by a moto server, and obstore's own directory."""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure import ArtifactMissing, ArtifactStore, DirectoryArtifacts, InputError, ObjectArtifacts
from perdure.core.artifacts import ArtifactName
from perdure.core.errors import StoreUnavailable
from perdure.core.ids import RunId
from perdure.host.artifacts.object_store import WHOLE_BYTES

RUN = RunId("r_" + "0" * 31 + "1")
NAME = str(ArtifactName(RUN, 0, "ab"))


@pytest.fixture(scope="session")
def s3_address() -> Iterator[str]:
    from moto.server import ThreadedMotoServer  # noqa: PLC0415 - slow to import

    server = ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(params=["directory", "s3", "local"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ArtifactStore:
    if request.param == "directory":
        return DirectoryArtifacts(tmp_path / "artifacts")
    from obstore.store import LocalStore, S3Store  # noqa: PLC0415 - slow to import

    if request.param == "local":
        return ObjectArtifacts(LocalStore(tmp_path), "within/")
    address = request.getfixturevalue("s3_address")
    keys: dict[str, Any] = {"access_key_id": "test", "secret_access_key": "test"}
    _create_bucket(address, tmp_path.name.lower().replace("_", "-"))
    bucket = tmp_path.name.lower().replace("_", "-")
    options: Any = {"allow_http": True, "proxy_excludes": "127.0.0.1"}
    return ObjectArtifacts(
        S3Store(bucket, endpoint=address, region="us-east-1", client_options=options, **keys),
        "within/",
    )


def _create_bucket(address: str, name: str) -> None:
    from urllib.request import ProxyHandler, Request, build_opener  # noqa: PLC0415

    build_opener(ProxyHandler({})).open(Request(f"{address}/{name}", method="PUT")).close()


async def parts_of(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def listed(store: ArtifactStore, prefix: str = "") -> dict[str, int]:
    return {each.name: each.size async for each in store.list(prefix)}


async def test_what_is_stored_is_read_whole_and_in_ranges(store: ArtifactStore) -> None:
    await store.put(NAME, parts_of(b"abc", b"def"), 6)
    assert await store.read(NAME, 0, 6) == b"abcdef"
    assert await store.read(NAME, 2, 4) == b"cd"
    assert await store.read(NAME, 3, 3) == b""
    assert await listed(store) == {NAME: 6}


async def test_a_large_object_is_stored_whole(store: ArtifactStore) -> None:
    part = os.urandom(1024 * 1024)
    count = WHOLE_BYTES // len(part) + 2
    await store.put(NAME, parts_of(*[part] * count), count * len(part))
    assert await store.read(NAME, WHOLE_BYTES, WHOLE_BYTES + len(part)) == part
    assert await listed(store) == {NAME: count * len(part)}


async def test_a_name_is_used_once(store: ArtifactStore) -> None:
    await store.put(NAME, parts_of(b"first"), 5)
    with pytest.raises(InputError, match="exists"):
        await store.put(NAME, parts_of(b"other"), 5)
    assert await store.read(NAME, 0, 5) == b"first"


async def test_what_is_missing_is_reported_and_may_be_deleted_again(store: ArtifactStore) -> None:
    with pytest.raises(ArtifactMissing):
        await store.read(NAME, 0, 1)
    await store.delete(NAME)
    await store.put(NAME, parts_of(b"x"), 1)
    await store.delete(NAME)
    assert await listed(store) == {}


async def test_a_listing_is_limited_to_its_prefix(store: ArtifactStore) -> None:
    other = str(ArtifactName(RunId("r_" + "0" * 31 + "2"), 0, "cd"))
    await store.put(NAME, parts_of(b"x"), 1)
    await store.put(other, parts_of(b"y"), 1)
    assert await listed(store, f"02/r_{'0' * 31}2/") == {other: 1}
    assert set(await listed(store)) == {NAME, other}


async def test_a_put_that_fails_half_way_stores_nothing_under_the_name(
    store: ArtifactStore,
) -> None:
    async def failing() -> AsyncIterator[bytes]:
        yield b"half"
        raise ConnectionError("gone")

    with pytest.raises((ConnectionError, StoreUnavailable)):
        await store.put(NAME, failing(), 8)
    with pytest.raises(ArtifactMissing):
        await store.read(NAME, 0, 1)


async def test_a_directory_that_can_not_be_written_is_a_store_that_can_not_be_reached(
    tmp_path: Path,
) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(StoreUnavailable, match="taken"):
        await DirectoryArtifacts(tmp_path / "taken").put(NAME, parts_of(b"x"), 1)
