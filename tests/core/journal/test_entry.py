from hashlib import sha256

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.core.errors import CorruptJournal
from perdure.core.journal import events as e
from perdure.core.journal.entry import (
    HASH_BYTES,
    NONCE_BYTES,
    Entry,
    erase,
    genesis,
    seal,
)
from tests.core.journal.strategies import any_event, legal_journals
from tests.core.journal.writer import OTHER_RUN, RUN, STARTED, Writer, step

NONCE = bytes(range(100, 100 + NONCE_BYTES))
PREV = bytes(range(HASH_BYTES))
RESULT = e.InvokeCompleted(step(0), 1, payload=b'"secret"')


def sealed(
    event: e.Event = RESULT, seq: int = 3, at_ms: int = 9, prev: bytes = PREV, nonce: bytes = NONCE
) -> Entry:
    return seal(seq, at_ms, [event], prev, nonce)[0][0]


def test_hash_is_sha256_over_prev_place_payload_digest_and_body() -> None:
    body = b'{"type":"InvokeCompleted","promise_id":"root.0","attempt":1}'
    digest = sha256(NONCE + b'"secret"').digest()
    place = (3).to_bytes(8, "big") + (9).to_bytes(8, "big")
    assert sealed().hash == sha256(PREV + place + digest + body).digest()


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(sealed(prev=bytes(HASH_BYTES)), id="prev"),
        pytest.param(sealed(seq=4), id="seq"),
        pytest.param(sealed(at_ms=10), id="time"),
        pytest.param(sealed(msgspec.structs.replace(RESULT, attempt=2)), id="body"),
        pytest.param(sealed(msgspec.structs.replace(RESULT, payload=b'"Secret"')), id="payload"),
        pytest.param(sealed(msgspec.structs.replace(RESULT, payload=b"")), id="empty payload"),
        pytest.param(sealed(msgspec.structs.replace(RESULT, payload=None)), id="no payload"),
        pytest.param(sealed(nonce=bytes(NONCE_BYTES)), id="nonce"),
    ],
)
def test_hash_covers(changed: Entry) -> None:
    assert changed.hash != sealed().hash


def test_same_entry_has_the_same_hash() -> None:
    assert sealed().hash == sealed().hash


def test_payload_is_not_in_the_body() -> None:
    assert "secret" not in sealed().body
    assert "payload" not in sealed().body


@settings(deadline=None)
@given(any_event)
def test_entry_gives_its_event_back(event: e.Event) -> None:
    assert sealed(event).event == event


def test_event_without_a_payload_leaves_the_nonce_unused() -> None:
    assert sealed(e.ExecutionResumed(), nonce=NONCE) == sealed(e.ExecutionResumed(), nonce=b"")


def test_erasing_keeps_the_hash() -> None:
    assert erase(sealed()).hash == sealed().hash


def test_erased_event_has_no_payload() -> None:
    assert erase(sealed()).event == msgspec.structs.replace(RESULT, payload=None)


def test_erasing_twice_is_erasing_once() -> None:
    assert erase(erase(sealed())) == erase(sealed())


def test_entry_without_a_payload_is_not_changed_by_erasing() -> None:
    entry = sealed(e.ExecutionResumed())
    assert erase(entry) is entry


def test_nonce_and_payload_are_gone_once_erased() -> None:
    stored = msgspec.msgpack.encode(erase(sealed()))
    assert NONCE not in stored
    assert b"secret" not in stored


def test_payload_can_not_be_confirmed_from_the_digest_without_the_nonce() -> None:
    erased = erase(sealed())
    assert erased.erased == sha256(NONCE + b'"secret"').digest()
    assert erased.erased != sha256(b'"secret"').digest()


def test_same_payload_under_another_nonce_leaves_another_digest() -> None:
    assert erase(sealed()).erased != erase(sealed(nonce=bytes(NONCE_BYTES))).erased


@settings(max_examples=50, deadline=None)
@given(legal_journals(), st.sets(st.integers(0, 60)))
def test_erasing_any_payloads_keeps_every_hash_of_the_chain(
    writer: Writer, places: set[int]
) -> None:
    kept = [erase(entry) if entry.seq in places else entry for entry in writer.entries]
    assert [entry.hash for entry in kept] == [entry.hash for entry in writer.entries]


@settings(max_examples=50, deadline=None)
@given(legal_journals())
def test_each_entry_holds_the_hash_of_the_one_before(writer: Writer) -> None:
    hashes = [genesis(RUN), *(entry.hash for entry in writer.entries)]
    assert [entry.prev for entry in writer.entries] == hashes[:-1]
    assert writer.journal.head == hashes[-1]


def test_genesis_differs_from_run_to_run() -> None:
    assert genesis(RUN) != genesis(OTHER_RUN)


def test_same_events_of_another_run_have_other_hashes() -> None:
    ours, theirs = Writer(RUN), Writer(OTHER_RUN)
    assert ours.append(STARTED).head != theirs.append(STARTED).head


def test_body_that_can_not_be_read_is_refused() -> None:
    entry = msgspec.structs.replace(sealed(), body='{"type":"Nonsense"}')
    with pytest.raises(CorruptJournal, match="entry 3 can't be read"):
        _ = entry.event


def test_payload_under_an_event_that_carries_none_is_refused() -> None:
    entry = msgspec.structs.replace(sealed(), body='{"type":"ExecutionResumed"}')
    with pytest.raises(CorruptJournal, match="ExecutionResumed carries none"):
        _ = entry.event
