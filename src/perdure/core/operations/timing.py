"""Settings of heartbeats and clean-up."""

import math

import msgspec

from perdure.core.errors import InputError


class LedgerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Intervals of heartbeats and durations of the clean-up phases, in seconds.

    All participants of an operation should use the same settings.
    """

    heartbeat_shortest: float = 4.0
    heartbeat_longest: float = 5.0
    """A heartbeat follows the last one after a random time between these two."""

    look_every: float = 1.0
    """Between heartbeats a participant reads the ledger this often, and writes nothing unless something is wrong."""

    staleness: float = 10.0
    """A participant whose heartbeat has not changed for longer is declared dead."""

    notice: float = 10.0
    """Two heartbeats: by then every participant has seen that the clean-up has begun."""

    self_cleanup: float = 10.0
    """Two more heartbeats for each participant's own clean-up. Then the coordinator removes the frames."""

    backup_delay: float = 10.0
    """Two heartbeats for every participant to see the end. Then the coordinator moves the operation to the backups."""

    lock_timeout: float = 30.0
    """How long to wait for an operation's lock, which participants hold for milliseconds."""

    kill_grace: float = 2.0
    """From SIGTERM to SIGKILL, for processes of abandoned calls."""

    auto_heartbeat: bool = True
    """Start heartbeats when an operation is created or joined; otherwise `start_heartbeat()` does."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, bool) != (name == "auto_heartbeat"):
                raise InputError(
                    f"{name} is {value!r}", "pass seconds, or a bool for auto_heartbeat"
                )
            if not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
                raise InputError(f"{name} is {value!r}", "pass seconds, 0 or more")
        if not self.look_every:
            raise InputError("look_every is 0", "pass more than 0 seconds")
        if not 0 < self.heartbeat_shortest <= self.heartbeat_longest:
            raise InputError(
                f"heartbeats every {self.heartbeat_shortest} to {self.heartbeat_longest} seconds",
                "heartbeat_shortest must be more than 0 and at most heartbeat_longest",
            )
        if self.staleness <= self.heartbeat_longest:
            raise InputError(
                f"staleness of {self.staleness} seconds with heartbeats every {self.heartbeat_longest}",
                "make it at least twice heartbeat_longest: one late heartbeat is not a crash",
            )

    @property
    def staleness_ms(self) -> int:
        return round(self.staleness * 1000)

    @property
    def removal_ms(self) -> int:
        """Time from the start of a clean-up to the removal of its frames."""
        return round((self.notice + self.self_cleanup) * 1000)

    @property
    def backup_ms(self) -> int:
        """From the removal of the frames to the move to the backups."""
        return round(self.backup_delay * 1000)

    def interval(self, entropy: int) -> float:
        """The time to the next heartbeat, by a random number of 16 bits."""
        span = self.heartbeat_longest - self.heartbeat_shortest
        return self.heartbeat_shortest + span * (entropy & 0xFFFF) / 0xFFFF
