"""The patches of a run: whether it follows the changed code, asked once for each and true to its end."""

from perdure.core.replay.patching import marker_of
from perdure.engine.replay.record import Record


class Patches:
    """What `perdure.patched` answers. Only the first answer for a patch is a decision; the others repeat it."""

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
            # The run passed this place before the patch came. Wherever it asks again, it is too late.
            return False
        # With no effect: what is attached commits with the next decision, which a replay compares.
        self._record.add(marker_of(patch), ())
        return True
