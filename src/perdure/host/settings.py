"""How much a host does at once, and how patient it is."""

import msgspec

from perdure.authoring.durations import milliseconds
from perdure.core.errors import InputError
from perdure.core.replay.doubt import MAX_DOUBTS, MOST_DOUBTS


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Times are in seconds."""

    concurrency: int = 1000
    """Async tasks that run at the same time."""

    threads: int = 16
    """Sync tasks that run at the same time."""

    warm_runs: int = 1000
    """Runs that wait and stay in memory. Beyond it the least recently used are replayed when they go on."""

    lease: float = 30.0
    """How long a queue's task belongs to a host that may have died."""

    heartbeat: float = 1.0
    """How often a host says that it is alive, and looks for what happened that nobody told it."""

    stale_after: float = 10.0
    """How long a host may be silent before others take it for dead and go on with its runs. After half of it the
    host itself begins no task, until it is heard again."""

    grace: float = 10.0
    """How long a stop waits for the tasks that run."""

    transaction_timeout: float = 5.0
    """How long a transaction may be open, from its first statement on: on SQLite every other commit waits for it."""

    max_doubts: int = MAX_DOUBTS
    """How often a step may have been under way when its host died. Once more, and it is failed: it may be the cause."""

    probation: float = 1.0
    """How long a step lives that was under way at two deaths of its host or more, before the next such step begins.
    With 0 they begin at once."""

    stepwise: bool = False
    """Commit every entry by itself. Slow; for tests of recovery."""

    def __post_init__(self) -> None:
        for name, least in (
            ("concurrency", 1),
            ("threads", 1),
            ("warm_runs", 0),
            ("max_doubts", 0),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InputError(f"{name} is {value!r}", f"pass a whole number of at least {least}")
        if self.max_doubts >= MOST_DOUBTS:
            raise InputError(f"max_doubts is {self.max_doubts}", f"pass less than {MOST_DOUBTS}")
        if milliseconds(self.lease, "lease") < _SHORTEST_LEASE_MS:
            raise InputError(f"lease is {self.lease!r}", "pass at least 0.1 seconds")
        milliseconds(self.grace, "grace")
        milliseconds(self.probation, "probation")
        self._require_signs_of_life()
        if not milliseconds(self.transaction_timeout, "transaction_timeout"):
            raise InputError(
                f"transaction_timeout is {self.transaction_timeout!r}", "pass more than 0 seconds"
            )

    def _require_signs_of_life(self) -> None:
        beat_ms = milliseconds(self.heartbeat, "heartbeat")
        stale_ms = milliseconds(self.stale_after, "stale_after")
        if beat_ms < _SHORTEST_BEAT_MS:
            raise InputError(f"heartbeat is {self.heartbeat!r}", "pass at least 0.05 seconds")
        if stale_ms < _BEATS * beat_ms:
            raise InputError(
                f"stale_after is {self.stale_after!r}, and heartbeat {self.heartbeat!r}",
                f"allow at least {_BEATS} heartbeats: one may be late, and half of the time is a host's own",
            )
        if stale_ms < 2 * milliseconds(self.transaction_timeout, "transaction_timeout"):
            raise InputError(
                f"stale_after is {self.stale_after!r}, and transaction_timeout {self.transaction_timeout!r}",
                "let it be at least twice as long: a transaction ends before its host is taken for dead",
            )


_SHORTEST_BEAT_MS = 50
_BEATS = 4
_SHORTEST_LEASE_MS = 100
