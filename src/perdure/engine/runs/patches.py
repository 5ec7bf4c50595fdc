"""The patches of a run: whether it follows the changed code, decided once per patch and kept to the run's end."""

from perdure.core.replay.patching import marker_of
from perdure.engine.runs.record import Record


class Patches:
    """Decides what `perdure.patched` returns. Only the first call for a patch decides; later calls repeat it."""

    __slots__ = (
        "_record",
        "answers",
    )

    def __init__(self, record: Record) -> None:
        self._record = record
        self.answers: dict[str, bool] = {}

    def follows(self, patch: str) -> bool:
        answer = self.answers.get(patch)
        if answer is None:
            answer = self.answers[patch] = self._decide(patch)
        return answer

    def _decide(self, patch: str) -> bool:
        if self._record.has_marked(patch):
            return True
        if self._record.is_replaying:
            # The run passed this point before the patch existed, so it keeps the old code for good.
            return False
        # Without effects: attached effects commit with the next decision, which a replay compares.
        self._record.add(marker_of(patch), ())
        return True
