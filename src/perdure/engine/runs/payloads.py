"""Compares payloads that a codec with several keys may have written with different bytes."""

from msgspec.structs import replace

from perdure.core.codec import Codec, is_same_payload
from perdure.core.journal import events as e
from perdure.core.replay.matching import differs
from perdure.engine.runs.record import IsSame


def is_same_event(codec: Codec, otherwise: IsSame, recorded: e.Event, actual: e.Event) -> bool:
    """Whether two events are the same but for the key that encrypted their payloads, or by `otherwise`.

    Raises `NotDecodable` if the recorded payload can't be decrypted.
    """
    if (
        isinstance(recorded, e.Carrier)
        and isinstance(actual, e.Carrier)
        and recorded.payload is not None
        and actual.payload is not None
        and recorded.payload != actual.payload
        and not differs(replace(recorded, payload=actual.payload), actual)
        and is_same_payload(codec, recorded.payload, actual.payload)
    ):
        return True
    return otherwise(recorded, actual)
