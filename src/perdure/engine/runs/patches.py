"""The patches of a run: whether it follows the changed code, decided once per patch and kept to the run's end."""

from perdure.core.replay.patching import CONTINUE, marker_of
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

    def suggests_continuing(self, *, is_long: bool) -> bool:
        """Whether the run is advised to continue as new: from the call on that first saw its journal long."""
        if self.answers.get(CONTINUE):
            return True
        if not self._record.has_marked(CONTINUE):
            if self._record.is_replaying or not is_long:
                return False
            self._record.add(marker_of(CONTINUE), ())
        self.answers[CONTINUE] = True
        return True

    def _decide(self, patch: str) -> bool:
        if self._record.has_marked(patch):
            return True
        if self._record.is_replaying:
            # The run passed this point before the patch existed, so it keeps the old code for good.
            return False
        # Without effects: attached effects commit with the next decision, which a replay compares.
        self._record.add(marker_of(patch), ())
        return True
