"""Journals of tests as contract events."""

from collections.abc import Sequence

from perdure.core.codec import JsonCodec
from perdure.core.runs.contract_event import ContractEvent, EngineRunRef
from perdure.core.runs.contract_reader import ContractReader, RunOrigin
from tests.core.journal.writer import RUN, Writer

REF = EngineRunRef("checkout", "v7", "d1", "shop")


def history_of(writer: Writer) -> list[ContractEvent]:
    """The contract events of a journal. Payloads that are no JSON are unreadable."""
    reader = ContractReader(RunOrigin(RUN, REF), JsonCodec())
    return [reader.read(entry) for entry in writer.entries]


def last_of(writer: Writer) -> ContractEvent:
    return history_of(writer)[-1]


def named(events: Sequence[ContractEvent]) -> list[str]:
    return [event.type.value for event in events]


def failure(kind: str = "ValueError", message: str = "no") -> bytes:
    """The stored form of an exception."""
    stored = {"type": f"builtins:{kind}", "message": message, "traceback": f"{kind}: {message}"}
    return JsonCodec().encode(stored)
