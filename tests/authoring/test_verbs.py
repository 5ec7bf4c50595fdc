import gc
import logging
import warnings
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

import perdure
from perdure import Info, InputError, JoinSet, Signal, task, workflow
from perdure.authoring.context import TASK, WORKFLOW, ArtifactData, HostRequest
from perdure.authoring.signal import MAX_SIGNAL_NAME
from perdure.core.errors import OutsideRun
from perdure.core.ids import RunId, StepId
from perdure.core.journal.events import ArtifactRef

INFO = Info(RunId("r_1"), "checkout", "2", "o-7", StepId("root.3"), attempt=2)

approval = Signal("approval", bool)


T = TypeVar("T")


class FakeBody:
    """A task's context that records the calls it gets."""

    def __init__(self, step: str = "root.3") -> None:
        self.info = replace(INFO, step=StepId(step))
        self.key = f"key of {step}"
        self.beats = 0
        self.published: dict[str, object] = {}
        self.appended: list[tuple[str, object]] = []
        self._children = 0

    def nested(self) -> "FakeBody":
        self._children += 1
        return FakeBody(f"{self.info.step}.{self._children - 1}")

    def heartbeat(self) -> None:
        self.beats += 1

    def publish(self, name: str, value: object) -> None:
        self.published[name] = value

    def append(self, name: str, value: object) -> None:
        self.appended.append((name, value))

    async def flush(self) -> None:
        self.appended.append(("flushed", None))

    def secret(self, name: str) -> HostRequest[str]:
        raise NotImplementedError

    def resource(self, kind: type[T]) -> HostRequest[T]:
        raise NotImplementedError

    def put_artifact(
        self, data: ArtifactData, kind: str, expires_ms: int | None
    ) -> HostRequest[ArtifactRef]:
        raise NotImplementedError


class FakeTurn:
    """As much of a workflow's context as the logger and `info` look at."""

    info = replace(INFO, step=StepId("root"))
    is_replaying = False


@contextmanager
def in_a_task() -> Iterator[FakeBody]:
    body = FakeBody()
    token = TASK.set(body)
    try:
        yield body
    finally:
        TASK.reset(token)


@contextmanager
def in_a_workflow(turn: Any) -> Iterator[None]:
    token = WORKFLOW.set(turn)
    try:
        yield
    finally:
        WORKFLOW.reset(token)


async def branch() -> None: ...


@task
async def some_task_of_verbs() -> Info:
    return perdure.info()


@task
def some_thread_of_verbs() -> Info:
    return perdure.info()


@workflow
async def some_workflow_of_verbs() -> None: ...


WORKFLOW_VERBS: dict[str, Any] = {
    "perdure.now": perdure.now,
    "perdure.random": perdure.random,
    "perdure.uuid4": perdure.uuid4,
    "perdure.patched": lambda: perdure.patched("tax"),
    "perdure.join_set": JoinSet,
    "perdure.sleep": lambda: perdure.sleep(1),
    "perdure.gather": lambda: perdure.gather(some_task_of_verbs(), branch()),
    "perdure.first": lambda: perdure.first(some_task_of_verbs(), branch()),
    "perdure.start": lambda: perdure.start(some_workflow_of_verbs()),
    "Signal.receive": approval.receive,
    "Signal.receive ": lambda: approval.receive(timeout=1),
}
TASK_VERBS: dict[str, Any] = {"perdure.heartbeat": perdure.heartbeat, "perdure.key": perdure.key}
SHARED_VERBS: dict[str, Any] = {
    "perdure.publish": lambda: perdure.publish("progress", 1),
    "perdure.stream": lambda: perdure.stream("tokens"),
    "perdure.info": perdure.info,
}


