"""Ledgers in files: atomic replacement, and a lock that the kernel releases when its holder dies.

    <id>.operation.json        the ledger; replaced atomically, so that readers never see a partial file
    <id>.operation.log         log lines
    <id>.operation.debug.log   log lines, those of level debug included
    <id>.operation.lock        locked with flock while the ledger changes; contains the pid of the last holder
    backup/<id>/               operation.json, operation.log and operation.debug.log of an ended operation

The lock file is never replaced. Its holder removes it when it moves the operation to the backups. A process that was
waiting for the removed file then locks an unlinked inode, so a lock counts only if the path still refers to the
locked file.
"""

import asyncio
import fcntl
import logging
import os
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from perdure.core.errors import StoreUnavailable
from perdure.core.operations.data import LedgerData, decode, encode
from perdure.core.operations.log import LogLevel, LogLine
from perdure.core.operations.names import is_operation_id, require_operation_id
from perdure.core.operations.transitions import BeforeAfter, Decide, LedgerChange

_JSON, _LOG, _DEBUG = "operation.json", "operation.log", "operation.debug.log"
_LOCK = "operation.lock"
_log = logging.getLogger("perdure.operations")
_MIN_WAIT_S, _MAX_WAIT_S = 0.001, 0.02


class FileBackend:
    """Ledgers in one directory, shared by processes of one machine."""

    def __init__(self, base_path: Path, lock_timeout_s: float) -> None:
        self._base = base_path
        self._backups = base_path / "backup"
        self._lock_timeout_s = lock_timeout_s

    @property
    def name(self) -> str:
        return str(self._base)

    async def open(self) -> None:
        with self._typed_errors():
            self._base.mkdir(parents=True, exist_ok=True)

    async def close(self) -> None:
        """Files are open only during a call: there is nothing to close."""

    async def create(self, change: LedgerChange) -> bool:
        operation_id = change.data.operation_id
        path = self._path(operation_id, _JSON)
        async with self._locked(operation_id):
            with self._typed_errors():
                if path.exists() or (self._backups / operation_id).exists():
                    return False
                _replace(path, encode(change.data))
            self._append(operation_id, change.lines)
            return True

    async def change(self, operation_id: str, decide: Decide) -> BeforeAfter | None:
        path = self._path(operation_id, _JSON)
        if not path.exists():
            return None
        async with self._locked(operation_id) as lock:
            with self._typed_errors():
                before = _read(path)
                if before is None:
                    lock.unlink(missing_ok=True)
                    return None
                change = decide(before)
                if change.data != before:
                    _replace(path, encode(change.data))
            self._append(operation_id, change.lines)
            return BeforeAfter(before, change.data)

    async def load(self, operation_id: str) -> LedgerData | None:
        with self._typed_errors():
            return _read(self._path(operation_id, _JSON))

    async def load_backup(self, operation_id: str) -> LedgerData | None:
        with self._typed_errors():
            return _read(self._backups / require_operation_id(operation_id) / _JSON)

    async def back_up(self, operation_id: str, keep: int) -> None:
        """Moves the ledger file last: until then any process can repeat an interrupted move."""
        path = self._path(operation_id, _JSON)
        if path.exists():
            async with self._locked(operation_id) as lock:
                with self._typed_errors():
                    self._move(operation_id)
                    lock.unlink(missing_ok=True)
        for old in (await self.operation_ids(backups=True))[: -keep or None]:
            _remove_backup(self._backups / old)

    def _move(self, operation_id: str) -> None:
        folder = self._backups / operation_id
        folder.mkdir(parents=True, exist_ok=True)
        for kind in (_LOG, _DEBUG, _JSON):
            try:
                os.replace(self._path(operation_id, kind), folder / kind)
            except FileNotFoundError:
                continue
        _draft(self._path(operation_id, _JSON)).unlink(missing_ok=True)
        for changed in (folder, self._backups, self._base):
            _sync_folder(changed)

    async def operation_ids(self, *, backups: bool) -> list[str]:
        """Ignores files that are not ledgers."""
        with self._typed_errors():
            if backups:
                names = [path.parent.name for path in self._backups.glob(f"*/{_JSON}")]
            else:
                end = f".{_JSON}"
                names = [path.name.removesuffix(end) for path in self._base.glob(f"*{end}")]
        return sorted(name for name in names if is_operation_id(name))

    async def read_log(self, operation_id: str, *, debug: bool) -> list[str]:
        kind = _DEBUG if debug else _LOG
        candidates = (self._path(operation_id, kind), self._backups / operation_id / kind)
        with self._typed_errors():
            for path in candidates:
                try:
                    return path.read_text(encoding="utf-8", errors="replace").splitlines()
                except FileNotFoundError:
                    continue
        return []

    def _path(self, operation_id: str, kind: str) -> Path:
        return self._base / f"{require_operation_id(operation_id)}.{kind}"

    def _append(self, operation_id: str, lines: Sequence[LogLine]) -> None:
        """Appends log lines after the commit. A failed write is ignored: the commit stands."""
        without_debug = [line for line in lines if line.level is not LogLevel.DEBUG]
        for kind, chosen in ((_LOG, without_debug), (_DEBUG, lines)):
            if chosen:
                text = "".join(f"{line}\n" for line in chosen)
                try:
                    _append_to(self._path(operation_id, kind), text.encode())
                except OSError:
                    continue

    @asynccontextmanager
    async def _locked(self, operation_id: str) -> AsyncIterator[Path]:
        path = self._path(operation_id, _LOCK)
        end = time.monotonic() + self._lock_timeout_s
        wait_s = _MIN_WAIT_S
        while (held := self._try_lock(path)) is None:
            if time.monotonic() >= end:
                raise StoreUnavailable(
                    f"{path} has been locked for {self._lock_timeout_s:g} seconds by {_holder(path)}",
                    "resume or end that process: its end releases the lock",
                )
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, _MAX_WAIT_S)
        try:
            yield path
        finally:
            os.close(held)

    def _try_lock(self, path: Path) -> int | None:
        """The descriptor that holds the lock; `None` if the lock is taken."""
        with self._typed_errors():
            opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not _is_same_file(path, opened):
                    raise BlockingIOError
                os.ftruncate(opened, 0)
                os.pwrite(opened, b"%d\n" % os.getpid(), 0)
            except BlockingIOError:
                os.close(opened)
                return None
            except BaseException:
                os.close(opened)
                raise
            return opened

    @contextmanager
    def _typed_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreUnavailable(
                f"the ledgers in {self._base} can't be read or written ({error})",
                "check that it is a writable directory, and that the disk is not full",
            ) from error


def _is_same_file(path: Path, opened: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(opened))
    except FileNotFoundError:
        return False


def _holder(path: Path) -> str:
    try:
        return f"process {int(path.read_text())}"
    except (OSError, ValueError):
        return "an unknown process"


def _read(path: Path) -> LedgerData | None:
    try:
        return decode(path.read_bytes(), str(path))
    except FileNotFoundError:
        return None


def _remove_backup(folder: Path) -> None:
    """Removes the files of a backup, and no others. The ledger file goes last, so that a crash leaves it listed."""
    try:
        for kind in (_LOG, _DEBUG, _JSON):
            (folder / kind).unlink(missing_ok=True)
        folder.rmdir()
    except OSError as error:
        _log.warning("could not remove backup %s (%s)", folder, error)


def _draft(path: Path) -> Path:
    return path.with_name(f"{path.name}.tmp")


def _replace(path: Path, raw: bytes) -> None:
    """Replaces a file atomically; durable on return. The caller holds the lock, so the draft's name is free."""
    draft = _draft(path)
    try:
        with open(draft, "wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _append_to(path: Path, text: bytes) -> None:
    opened = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        os.write(opened, text)
    finally:
        os.close(opened)
