"""The settings of an engine: limits and times."""

from typing import Literal

import msgspec

from perdure.authoring.durations import milliseconds
from perdure.core.errors import InputError
from perdure.core.replay.doubt import MAX_DOUBTS, MOST_DOUBTS
from perdure.core.runs.acts import ACTS_PER_MINUTE, MAX_ACT_BYTES


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Times are in seconds."""

    concurrency: int = 1000
    """Tasks that run at the same time in this engine, async and sync together."""

    threads: int = 16
    """How many of them may be sync tasks, which need a thread each."""

    warm_memory: int = 256 * 1024 * 1024
    """Bytes that active runs may hold in memory, by an estimate. Beyond it the least recently used leave memory, those
    that are about to continue last, and are replayed when they continue."""

    lease: float = 30.0
    """How long a claimed task belongs to a host that does not renew its claim."""

    heartbeat: float = 1.0
    """How often a host reports that it is alive, and reads what is due in the store."""

    stale_after: float = 10.0
    """How long a host may be silent before others consider it dead and take over its runs. After half of it the host
    itself begins no task, until a heartbeat arrives again."""

    grace: float = 10.0
    """How long a stop waits for running tasks."""

    transaction_timeout: float = 5.0
    """How long a transaction may be open, from its first statement on: on SQLite every other commit waits for it."""

    max_doubts: int = MAX_DOUBTS
    """How often a step may have been running when its host died. After one more death the step fails: it may be the
    cause."""

    probation: float = 1.0
    """How long a step that was running at two or more deaths of its host runs before the next such step begins. With 0
    they begin at once."""

    on_failure: Literal["fail", "park"] = "fail"
    """What happens to a step that has failed for good, if its task does not say so: the program gets the error, or the
    step waits for an operator who retries or skips it."""

    retention_every: float = 3600.0
    """How often a host applies the policies of retention, and deletes old messages that are not delivered any more.
    With 0 it does so only when you call `engine.retention.run()`."""

    keep_messages: float = 7 * 86400.0
    """How long messages stay that are not delivered any more, because their runs are over or they came too late."""

    acts_per_minute: int = ACTS_PER_MINUTE
    """How many operator acts a run takes in a minute, and how many may wait for it."""

    max_act_bytes: int = MAX_ACT_BYTES
    """The largest operator act, with its reason and value."""

    max_signal_bytes: int = 0
    """The largest value of a signal that this engine sends. 0 is no limit beside those of all values."""

    continue_after_steps: int = 5000
    """From so many steps on `perdure.info().continue_suggested` is true. 0 is no limit."""

    continue_after_bytes: int = 8 * 1024 * 1024
    """From so many bytes of history on, by an estimate, `perdure.info().continue_suggested` is true. 0 is no limit."""

    stepwise: bool = False
    """Commit every entry on its own. Slow; for tests of recovery."""

    reveal_payloads: bool = False
    """Show users' values in the reports of runs that diverged, which are stored and logged. Without it only the shapes
    of values and their digests are shown."""

    def __post_init__(self) -> None:
        for name, least in (
            ("concurrency", 1),
            ("threads", 1),
            ("warm_memory", 0),
            ("max_doubts", 0),
            ("acts_per_minute", 1),
            ("max_act_bytes", 1024),
            ("max_signal_bytes", 0),
            ("continue_after_steps", 0),
            ("continue_after_bytes", 0),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InputError(f"{name} is {value!r}", f"pass a whole number of at least {least}")
        if self.max_doubts >= MOST_DOUBTS:
            raise InputError(f"max_doubts is {self.max_doubts}", f"pass less than {MOST_DOUBTS}")
        if milliseconds(self.lease, "lease") < _SHORTEST_LEASE_MS:
            raise InputError(f"lease is {self.lease!r}", "pass at least 0.1 seconds")
        if self.on_failure not in ("fail", "park"):
            raise InputError(f"on_failure is {self.on_failure!r}", "use 'fail' or 'park'")
        if not isinstance(self.reveal_payloads, bool):
            raise InputError(f"reveal_payloads is {self.reveal_payloads!r}", "pass True or False")
        milliseconds(self.grace, "grace")
        milliseconds(self.probation, "probation")
        milliseconds(self.retention_every, "retention_every")
        milliseconds(self.keep_messages, "keep_messages")
        self._require_consistent_times()
        if not milliseconds(self.transaction_timeout, "transaction_timeout"):
            raise InputError(
                f"transaction_timeout is {self.transaction_timeout!r}", "pass more than 0 seconds"
            )

    def _require_consistent_times(self) -> None:
        beat_ms = milliseconds(self.heartbeat, "heartbeat")
        stale_ms = milliseconds(self.stale_after, "stale_after")
        if beat_ms < _SHORTEST_BEAT_MS:
            raise InputError(f"heartbeat is {self.heartbeat!r}", "pass at least 0.05 seconds")
        if stale_ms < _MIN_BEATS * beat_ms:
            raise InputError(
                f"stale_after is {self.stale_after!r}, and heartbeat {self.heartbeat!r}",
                f"allow at least {_MIN_BEATS} heartbeats: one may be late, and after half of it a host begins no task",
            )
        if stale_ms < 2 * milliseconds(self.transaction_timeout, "transaction_timeout"):
            raise InputError(
                f"stale_after is {self.stale_after!r}, and transaction_timeout {self.transaction_timeout!r}",
                "make it at least twice as long: a transaction must end before its host is considered dead",
            )


_SHORTEST_BEAT_MS = 50
_MIN_BEATS = 4
_SHORTEST_LEASE_MS = 100