async def use(verb: Any) -> None:
    """Call it, await it if it can be, and see to it that a refusal leaves nothing unawaited."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = verb()
            if isinstance(found, Awaitable):
                await found
        finally:
            gc.collect()
            assert [str(warning.message) for warning in caught] == []


# In the wrong place


@pytest.mark.parametrize("name", WORKFLOW_VERBS)
async def test_a_workflow_verb_outside_a_run_raises_and_says_where_to_call_it(name: str) -> None:
    with pytest.raises(OutsideRun) as caught:
        await use(WORKFLOW_VERBS[name])
    assert caught.value.what == f"{name.strip()} is called outside a run"
    assert caught.value.remedy == "call it in a function decorated with @workflow"


@pytest.mark.parametrize("name", WORKFLOW_VERBS)
async def test_a_workflow_verb_in_a_task_raises_and_says_where_to_call_it(name: str) -> None:
    with in_a_task(), pytest.raises(OutsideRun, match=f"{name.strip()} is called in a task"):
        await use(WORKFLOW_VERBS[name])


@pytest.mark.parametrize("name", TASK_VERBS)
async def test_a_task_verb_outside_a_run_raises_and_says_where_to_call_it(name: str) -> None:
    with pytest.raises(OutsideRun) as caught:
        await use(TASK_VERBS[name])
    assert caught.value.what == f"{name} is called outside a run"
    assert caught.value.remedy == "call it in a function decorated with @task"


@pytest.mark.parametrize("name", TASK_VERBS)
async def test_a_tasks_verb_in_a_workflow_is_refused_even_where_a_task_has_just_ended(
    name: str,
) -> None:
    refused = pytest.raises(OutsideRun, match=f"{name} is called in a workflow")
    with in_a_task(), in_a_workflow(FakeTurn()), refused:
        await use(TASK_VERBS[name])


@pytest.mark.parametrize("name", SHARED_VERBS)
async def test_a_verb_of_workflows_and_tasks_outside_a_run_says_where_to_call_it(name: str) -> None:
    with pytest.raises(OutsideRun) as caught:
        await use(SHARED_VERBS[name])
    assert caught.value.what == f"{name} is called outside a run"
    assert caught.value.remedy == "call it in a workflow or a task"


async def test_first_of_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="given nothing: pass at least one operation"):
        await perdure.first()


@pytest.mark.parametrize("wrong", [-1, "1"])
def test_a_sleep_of_no_duration_is_refused_when_it_is_made(wrong: Any) -> None:
    with pytest.raises(InputError, match=r"^sleep is"):
        _ = perdure.sleep(wrong)


# In a task


def test_a_task_can_send_a_heartbeat() -> None:
    with in_a_task() as body:
        perdure.heartbeat()
    assert body.beats == 1


def test_a_task_has_a_key() -> None:
    with in_a_task():
        assert perdure.key() == "key of root.3"


def test_a_task_knows_its_run_step_and_attempt() -> None:
    with in_a_task():
        assert perdure.info() == INFO


def test_a_task_publishes() -> None:
    with in_a_task() as body:
        perdure.publish("progress", 0.5)
    assert body.published == {"progress": 0.5}


def test_a_value_is_not_published_without_a_name() -> None:
    with in_a_task(), pytest.raises(InputError, match="pass a text of 1 to 255 bytes"):
        perdure.publish("", 1)


async def test_a_task_appends_to_its_streams_and_flushes_them() -> None:
    with in_a_task() as body:
        tokens, words = perdure.stream("tokens"), perdure.stream("words")
    for value in (1, None):
        tokens.append(value)
    words.append("a")
    await tokens.flush()
    assert body.appended == [("tokens", 1), ("tokens", None), ("words", "a"), ("flushed", None)]
    assert (tokens.name, repr(words)) == ("tokens", "<Stream 'words'>")


@pytest.mark.parametrize("name", ["", "n" * 256, "\u20ac" * 86, "a\0b", "\ud800", 1, None])
def test_a_stream_needs_a_name_that_a_store_can_keep(name: Any) -> None:
    with in_a_task(), pytest.raises(InputError, match="the name of a stream"):
        perdure.stream(name)


@pytest.mark.parametrize("name", ["n" * 255, "\u20ac" * 85, "with spaces / and slashes"])
def test_the_longest_names_of_streams_pass(name: str) -> None:
    with in_a_task():
        assert perdure.stream(name).name == name


@pytest.mark.parametrize("called", [some_task_of_verbs, some_thread_of_verbs])
async def test_nested_task_has_a_child_step_id(called: Any) -> None:
    with in_a_task():
        steps = [(await called()).step, (await called()).step]
    assert steps == ["root.3.0", "root.3.1"]


async def test_a_task_has_its_own_context_again_after_it_called_another() -> None:
    @task
    async def fails() -> None:
        raise LookupError

    with in_a_task():
        with pytest.raises(LookupError):
            await fails()
        assert perdure.info().step == "root.3"


# Logging


def test_log_record_has_run_and_step(caplog: pytest.LogCaptureFixture) -> None:
    with in_a_task():
        perdure.log.warning("charging %d", 7, extra={"cents": 5})
    (record,) = caplog.records
    assert record.getMessage() == "charging 7"
    said = vars(record)
    assert (said["run_id"], said["step"], said["cents"]) == ("r_1", "root.3", 5)


def test_a_log_entry_outside_a_run_is_a_plain_one(caplog: pytest.LogCaptureFixture) -> None:
    perdure.log.warning("plain")
    assert [record.name for record in caplog.records] == ["perdure.log"]


@pytest.mark.parametrize(("is_replaying", "expected"), [(True, []), (False, ["deciding"])])
def test_a_workflow_is_silent_while_it_is_replayed(
    is_replaying: bool, expected: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    turn = FakeTurn()
    turn.is_replaying = is_replaying
    with in_a_workflow(turn):
        perdure.log.warning("deciding")
    assert [record.getMessage() for record in caplog.records] == expected


def test_a_disabled_log_level_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "perdure.log"), in_a_workflow(FakeTurn()):
        perdure.log.info("detail")
    assert caplog.records == []


# Signals


def test_a_signal_shows_its_name_and_type() -> None:
    assert [repr(approval), repr(Signal("lines", list[int]))] == [
        "Signal('approval', bool)",
        "Signal('lines', list)",
    ]


@pytest.mark.parametrize("wrong", ["", 5])
def test_an_invalid_name_of_a_signal_is_refused(wrong: Any) -> None:
    with pytest.raises(InputError) as caught:
        Signal(wrong, bool)
    assert caught.value.what == f"{wrong!r} can't be the name of a signal"
    assert caught.value.remedy == f"pass a text of 1 to {MAX_SIGNAL_NAME} bytes"


def test_a_signals_name_may_be_as_long_as_the_limit() -> None:
    longest = "s" * MAX_SIGNAL_NAME
    assert Signal(longest, bool).name == longest


def test_a_wrong_timeout_of_a_receive_is_refused_when_it_is_made() -> None:
    with pytest.raises(InputError, match="timeout is -1"):
        _ = approval.receive(timeout=-1)
