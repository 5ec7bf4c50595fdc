"""Values to bytes and back: typed JSON, faithful or refused. Never pickle.

A value that JSON can't carry without loss (NaN, infinity, an object without a JSON form) is refused
before anything is written. The type annotation decides what the bytes decode to.
"""

import json
import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from perdure.core.errors import NotDecodable, NotEncodable, PayloadTooLarge
from perdure.core.ids import RunId
from perdure.core.limits import MAX_PAYLOAD_BYTES
from perdure.core.models import decode_model, encode_model
from perdure.core.parts import with_parts
from perdure.core.text_types import is_text_type, text_of, value_of

T = TypeVar("T")


class Codec(Protocol):
    """Turns values into payload bytes and back: `Engine(url, codec=...)`.

    All inputs, results, errors, signals, chunks and published values pass through it. A codec of your own wraps
    `JsonCodec`, as `EncryptedCodec` does. Threads call it at the same time. If equal values may get different bytes
    (because a key was replaced), it also needs a method `plain(payload)`, whose result is the same for both.
    """

    def encode(self, value: object, *, limit: int = MAX_PAYLOAD_BYTES) -> bytes:
        """Bytes of `value`; the same value gives the same bytes. Refuses what it can't carry."""
        ...

    def decode(self, payload: bytes, wanted: type[T]) -> T:
        """The value of type `wanted` that `payload` holds."""
        ...


def is_same_payload(codec: Codec, one: bytes, other: bytes) -> bool:
    """Whether two payloads hold the same value, even if a codec with several keys wrote different bytes."""
    if one == other:
        return True
    plain: Callable[[bytes], bytes] | None = getattr(codec, "plain", None)
    return plain is not None and plain(one) == plain(other)


def is_encrypted(codec: Codec, payload: bytes) -> bool:
    """Whether the codec stores payloads otherwise than they can be read."""
    plain: Callable[[bytes], bytes] | None = getattr(codec, "plain", None)
    return plain is not None and plain(payload) != payload


def codec_of_run(codec: Codec, run_id: RunId) -> Codec:
    """The codec of the machine of that run: `codec` itself, unless runs have codecs of their own."""
    of_run: Callable[[RunId], Codec] | None = getattr(codec, "of_run", None)
    return codec if of_run is None else of_run(run_id)


def encode_named(
    codec: Codec, value: object, name: Callable[[], str], limit: int = MAX_PAYLOAD_BYTES
) -> bytes:
    """Encode `value`; errors begin with its name, which is computed only then."""
    try:
        return codec.encode(value, limit=limit)
    except ENCODING_ERRORS as error:
        raise named(error, name()) from None


ENCODING_ERRORS = (NotEncodable, PayloadTooLarge)


def named(error: NotEncodable | PayloadTooLarge, name: str) -> NotEncodable | PayloadTooLarge:
    """The same error, whose text begins with the name of the value."""
    return type(error)(f"{name}: {error.what}", error.remedy)


