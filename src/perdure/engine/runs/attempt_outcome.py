"""How an attempt of a task ended, and the message kinds that carry it."""

from typing import Final

import msgspec

from perdure.core.journal.events import ArtifactRef
from perdure.core.replay.doubt import Doubt


class AttemptOutcome(msgspec.Struct, frozen=True, gc=False):
    """The result or the error of one attempt, encoded. `may_retry`: the task's retry policy covers this failure.

    `is_reconciled`: the task's reconcile function found this result; the task itself was not executed.
    """

    ok: bool
    payload: bytes
    may_retry: bool = False
    is_reconciled: bool = False
    artifacts: tuple[ArtifactRef, ...] = ()
    """What the attempt has stored."""

    @property
    def kind(self) -> str:
        """The kind of the message that carries this outcome."""
        if self.ok:
            return "reconciled" if self.is_reconciled else "completed"
        return "failed" if self.may_retry else "gave-up"

    def kind_by(self, claim: int, doubt: Doubt | None) -> str:
        """The message kind for a queued task. After a doubt it also names the claim and the doubt."""
        return self.kind if doubt is None else f"{self.kind}:{claim}:{doubt}"


_ARTIFACTS: Final = b"\xffrefs"
"""Begins the payload of a message with the outcome of an attempt that has stored artifacts."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(tuple[ArtifactRef, ...]).decode


def pack_outcome(outcome: AttemptOutcome) -> bytes:
    """The payload of the message that carries the outcome: its references come first, if it has any."""
    if not outcome.artifacts:
        return outcome.payload
    return _ARTIFACTS + _encode(outcome.artifacts) + b"\n" + outcome.payload


def unpack_outcome(packed: bytes) -> tuple[bytes, tuple[ArtifactRef, ...]]:
    """The payload and the references of an outcome."""
    if not packed.startswith(_ARTIFACTS):
        return packed, ()
    references, _, payload = packed.removeprefix(_ARTIFACTS).partition(b"\n")
    return payload, _decode(references)
