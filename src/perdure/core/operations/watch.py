"""What one participant has seen of an operation, and for how long, by its own clock that only goes forward."""

from perdure.core.operations.data import LedgerData, OperationState, Participant
from perdure.core.operations.liveness import Sightings
from perdure.core.operations.timing import LedgerSettings


class Watch:
    """Tell it what the ledger says and when; ask it who is stale, and which phase is due.

    An observer that was itself away for longer than the threshold (stopped, suspended, starved) can't tell whether
    its peers were silent or it was deaf. It begins to count anew.
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
        """Take note of everybody's heartbeat and of the operation's own."""
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
        """The peers that were not heard of for too long."""
        names = self._sightings.stale(now_ms, self._settings.staleness_ms)
        owners = (self._owners[name] for name in names if name in self._owners)
        return [owner for owner in owners if owner != self.me]

    def is_alarming(self, data: LedgerData, now_ms: int) -> bool:
        """Whether the ledger, which it has observed, is not to wait for the next heartbeat."""
        is_sound = data.operation_state is OperationState.RUNNING and not data.aborted
        return not is_sound or bool(self.stale(now_ms))

    def ages_ms(self, now_ms: int) -> dict[Participant, int]:
        """How long ago each participant with a call was heard of."""
        ages = self._sightings.age_ms
        return {owner: ages(name, now_ms) for name, owner in self._owners.items()}

    def operation_age_ms(self, now_ms: int) -> int:
        """How long ago anybody was heard of, before this heartbeat."""
        return self._sightings.age_ms(_OPERATION, now_ms)

    def is_too_old(self, age_ms: int) -> bool:
        return age_ms > self._settings.staleness_ms

    def is_removal_due(self, now_ms: int) -> bool:
        return self._in_state_ms(now_ms) >= self._settings.removal_ms

    def is_backup_due(self, now_ms: int) -> bool:
        """The coordinator moves first. Should it be gone, whoever still watches does it a threshold later."""
        patience = 0 if self.has_coordinated else self._settings.staleness_ms
        return self._in_state_ms(now_ms) >= self._settings.backup_ms + patience

    @property
    def has_coordinated(self) -> bool:
        """Whether this participant was the last coordinator that it knows of."""
        return self._coordinator == self.me

    @property
    def has_seen_failure(self) -> bool:
        return self._state in (OperationState.CLEANUP, OperationState.FAILED)

    def _in_state_ms(self, now_ms: int) -> int:
        return now_ms - self._since_ms


_OPERATION = ""


def _name(participant: Participant) -> str:
    return f"{participant.participant_id}/{participant.pid}/{participant.session}"
