"""Policies: which ended runs leave the store, and how."""

from typing import Literal, get_args

import msgspec

from perdure.authoring.durations import Duration, milliseconds
from perdure.authoring.texts import require_user_text
from perdure.core.errors import InputError
from perdure.core.journal.state import Status
from perdure.core.limits import MAX_NAME_LENGTH
from perdure.store.retention_table import Retainable

Outcome = Literal["archive", "erase", "purge"]
EndedStatus = Literal["completed", "failed", "cancelled"]


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """What happens to runs that are over: `Retention(program="checkout", after=30 * 86400, then="archive")`.

    A run is due when it ended more than `after` ago, and is not among the newest `keep` that ended with its status. A
    policy without a `program`, `status` or `scope` is for all of them. `then` is "archive" (to the archive, and out of
    the store), "erase" (the run stays, without data) or "purge" (the run is gone, and from the archive too).

    A run stays as long as a run that may need it is open: its parent, a child, a fork, or one of its chain.
    """

    then: Outcome
    after: Duration | None = None
    keep: int | None = None
    program: str | None = None
    status: EndedStatus | None = None
    scope: str | None = None

    def __post_init__(self) -> None:
        if self.then not in get_args(Outcome):
            raise InputError(f"then is {self.then!r}", "use 'archive', 'erase' or 'purge'")
        if self.status is not None and self.status not in get_args(EndedStatus):
            raise InputError(
                f"status is {self.status!r}", "use 'completed', 'failed' or 'cancelled', or none"
            )
        if self.after is None and self.keep is None:
            raise InputError(
                "a policy without `after` and `keep` is for every ended run",
                "say how long runs stay, or how many",
            )
        if self.after is not None:
            milliseconds(self.after, "after")
        if self.keep is not None and (type(self.keep) is not int or self.keep < 0):
            raise InputError(f"keep is {self.keep!r}", "pass a whole number of at least 0")
        for name in ("program", "scope"):
            given = getattr(self, name)
            if given is not None:
                require_user_text(f"a {name}", given, MAX_NAME_LENGTH, least=0)

    @property
    def after_ms(self) -> int:
        return 0 if self.after is None else milliseconds(self.after, "after")

    @property
    def selections(self) -> list[Retainable]:
        """Which ended runs it is for. The earlier runs of chains go with any status: the last ones have it."""
        named = [self.status] if self.status else get_args(EndedStatus)
        return [
            Retainable(status, self.program, self.scope) for status in (*named, Status.CONTINUED)
        ]


def require_policies(given: object) -> tuple[Retention, ...]:
    """The policies that an engine was given."""
    if isinstance(given, list | tuple) and all(isinstance(each, Retention) for each in given):
        return tuple(given)
    raise InputError(f"retention is {given!r:.200}", "pass a list of perdure.Retention")
