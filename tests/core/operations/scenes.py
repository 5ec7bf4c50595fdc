"""Participants of one operation, driven by hand: each has its own clocks and its own view."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from perdure.core.operations import transitions as t
from perdure.core.operations.data import LedgerData, OperationState, Participant
from perdure.core.operations.heartbeat import BeatOutcome, Duty, Moment, apply_beat
from perdure.core.operations.log import LogEvent, event_line
from perdure.core.operations.timing import LedgerSettings
from perdure.core.operations.watch import ParticipantWatch

SETTINGS = LedgerSettings()
START = datetime(2026, 1, 22, 12, tzinfo=UTC)


@dataclass
class Actor:
    """A participant. Its wall clock is off by `skew`; its monotonic clock has an origin of its own."""

    me: Participant
    skew: timedelta = timedelta()
    origin_ms: int = 0
    held: set[str] = field(default_factory=set)
    watch: ParticipantWatch = field(init=False)
    is_up: bool = True
    is_cleaned: bool = False
    is_fenced: bool = False
    beat_at: int = 0

    def __post_init__(self) -> None:
        self.watch = ParticipantWatch(self.me, SETTINGS)


def actor(name: str, pid: int = 1, *, skew_s: int = 0, origin_ms: int = 0) -> Actor:
    return Actor(Participant(name, pid, f"{name}{pid}"), timedelta(seconds=skew_s), origin_ms)


class Scene:
    """An operation, the time, and the participants. The ledger is `None` once it is in the backups."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.calls = 0
        self.ledger: LedgerData | None = None
        self.last: LedgerData | None = None
        self.check: Callable[[LedgerData, LedgerData], None] = lambda _, __: None

    def moment(self, who: Actor) -> Moment:
        return Moment(
            START + timedelta(milliseconds=self.now_ms) + who.skew, self.now_ms + who.origin_ms
        )

    def keep(self, change: t.LedgerChange) -> None:
        if self.last is not None:
            self.check(self.last, change.data)
        self.ledger = self.last = change.data

    def create(self, who: Actor) -> None:
        self.keep(t.create("op", who.me, None, self.moment(who).at))

    def start(self, who: Actor, *, fail_on_crash: bool = True) -> str:
        assert self.ledger is not None
        call = t.NewCall(f"call_{self.calls}", fail_on_crash=fail_on_crash)
        self.keep(t.start_call(self.ledger, who.me, who.held, call, self.moment(who).at))
        self.calls += 1
        who.held.add(call.call_id)
        return call.call_id

    def end(self, who: Actor, call_id: str) -> None:
        assert self.ledger is not None
        at = self.moment(who).at
        line = event_line(at, LogEvent.CALL_ENDED, who.me)
        self.keep(t.end_call(self.ledger, who.me, who.held, call_id, line))
        who.held.discard(call_id)

    def beat(self, who: Actor, *, dies: bool = False) -> BeatOutcome | None:
        """A heartbeat and the duty that follows, as the ledger's driver does it; or a crash in between."""
        if self.ledger is None:
            return None
        now = self.moment(who)
        result = apply_beat(self.ledger, who.me, who.held, who.watch, now)
        self.keep(t.LedgerChange(result.data))
        who.watch.observe(result.data, now.ms)
        who.beat_at = self.now_ms
        if dies:
            who.is_up = False
        elif result.duty is Duty.STOP:
            who.is_fenced = True
            who.held.clear()
        elif result.duty is Duty.SWEEP:
            self.keep(t.remove_crashed_frames(result.data))
        elif result.duty is Duty.CLEAN_SELF and not who.is_cleaned:
            who.is_cleaned = True
            who.held.clear()
            self.keep(t.clean_self(result.data, who.me, now.at))
        elif result.duty is Duty.REMOVE:
            self.keep(t.remove_frames(result.data, who.me, now.at))
        elif result.duty is Duty.BACK_UP:
            self.ledger = None
        return result

    def run(self, seconds: float, *actors: Actor, every_ms: int = 5000) -> None:
        """Let time pass, with heartbeats of these."""
        end = self.now_ms + round(seconds * 1000)
        while self.now_ms < end:
            self.now_ms = min(end, self.now_ms + every_ms)
            for who in actors:
                self.beat(who)

    def is_over(self) -> bool:
        """Whether the operation is in the backups."""
        return self.ledger is None

    @property
    def state(self) -> OperationState:
        assert self.ledger is not None
        return self.ledger.operation_state
