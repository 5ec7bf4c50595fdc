"""What one participant has observed of an operation, with times of its monotonic clock."""

from perdure.core.operations.data import LedgerData, OperationState, Participant
from perdure.core.operations.liveness import Sightings
from perdure.core.operations.timing import LedgerSettings


class ParticipantWatch:
    """Observes the ledger; says which participants are stale and which clean-up phase is due.

    An observer that did not run for longer than the threshold (stopped, suspended, starved) can't know whether its
    peers were silent. It restarts all ages.
    """

    def __init__(self, me: Participant, settings: LedgerSettings) -> None:
        self.me = me
        self._settings = settings
        self._sightings = Sightings()
        self._owners: dict[str, Participant] = {}
        self._state: OperationState | None = None
        self._since_ms = 0
        self._looked_ms: int | None = None
        self._coordinator: Participant | None = None

    def observe(self, data: LedgerData, now_ms: int) -> None:
        """Record the heartbeats of all participants and of the operation."""
        if self._looked_ms is not None and now_ms - self._looked_ms > self._settings.staleness_ms:
            self._sightings = Sightings()
        self._looked_ms = now_ms
        if data.operation_state is not self._state:
            self._state, self._since_ms = data.operation_state, now_ms
        if data.operation_state is OperationState.CLEANUP:
            self._coordinator = data.coordinator
        beats: dict[str, object] = {_OPERATION: data.last_heartbeat}
        self._owners = {}
        for frame in data.stack:
            if frame.is_live:
                name = _name(frame.owner)
                beat = (frame.call_id, frame.last_heartbeat, frame.beats)
                beats[name] = (beats.get(name), beat)
                self._owners[name] = frame.owner
        self._sightings.observe(beats, now_ms)

    def stale(self, now_ms: int) -> list[Participant]:
        """The peers without a heartbeat for too long."""
        names = self._sightings.stale(now_ms, self._settings.staleness_ms)
        owners = (self._owners[name] for name in names if name in self._owners)
        return [owner for owner in owners if owner != self.me]

    def is_alarming(self, data: LedgerData, now_ms: int) -> bool:
        """Whether the observed ledger needs action before the next heartbeat."""
        is_healthy = data.operation_state is OperationState.RUNNING and not data.aborted
        return not is_healthy or bool(self.stale(now_ms))

    def ages_ms(self, now_ms: int) -> dict[Participant, int]:
        """Age of the heartbeat of each participant with a call."""
        ages = self._sightings.age_ms
        return {owner: ages(name, now_ms) for name, owner in self._owners.items()}

    def operation_age_ms(self, now_ms: int) -> int:
        """Age of the operation's last heartbeat, before this one."""
        return self._sightings.age_ms(_OPERATION, now_ms)

    def is_too_old(self, age_ms: int) -> bool:
        return age_ms > self._settings.staleness_ms

    def is_removal_due(self, now_ms: int) -> bool:
        return self._in_state_ms(now_ms) >= self._settings.removal_ms

    def is_backup_due(self, now_ms: int) -> bool:
        """The coordinator moves the operation first; if it is gone, any other participant does, a threshold later."""
        grace_ms = 0 if self.has_coordinated else self._settings.staleness_ms
        return self._in_state_ms(now_ms) >= self._settings.backup_ms + grace_ms

    @property
    def has_coordinated(self) -> bool:
        """Whether this participant is the last coordinator that it has seen."""
        return self._coordinator == self.me

    @property
    def has_seen_failure(self) -> bool:
        return self._state in (OperationState.CLEANUP, OperationState.FAILED)

    def _in_state_ms(self, now_ms: int) -> int:
        return now_ms - self._since_ms


_OPERATION = ""


def _name(participant: Participant) -> str:
    return f"{participant.participant_id}/{participant.pid}/{participant.session}"
