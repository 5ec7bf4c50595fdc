"""Checks of operator acts: decision and effect are one commit, nothing begins in a pause, and each logical attempt of a
step has a key of its own."""

from collections.abc import Iterator

from perdure.core.ids import RunId, StepId
from perdure.core.journal import events as e
from perdure.core.journal.events import ActType
from perdure.core.journal.journal import Appended
from perdure.host.tasks.attempt import Attempt
from perdure.store.commit.bundle import Bundle

_EFFECTS = (e.RunPaused, e.RunResumed, e.CancelRequested, e.StepSkipped)
_WITH_EFFECT = {
    ActType.PAUSE: e.RunPaused,
    ActType.RESUME: e.RunResumed,
    ActType.SKIP_STEP: e.StepSkipped,
}


class ActChecks:
    """What the acts of a simulation have led to."""

    def __init__(self) -> None:
        self._paused: set[RunId] = set()
        self._retried: dict[tuple[RunId, StepId], int] = {}
        self._keys: dict[tuple[RunId, StepId, str], int] = {}

    def take(self, bundle: Bundle) -> list[str]:
        """The violations in what a bundle made durable."""
        found: list[str] = []
        for appended in [
            *(first for _, first in bundle.created),
            *(more for _, more in bundle.appends),
        ]:
            found += self._in_part(appended)
        return found

    def _in_part(self, appended: Appended) -> Iterator[str]:
        events, run_id = [entry.event for entry in appended.entries], appended.run_id
        accepted = {x.signal_id: x for x in events if isinstance(x, e.SignalAccepted)}
        effects = {x.signal_id for x in events if isinstance(x, _EFFECTS)}
        for event in events:
            name = type(event).__name__
            if isinstance(event, _EFFECTS) and event.signal_id not in (None, *accepted):
                yield f"{name} of run {run_id} is durable without its decision"
            if isinstance(event, e.SignalAccepted):
                has_effect = event.signal_id in effects
                if event.signal_type in _WITH_EFFECT and not has_effect:
                    yield f"{event.signal_type} of run {run_id} is decided without its effect"
            if isinstance(event, e.InvokeStarted | e.ExecutionResumed) and run_id in self._paused:
                yield f"{name} of run {run_id} comes while the run is paused"
            self._follow(run_id, event)

    def _follow(self, run_id: RunId, event: e.Event) -> None:
        match event:
            case e.RunPaused():
                self._paused.add(run_id)
            case e.RunResumed() | e.CancelRequested() | e.Terminal():
                self._paused.discard(run_id)
            case e.SignalAccepted(signal_type=ActType.RETRY_STEP, step=str() as step):
                self._retried[run_id, step] = self._retried.get((run_id, step), 1) + 1
            case _:
                pass

    def attempt_began(self, attempt: Attempt) -> list[str]:
        """The violations in how an attempt begins."""
        info = attempt.info
        step = info.run_id, info.step
        logical = self._retried.get(step, 1)
        first = self._keys.setdefault((*step, attempt.key), logical)
        if first != logical:
            return [f"logical attempt {logical} of {info.step} has the key of attempt {first}"]
        if info.logical_attempt != logical:
            return [f"{info.step} begins logical attempt {info.logical_attempt}, not {logical}"]
        return []
