"""Artifacts in tasks: `await perdure.put_artifact(data, kind="report")`."""

from perdure.authoring.context import ArtifactData, HostRequest, task_context
from perdure.authoring.durations import Duration, milliseconds
from perdure.authoring.texts import require_user_text
from perdure.core.artifacts import MAX_KIND_LENGTH
from perdure.core.journal.events import ArtifactRef


def put_artifact(
    data: ArtifactData, *, kind: str, expires: Duration | None = None
) -> HostRequest[ArtifactRef]:
    """Store a large result beside the store, in a task: `ref = await perdure.put_artifact(data, kind="report")`.

    `data` are bytes, a text or the path of a file; in a sync task call `.wait()` instead of `await`. The reference is
    small: return it. It is recorded with the outcome of the attempt; an attempt that has none leaves nothing behind.
    After `expires` the artifact may be deleted, once its run is over; without it, what the engine keeps for that kind
    decides.
    """
    context = task_context("perdure.put_artifact")
    given = require_user_text("the kind of an artifact", kind, MAX_KIND_LENGTH)
    expires_ms = None if expires is None else milliseconds(expires, "expires")
    return context.put_artifact(data, given, expires_ms)
