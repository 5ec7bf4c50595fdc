"""Erasing the data of a run: what an entry keeps, and the receipt. Pure.

An erased entry keeps its place, its time, the hash of its payload and, if its body held texts of users, its own hash in
place of those texts. So the chain verifies, and the head of the journal stays what it was.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

import msgspec

from perdure.core.errors import PerdureError, StoreDamaged
from perdure.core.ids import RunId
from perdure.core.journal import events as e
from perdure.core.journal.entry import HASH_BYTES, Entry, body_of, erase, redact

_TEXTS: Final[Mapping[type[e.Event], Mapping[str, Any]]] = {
    e.ExecutionStarted: {"idempotency_key": None, "tags": None, "slot": None},
    e.CancelRequested: {"reason": ""},
    e.ExecutionCancelled: {"reason": ""},
    e.InvokeCompleted: {"artifacts": ()},
    e.RunPaused: {"reason": ""},
    e.StepSkipped: {"reason": ""},
    e.SignalAccepted: {"reason": ""},
    e.SignalRejected: {"reason": ""},
}
"""The fields of bodies that hold what users wrote, or hashes of it, and what they hold once they are erased. The names
of programs, steps, signals and operators stay."""


_Awaited = e.AwaitSignal | tuple[e.AwaitSignal, ...] | None


class RunErasure(msgspec.Struct, frozen=True, omit_defaults=True):
    """The receipt for one run: what was erased, by hashes.

    `head` is the last hash of its journal of that many `entries`, which did not change. `payloads` were erased, and
    `digest` is the SHA-256 of their hashes, in order. `redacted` has, for each entry whose texts were erased, the
    SHA-256 of what its body is now.
    """

    run_id: RunId
    at_ms: int
    entries: int
    head: str
    payloads: int
    digest: str
    by: str = ""
    reason: str = ""
    redacted: dict[int, str] = {}

    @property
    def sha256(self) -> str:
        """The hash of the receipt. Keep it outside the store to prove the receipt later."""
        return sha256(self.text.encode()).hexdigest()

    @property
    def text(self) -> str:
        """The receipt as it is stored."""
        return msgspec.json.encode(self).decode()


def read_erasure(text: str) -> RunErasure:
    """A receipt as it was stored."""
    try:
        return msgspec.json.decode(text, type=RunErasure)
    except msgspec.DecodeError as error:
        raise StoreDamaged(
            f"a receipt can't be read ({error})", "restore the store from a backup"
        ) from error


class Erased(msgspec.Struct, frozen=True):
    """A journal without the users' data. `changed` are the entries that differ from those before."""

    entries: tuple[Entry, ...]
    changed: tuple[Entry, ...]


def erase_journal(entries: Sequence[Entry]) -> Erased:
    """The journal without payloads and users' texts, with the same hashes."""
    after = tuple(map(_erased_entry, entries))
    changed = [now for before, now in zip(entries, after, strict=True) if now != before]
    return Erased(after, tuple(changed))


def _erased_entry(entry: Entry) -> Entry:
    blank = _blank_fields(entry)
    if not blank:
        return erase(entry)
    return redact(entry, body_of(msgspec.structs.replace(entry.event, **blank), entry.seq))


def _blank_fields(entry: Entry) -> Mapping[str, Any]:
    """The fields to blank, if any of them holds something. An entry that can't be read has nothing to blank."""
    try:
        event = entry.event
    except PerdureError:
        return {}
    blank: Mapping[str, Any] = _TEXTS.get(type(event), {})
    if isinstance(event, e.ExecutionAwaiting):
        blank = {"signal": _bare(event.signal)}
    return blank if any(getattr(event, name) != empty for name, empty in blank.items()) else {}


def _bare(signal: _Awaited) -> _Awaited:
    """What a program awaits, without the texts that a person was shown."""
    if isinstance(signal, tuple):
        return tuple(each.bare for each in signal)
    return None if signal is None else signal.bare


def receipt_of(run_id: RunId, erased: Erased, at_ms: int, by: str, reason: str) -> RunErasure:
    """The receipt for a journal that was erased, now or in parts earlier."""
    marks = [entry.erased for entry in erased.entries if entry.erased is not None]
    digests = [mark[:HASH_BYTES] for mark in marks if any(mark[:HASH_BYTES])]
    return RunErasure(
        run_id,
        at_ms,
        entries=len(erased.entries),
        head=erased.entries[-1].hash.hex() if erased.entries else "",
        payloads=len(digests),
        digest=sha256(b"".join(digests)).hexdigest(),
        by=by,
        reason=reason,
        redacted={
            entry.seq: sha256(entry.body.encode()).hexdigest()
            for entry in erased.entries
            if entry.is_redacted
        },
    )
