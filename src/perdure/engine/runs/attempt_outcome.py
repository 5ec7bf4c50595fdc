"""How an attempt of a task ended, and the message kinds that carry it."""

import msgspec

from perdure.core.replay.doubt import Doubt


class AttemptOutcome(msgspec.Struct, frozen=True, gc=False):
    """The result or the error of one attempt, encoded. `may_retry`: the task's retry policy covers this failure.

    `is_reconciled`: the task's reconcile function found this result; the task itself was not executed.
    """

    ok: bool
    payload: bytes
    may_retry: bool = False
    is_reconciled: bool = False

    @property
    def kind(self) -> str:
        """The kind of the message that carries this outcome."""
        if self.ok:
            return "reconciled" if self.is_reconciled else "completed"
        return "failed" if self.may_retry else "gave-up"

    def kind_by(self, claim: int, doubt: Doubt | None) -> str:
        """The message kind for a queued task. After a doubt it also names the claim and the doubt."""
        return self.kind if doubt is None else f"{self.kind}:{claim}:{doubt}"
