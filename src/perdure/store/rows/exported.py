"""A run as JSON lines: its row and balances first, then one line for each entry. Enough to replay it elsewhere.

The archive has runs in this form, too, with what else the store had of them.
"""

import gzip
import zlib
from collections.abc import Iterable, Iterator

import msgspec

from perdure.core.books import Books, verify_books
from perdure.core.errors import CorruptJournal
from perdure.core.journal.entry import Entry
from perdure.core.ledger import AccountId
from perdure.store.rows.records import Run
from perdure.store.rows.runs import ending_of

FORMAT = "perdure-run-1"
_GZIP = b"\x1f\x8b"
_REMEDY = "export the run again: perdure runs export RUN"


class ExportHeader(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The first line. `streams` has the chunks of each, `receipt` says what was erased."""

    format: str = ""
    run: Run
    balances: dict[AccountId, int] = {}
    published: dict[str, bytes] = {}
    streams: dict[str, list[bytes]] = {}
    receipt: str | None = None


def write_export(header: ExportHeader, entries: Iterable[Entry]) -> Iterator[bytes]:
    """The lines, each with its end."""
    yield msgspec.json.encode(msgspec.structs.replace(header, format=FORMAT)) + b"\n"
    for entry in entries:
        yield msgspec.json.encode(entry) + b"\n"


def read_export(content: bytes, name: str) -> tuple[ExportHeader, list[Entry]]:
    """The run and its journal. Raises `CorruptJournal` if the content, which may be compressed, is not an unchanged
    export."""
    try:
        lines = (gzip.decompress(content) if content[:2] == _GZIP else content).splitlines()
        header = msgspec.json.decode(lines[0] if lines else b"", type=ExportHeader)
        entries = [msgspec.json.decode(line, type=Entry) for line in lines[1:]]
    except (msgspec.DecodeError, UnicodeDecodeError, OSError, EOFError, zlib.error) as error:
        raise CorruptJournal(f"{name} is not an exported run ({error})", _REMEDY) from None
    if header.format != FORMAT:
        raise CorruptJournal(
            f"{name} has the format {header.format!r}", f"this Perdure reads {FORMAT}"
        )
    run = header.run
    books = Books(
        run.run_id, ending_of(run), tuple(entries), header.balances, receipt=header.receipt
    )
    findings = verify_books(books)
    if findings:
        raise CorruptJournal(f"{name} was changed: {findings[0]}", _REMEDY)
    return header, entries
