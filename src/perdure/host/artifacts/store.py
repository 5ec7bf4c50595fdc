"""Where artifacts are kept: the interface, and a directory that implements it."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from io import BufferedWriter
from pathlib import Path
from typing import Protocol

from perdure.core.artifacts import StoredArtifact
from perdure.core.errors import ArtifactMissing, InputError, StoreUnavailable

PART_BYTES = 1024 * 1024
"""How much is read at once."""


class NameTaken(InputError):
    """There is an object of that name already."""


class ArtifactStore(Protocol):
    """A place for artifacts. Names have slashes, are used once, and contain letters, digits, '-', '_' and '/'."""

    async def put(self, name: str, parts: AsyncIterator[bytes], size: int) -> None:
        """Store an object, whole or not at all. Raises `NameTaken` if there is one."""
        ...

    async def read(self, name: str, first: int, end: int) -> bytes:
        """Bytes `first` to `end` - 1; fewer at the end of the object. Raises `ArtifactMissing`."""
        ...

    async def delete(self, name: str) -> None:
        """Delete an object. Does nothing if there is none."""
        ...

    def list(self, prefix: str) -> AsyncIterator[StoredArtifact]:
        """All objects whose names begin with the prefix, which is empty or ends with a slash.

        Those of one run follow each other.
        """
        ...


class DirectoryArtifacts:
    """Artifacts as files of a directory, which all hosts must share. It is created with the first artifact."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._root = Path(directory).absolute()

    async def put(self, name: str, parts: AsyncIterator[bytes], size: int) -> None:
        """Writes a file beside it, makes it durable, and links it to its name: a crash leaves no part of it there."""
        del size
        path = self._root / name
        with _as_store_errors(self._root):
            await asyncio.to_thread(path.parent.mkdir, parents=True, exist_ok=True)
            # Named as an artifact that no journal refers to: a sweep deletes what a crash left.
            draft = path.with_name(f"{path.name}draft")
            # Not in a thread: a cancelled attempt would never get the open file.
            file = draft.open("wb")
            try:
                async for part in parts:
                    await asyncio.to_thread(file.write, part)
                await asyncio.to_thread(_publish, file, draft, path)
            finally:
                file.close()
                draft.unlink(missing_ok=True)

    async def read(self, name: str, first: int, end: int) -> bytes:
        with _as_store_errors(self._root):
            return await asyncio.to_thread(_read, self._root / name, first, end)

    async def delete(self, name: str) -> None:
        with _as_store_errors(self._root):
            await asyncio.to_thread(_delete, self._root / name)

    async def list(self, prefix: str) -> AsyncIterator[StoredArtifact]:
        with _as_store_errors(self._root):
            for found in await asyncio.to_thread(_directories, self._root / prefix):
                for each in await asyncio.to_thread(_files, self._root, found):
                    yield each


class _as_store_errors:  # noqa: N801 - reads as a statement
    """Raises `StoreUnavailable` where the file system raises `OSError`."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, OSError):
            raise StoreUnavailable(
                f"the artifacts in {self._root} can't be reached ({error})",
                "see that the directory exists, is writable and has space",
            ) from error


def _publish(file: BufferedWriter, draft: Path, path: Path) -> None:
    file.flush()
    os.fsync(file.fileno())
    try:
        os.link(draft, path)  # fails if the name is taken; a rename would replace
    except FileExistsError:
        raise NameTaken(f"artifact {path.name!r} exists", "names are used once") from None
    except OSError:  # a file system without links; the nonce in the name makes it unique
        draft.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _read(path: Path, first: int, end: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(first)
            return file.read(max(0, end - first))
    except FileNotFoundError:
        raise _missing(path.name) from None


def _missing(name: str) -> ArtifactMissing:
    return ArtifactMissing(
        f"artifact {name!r} is not in its store",
        "it expired, was erased with its run, or is in another store",
    )


def _delete(path: Path) -> None:
    path.unlink(missing_ok=True)
    with suppress(OSError):  # not empty, or gone already
        path.parent.rmdir()


def _directories(at: Path) -> list[Path]:
    return sorted(Path(folder) for folder, _, files in os.walk(at) if files)


def _files(root: Path, at: Path) -> list[StoredArtifact]:
    files = []
    with suppress(FileNotFoundError), os.scandir(at) as found:
        for each in found:
            with suppress(FileNotFoundError):
                if each.is_file():
                    stat = each.stat()
                    name = Path(each.path).relative_to(root).as_posix()
                    files.append(StoredArtifact(name, stat.st_size, int(stat.st_mtime * 1000)))
    return files
