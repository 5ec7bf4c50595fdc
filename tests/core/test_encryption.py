import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import Codec, EncryptedCodec, JsonCodec
from perdure.core.codec import is_same_payload
from perdure.core.encryption import OVERHEAD, key_id
from perdure.core.errors import InputError, NotDecodable, PayloadTooLarge
from perdure.core.limits import MAX_PAYLOAD_BYTES

OLD, NEW = bytes(range(64)), bytes(range(1, 65))

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(VALUES)
def test_a_value_survives_encryption_and_the_same_value_gives_the_same_bytes(value: object) -> None:
    codec = EncryptedCodec([NEW])
    payload = codec.encode(value)
    assert codec.decode(payload, object) == value
    assert codec.encode(value) == payload


@given(VALUES)
def test_a_replaced_key_still_decrypts_and_payloads_compare_as_the_same(value: object) -> None:
    before, after = EncryptedCodec([OLD]), EncryptedCodec([NEW, OLD])
    stored, again = before.encode(value), after.encode(value)
    assert stored != again
    assert after.decode(stored, object) == value
    assert is_same_payload(after, stored, again)


def test_payloads_of_other_values_are_not_the_same() -> None:
    codec = EncryptedCodec([NEW, OLD])
    assert not is_same_payload(codec, EncryptedCodec([OLD]).encode(1), codec.encode(2))


def test_a_payload_of_an_unknown_key_is_refused_and_the_error_names_the_key() -> None:
    payload = EncryptedCodec([OLD]).encode("hush")
    with pytest.raises(NotDecodable, match=key_id(OLD)):
        EncryptedCodec([NEW]).decode(payload, str)


@pytest.mark.parametrize("at", [0, 5, 13, 20, -1])
def test_an_altered_payload_is_refused(at: int) -> None:
    codec = EncryptedCodec([NEW])
    payload = bytearray(codec.encode("hush"))
    payload[at] ^= 1
    with pytest.raises(NotDecodable):
        codec.decode(bytes(payload), str)


def test_a_payload_that_was_stored_before_is_read_only_if_that_is_allowed() -> None:
    plain = JsonCodec().encode("old")
    with pytest.raises(NotDecodable, match="accept_plain"):
        EncryptedCodec([NEW]).decode(plain, str)
    assert EncryptedCodec([NEW], accept_plain=True).decode(plain, str) == "old"


def test_the_error_of_a_value_that_does_not_fit_its_annotation_quotes_no_value() -> None:
    from enum import Enum  # noqa: PLC0415 - used here alone

    class Colour(Enum):
        RED = "red"

    codec = EncryptedCodec([NEW])
    with pytest.raises(NotDecodable) as failure:
        codec.decode(codec.encode("hush"), Colour)
    assert "hush" not in str(failure.value)
    assert failure.value.__cause__ is None


def test_the_limit_counts_the_encrypted_bytes() -> None:
    codec = EncryptedCodec([NEW])
    largest = "x" * (MAX_PAYLOAD_BYTES - OVERHEAD - 2)
    assert len(codec.encode(largest)) == MAX_PAYLOAD_BYTES
    with pytest.raises(PayloadTooLarge):
        codec.encode(largest + "x")


@pytest.mark.parametrize("keys", [[], b"k" * 64, [b"short"], ["k" * 64], [bytearray(64)]])
def test_wrong_keys_are_refused(keys: list[bytes]) -> None:
    with pytest.raises(InputError) as refusal:
        EncryptedCodec(keys)
    assert "short" not in str(refusal.value)


def test_it_wraps_any_codec() -> None:
    class Reversing:
        def __init__(self) -> None:
            self._inner = JsonCodec()

        def encode(self, value: object, *, limit: int = MAX_PAYLOAD_BYTES) -> bytes:
            return self._inner.encode(value, limit=limit)[::-1]

        def decode(self, payload, wanted):  # type: ignore[no-untyped-def]
            return self._inner.decode(payload[::-1], wanted)

    inner: Codec = Reversing()
    codec = EncryptedCodec([os.urandom(32)], inner)
    assert codec.decode(codec.encode([1, 2]), list[int]) == [1, 2]
