"""Heads: length and last hash of each journal at some time, kept outside the store to be compared later.

The hash chain shows partial changes. That a whole journal was replaced, by an older copy of the store or by another
journal, shows only in a head that was kept outside the store.
"""

from collections.abc import Iterator, Mapping, Sequence

from perdure.core.books import AuditFinding
from perdure.core.errors import InputError
from perdure.core.ids import RunId
from perdure.core.journal.entry import HASH_BYTES, Entry

RecordedHead = tuple[int, str]
"""Number of entries, and the hash of the last one in hex digits."""


def spell_head(entries: int, head: bytes) -> str:
    """A head as text: `17:9f86d081...`."""
    return f"{entries}:{head.hex()}"


def parse_heads(given: object) -> dict[RunId, RecordedHead]:
    """The heads of an earlier report. Raises `InputError` for a malformed one."""
    if not isinstance(given, Mapping):
        raise InputError(f"heads is {given!r:.200}", "pass the `heads` of an earlier report")
    return {RunId(str(run_id)): _parse(run_id, text) for run_id, text in given.items()}


def _parse(run_id: object, text: object) -> RecordedHead:
    count, _, digest = text.partition(":") if isinstance(text, str) else ("", "", "")
    is_hash = len(digest) == 2 * HASH_BYTES and not set(digest) - set("0123456789abcdef")
    if not count.isdecimal() or not is_hash:
        raise InputError(
            f"the head of run {run_id!r} is {text!r:.200}",
            "pass the `heads` of an earlier report: the number of entries, ':' and a hash in hex digits",
        )
    return int(count), digest


def compare_heads(
    run_id: RunId, entries: Sequence[Entry], head: RecordedHead
) -> Iterator[AuditFinding]:
    """Differences between a journal and an earlier head of it."""
    count, digest = head
    before = {entry.seq: entry for entry in entries}.get(count - 1)
    if count and before is None:
        yield AuditFinding(
            *(run_id, len(entries), "journal_shortened"),
            f"it had {count} entries when its head was taken: this store is older, or lost them",
        )
    elif before is not None and before.hash.hex() != digest:
        what = (
            f"its hash is {before.hash.hex()[:16]}, and was {digest[:16]} when its head was taken"
        )
        yield AuditFinding(run_id, count - 1, "journal_replaced", what)


def compare_end(
    run_id: RunId, entries: int, last: bytes, head: RecordedHead
) -> Iterator[AuditFinding]:
    """Differences between the end of a journal, of which the rest is not there, and an earlier head of it."""
    count, digest = head
    if entries < count:
        yield AuditFinding(
            *(run_id, entries, "journal_shortened"),
            f"it had {count} entries when its head was taken, and {entries} when it left the store",
        )
    elif entries == count and last.hex() != digest:
        what = f"its hash was {last.hex()[:16]} when it left the store, and {digest[:16]} when its head was taken"
        yield AuditFinding(run_id, count - 1, "journal_replaced", what)


def vanished(run_id: RunId, head: RecordedHead) -> AuditFinding:
    """The finding for a run that has a head but is not in the store."""
    what = f"it had {head[0]} entries when its head was taken, and is not in the store"
    return AuditFinding(run_id, 0, "run_vanished", what)
