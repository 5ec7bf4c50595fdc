"""Streams: chunks that a running workflow or task appends and clients read live."""

from collections.abc import Awaitable, Callable
from functools import partial

from perdure.authoring.context import TASK, WORKFLOW, WorkflowContext
from perdure.authoring.texts import require_user_text
from perdure.core.answers import RESERVED
from perdure.core.errors import InputError, OutsideRun


class Stream:
    """A stream of the run, to append to. It belongs to the workflow, or to the task attempt, that opened it."""

    __slots__ = ("_append", "_flush", "name")

    def __init__(
        self,
        name: str,
        append: Callable[[str, object], None],
        flush: Callable[[], Awaitable[None]] | None,
    ) -> None:
        self.name = name
        self._append = append
        self._flush = flush

    def __repr__(self) -> str:
        return f"<Stream {self.name!r}>"

    def append(self, value: object) -> None:
        """Append a chunk. In a task it becomes durable soon, at the latest with the task's outcome; in a workflow it
        commits with the next step. In a sync task this blocks while the store can't keep up."""
        self._append(self.name, value)

    async def flush(self) -> None:
        """In a task: wait until all chunks that it appended are durable."""
        if self._flush is None:
            raise OutsideRun(
                f"flush() of stream {self.name!r} is called in a workflow",
                "leave it out: what a workflow appends commits with its next step",
            )
        await self._flush()


def stream(name: str) -> Stream:
    """The run's stream of that name: `perdure.stream("tokens").append(token)`.

    Clients read it with `handle.stream`. Chunks of a failed attempt are kept and marked as abandoned.
    """
    workflow, task = WORKFLOW.get(), TASK.get()
    if workflow is not None:
        return Stream(_own_name(name), partial(_append_in_turn, workflow), None)
    if task is None:
        raise OutsideRun(
            "perdure.stream is called outside a run", "call it in a workflow or a task"
        )
    return Stream(_own_name(name), task.append, task.flush)


def _append_in_turn(workflow: WorkflowContext, name: str, value: object) -> None:
    if WORKFLOW.get() is not workflow:
        raise OutsideRun(
            f"stream {name!r} of a workflow is appended to outside the workflow's own code",
            "call perdure.stream where you append",
        )
    workflow.append(name, value)


def require_stream_name(name: object) -> str:
    return require_user_text("the name of a stream", name)


def _own_name(name: object) -> str:
    """The name of a stream that the program appends to."""
    text = require_stream_name(name)
    if text.startswith(RESERVED):
        raise InputError(
            f"stream {text!r} can't be appended to: names that begin with {RESERVED!r} are Perdure's",
            "choose another name",
        )
    return text