class JsonCodec:
    """The default: JSON by msgspec, keys in sorted order, so that equal values hash alike."""

    def __init__(self) -> None:
        self._encoder = msgspec.json.Encoder(order="deterministic", enc_hook=_encode_unknown)

    def encode(self, value: object, *, limit: int = MAX_PAYLOAD_BYTES) -> bytes:
        try:
            payload = self._encoder.encode(value)
        except (TypeError, ValueError, RecursionError) as error:
            payload = self._encode_otherwise(value, error)
        # JSON has no NaN and no infinity: msgspec writes null for them. No null, no need to look.
        # With `in`, Python would try the bytes as a number first, and drop the error.
        if payload.find(b"null") >= 0:
            _refuse_non_finite(value)
        if len(payload) > limit:
            raise PayloadTooLarge(
                f"payload of {len(payload):,} bytes is over the limit of {limit:,}",
                "store it elsewhere and pass a reference",
            )
        return payload

    def _encode_otherwise(self, value: object, error: Exception) -> bytes:
        """Encode a value that the sorting encoder refused: keys that are no text, sets that can't be sorted."""
        if not isinstance(error, TypeError):
            raise _not_encodable(value, error) from error
        try:
            json.loads(
                msgspec.json.encode(value, enc_hook=_encode_unknown),
                object_pairs_hook=_refuse_twins,
            )
            try:
                return self._encoder.encode(_plain(value, order="deterministic"))
            except TypeError:
                return self._encode_parts(value)
        except (TypeError, ValueError, RecursionError) as error_again:
            raise _not_encodable(value, error_again) from error_again

    def _encode_parts(self, value: object) -> bytes:
        """Encode a value whose parts may need it, too. Items of a set are in the order of their bytes."""
        try:
            return self._encoder.encode(value)
        except TypeError:
            if isinstance(value, set | frozenset):
                return b"[" + b",".join(sorted(map(self._encode_parts, value))) + b"]"
            if isinstance(value, list | tuple):
                return b"[" + b",".join(map(self._encode_parts, value)) + b"]"
            if isinstance(value, dict):
                return self._encode_dict(value)
            return self._encoder.encode(with_parts(value, self._encode_raw))

    def _encode_dict(self, value: dict[Any, object]) -> bytes:
        raw = [self._encode_raw(part) for part in value.values()]
        # Keys that are no text, such as numbers and enums, become text.
        keys = msgspec.to_builtins(dict.fromkeys(value), str_keys=True, enc_hook=_encode_unknown)
        return self._encoder.encode(dict(zip(keys, raw, strict=True)))

    def _encode_raw(self, value: object) -> msgspec.Raw:
        return msgspec.Raw(self._encode_parts(value))

    def decode(self, payload: bytes, wanted: type[T]) -> T:
        kind: Any = wanted
        try:
            try:
                decoder = _remembered_decoder_of(kind)
            except TypeError:  # not hashable, or not decodable: then this raises too
                decoder = msgspec.json.Decoder(kind, dec_hook=_decode_unknown)
            value: T = decoder.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError) as error:
            name = getattr(wanted, "__name__", wanted)
            raise NotDecodable(
                f"payload is not a {name} ({error})",
                "the annotation must describe the value that was stored",
            ) from error
        return value


@lru_cache(maxsize=1024)
def _remembered_decoder_of(wanted: Any) -> "msgspec.json.Decoder[Any]":
    return msgspec.json.Decoder(wanted, dec_hook=_decode_unknown)


def _not_encodable(value: object, error: Exception) -> NotEncodable:
    return NotEncodable(
        f"a value of type {type(value).__qualname__!r} can't be stored ({error})",
        "use JSON-like values, dataclasses, msgspec structs, Pydantic models, enums, dates, paths, bytes, UUIDs or "
        "Decimals",
    )


def _encode_unknown(value: object) -> Any:
    """The JSON form of a value that msgspec does not know."""
    return text_of(value) if is_text_type(type(value)) else encode_model(value)


def _decode_unknown(cls: Any, plain: Any) -> Any:
    if is_text_type(cls) and isinstance(plain, str):
        return value_of(cls, plain)
    return decode_model(cls, plain)


def _plain(value: object, order: Literal["deterministic"] | None = None) -> Any:
    """The value in JSON types: dicts with string keys, lists instead of sets; sorted, if an `order` is given."""
    return msgspec.to_builtins(value, str_keys=True, order=order, enc_hook=_encode_unknown)


def _refuse_twins(pairs: list[tuple[str, object]]) -> None:
    """Refuse two keys of one dict with the same text, such as 1 and "1": one would be lost."""
    seen = set()
    for key, _ in pairs:
        if key in seen:
            raise NotEncodable(
                f"two keys of one dict are both written as {key!r}",
                "use keys of one type, or rename one",
            )
        seen.add(key)


def _refuse_non_finite(value: object) -> None:
    try:
        found = [("$", _plain(value))]
    except RecursionError as error:
        raise _not_encodable(value, error) from error
    while found:  # without recursion: a value may nest deeper than Python's stack allows
        where, item = found.pop()
        if isinstance(item, float) and not math.isfinite(item):
            raise NotEncodable(
                f"{item} at {where} has no JSON form", "use None or a string for a missing number"
            )
        if isinstance(item, dict):
            found.extend((f"{where}.{key}", inner) for key, inner in item.items())
        elif isinstance(item, list | tuple):
            found.extend((f"{where}[{index}]", inner) for index, inner in enumerate(item))
