"""References that stand in the store for payloads over the limit, whose bytes are artifacts."""

from hashlib import sha256
from typing import Final

import msgspec

from perdure.core.artifacts import ArtifactName, parse_name
from perdure.core.errors import InputError, NotDecodable
from perdure.core.ids import RunId

MARK: Final = b"\xffref1 "
"""Begins a reference. No JSON text begins with this byte."""


class PayloadRef(msgspec.Struct, frozen=True):
    """Where the bytes of a large payload are. The name follows from the run and the bytes, so a replay gets the same
    reference, and so does an attempt to store them again."""

    name: str
    size: int

    @property
    def sha256(self) -> str:
        return parse_name(self.name).nonce

    @property
    def payload(self) -> bytes:
        """What the store holds in the place of the bytes."""
        return MARK + f"{self.name} {self.size}".encode()


def reference_to(run_id: RunId, content: bytes) -> PayloadRef:
    """The reference by which a run refers to these bytes."""
    name = ArtifactName(run_id, 0, sha256(content).hexdigest())
    return PayloadRef(str(name), len(content))


def read_reference(payload: bytes) -> PayloadRef | None:
    """The reference that a payload is; None if it is no reference."""
    if not payload.startswith(MARK):
        return None
    try:
        name, _, size = payload[len(MARK) :].decode().partition(" ")
        parse_name(name)
        return PayloadRef(name, int(size))
    except (UnicodeDecodeError, ValueError, InputError) as error:
        raise NotDecodable(
            "the reference to a large payload is damaged", "restore it from a backup"
        ) from error


def value_bytes(payload: bytes) -> int:
    """How many bytes the value takes in the store and beside it."""
    ref = read_reference(payload)
    return len(payload) if ref is None else ref.size
