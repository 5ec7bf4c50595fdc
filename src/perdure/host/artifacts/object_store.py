"""Artifacts in S3 and other object stores, by obstore."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from perdure.core.artifacts import StoredArtifact
from perdure.core.errors import ArtifactMissing, InputError, StoreUnavailable
from perdure.host.artifacts.store import NameTaken

if TYPE_CHECKING:
    from obstore.store import ObjectStore

WHOLE_BYTES = 8 * 1024 * 1024
"""Up to this size an object is written by one request, which fails if the name is taken."""


class ObjectArtifacts:
    """Artifacts in an object store of obstore: `ObjectArtifacts(S3Store("bucket"), prefix="perdure/")`.

    Needs `pip install 'perdure[s3]'`, which also has Google's and Azure's stores.
    """

    def __init__(self, store: "ObjectStore", prefix: str = "") -> None:
        try:
            import obstore  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise InputError(
                "ObjectArtifacts needs the package 'obstore'", "pip install 'perdure[s3]'"
            ) from error
        self._obstore: Any = obstore
        self._store = store
        self._prefix = prefix

    async def put(self, name: str, parts: AsyncIterator[bytes], size: int) -> None:
        path = self._prefix + name
        try:
            if size <= WHOLE_BYTES:
                whole = b"".join([part async for part in parts])
                await self._obstore.put_async(self._store, path, whole, mode="create")
            else:
                await self._obstore.put_async(self._store, path, parts, use_multipart=True)
        except Exception as error:
            raise self._translated(error, name) from error

    async def read(self, name: str, first: int, end: int) -> bytes:
        if end <= first:
            return b""
        path = self._prefix + name
        try:
            part = await self._obstore.get_range_async(self._store, path, start=first, end=end)
        except Exception as error:
            raise self._translated(error, name) from error
        return bytes(part)

    async def delete(self, name: str) -> None:
        try:
            await self._obstore.delete_async(self._store, self._prefix + name)
        except FileNotFoundError:
            return
        except Exception as error:
            raise self._translated(error, name) from error

    async def list(self, prefix: str) -> AsyncIterator[StoredArtifact]:
        try:
            async for found in self._obstore.list(self._store, self._prefix + prefix):
                for each in found:
                    name = each["path"].removeprefix(self._prefix)
                    stored_at_ms = int(each["last_modified"].timestamp() * 1000)
                    yield StoredArtifact(name, each["size"], stored_at_ms)
        except self._obstore.exceptions.BaseError as error:
            raise self._translated(error, prefix) from error

    def _translated(self, error: Exception, name: str) -> Exception:
        known = self._obstore.exceptions
        if isinstance(error, FileNotFoundError | known.NotFoundError):
            return ArtifactMissing(
                f"artifact {name!r} is not in its store",
                "it expired, was erased with its run, or is in another store",
            )
        if isinstance(error, known.AlreadyExistsError):
            return NameTaken(f"artifact {name!r} exists", "names are used once")
        if isinstance(error, known.BaseError | OSError):
            return StoreUnavailable(
                f"the object store refused artifact {name!r} ({type(error).__name__})",
                "see that it can be reached, and that its credentials allow this",
            )
        return error
