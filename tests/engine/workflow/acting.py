"""Programs for acts of operators, and the acts: runs that are paused, stopped, and that have failed steps."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import perdure
from perdure import (
    Actor,
    Denied,
    GraphProgram,
    Handle,
    Retry,
    Roles,
    Signal,
    load_graph,
    task,
    workflow,
)
from perdure.authoring.program import ProgramCall
from perdure.core.graph import model as m
from perdure.testing.probe import Probe
from perdure.testing.script import After, ScriptFunction
from tests.engine.graph.building import START, add, graph, out

word = Signal("acting.word", str)

RETRIED = Retry(attempts=2, first=0.01)


@task(name="acting.local")
async def local(n: int) -> int:
    return n + 1


@task(name="acting.queued", queue="elsewhere")
async def queued(n: int) -> int:
    return n * 10


@task(name="acting.flaky", retry=RETRIED, on_failure="park")
async def flaky(n: int) -> int:
    """Fails until an operator retries it."""
    if perdure.info().logical_attempt == 1:
        raise ValueError(f"{n} is wrong")
    return n


@task(name="acting.flaky_elsewhere", queue="elsewhere", retry=RETRIED, on_failure="park")
async def flaky_elsewhere(n: int) -> int:
    return await flaky(n)


@task(name="acting.plain", retry=RETRIED)
async def plain(n: int) -> int:
    return await flaky(n)


@workflow(name="acting.child")
async def child(n: int) -> int:
    return await local(n)


@workflow(name="acting.varied")
async def varied() -> list[object]:
    """All that a pause may hold: outcomes of attempts, of queued tasks and of children, a timer, a signal."""
    first = await perdure.gather(local(1), local(2), queued(3), child(4))
    await perdure.sleep(5)
    return [*first, await word.receive(), await local(5)]


@workflow(name="acting.racing")
async def racing() -> int:
    """The first outcome wins, and the other one is not wanted: a pause may hold both."""
    await local(0)
    won = await perdure.first(local(7), local(7))
    return won + await local(1)


@workflow(name="acting.tidying")
async def tidying() -> None:
    try:
        await perdure.gather(local(1), queued(2))
        await word.receive()
    finally:
        await local(9)


@workflow(name="acting.failing")
async def failing() -> list[int]:
    """One step fails for good; the others continue."""
    return [*await perdure.gather(flaky(1), local(1), flaky_elsewhere(3))]


@workflow(name="acting.chaining")
async def chaining(turn: int) -> int:
    got = await local(turn)
    if turn < 2:
        return await perdure.continue_as_new(chaining(turn + 1))
    return got


@dataclass
class Tuning:
    """Parameters that an operator changes."""

    batch: int = 1


@workflow(name="acting.tuned", params=Tuning)
async def tuned(n: int) -> int:
    """What it reads behind the signal counts: the acts were sent before."""
    await local(perdure.params(Tuning).batch)
    await word.receive()
    return await local(n + perdure.params(Tuning).batch)


@workflow(name="acting.chain_tuned", params=Tuning)
async def chain_tuned(turn: int) -> int:
    if turn == 0:
        await word.receive()
    got = await local(perdure.params(Tuning).batch)
    if turn < 2:
        return await perdure.continue_as_new(chain_tuned(turn + 1))
    return got


graph_tuned = GraphProgram(
    load_graph("""
graph: acting_graph_tuned
input: {n: int}
params: {batch: {type: int, default: 1}}
activities:
  first: {worker: acting.local, input: {n: params.batch}}
  wait: {hook: acting.word}
  last: {worker: acting.local, input: {n: n + params.batch}}
  done: {output: last}
transitions:
  - first -> wait -> last -> done
""")
)

forked = graph(
    "acting_forked",
    [START, add("a", "x"), add("b", "x"), add("c", "a + b"), out("c")],
    [("t", "a"), ("t", "b"), ("a", "c"), ("b", "c"), ("c", "o")],
    x="int",
)
"""Two activities at the same time, and a join."""

stuck = graph(
    "acting_stuck",
    [
        START,
        m.WorkerNode(name="a", task="acting.plain", input={"n": "x"}, on_failure="park"),
        add("b", "x"),
        add("c", "a + b"),
        out("c"),
    ],
    [("t", "a"), ("t", "b"), ("a", "c"), ("b", "c"), ("c", "o")],
    x="int",
)


async def pause(run: Handle[Any]) -> None:
    await run.pause("lunch", id="pause")


async def pause_all(run: Handle[Any]) -> None:
    await run.pause("lunch", id="pause", descends=True)


async def resume(run: Handle[Any]) -> None:
    await run.resume(id="resume", descends=True)
    await run.signal(word, "on", id="word")


async def stutter(run: Handle[Any]) -> None:
    """Each act twice, and others that do not apply."""
    for _ in range(2):
        await run.pause(id="pause")
        await run.resume(id="resume")
        await run.retry_step("root.0", id="retry")
        await run.pause(id="again")
    await run.resume(id="on")


async def resume_at_last(run: Handle[Any]) -> None:
    """However the acts before were ordered."""
    await run.resume(id="at last")
    await speak(run)


async def speak(run: Handle[Any]) -> None:
    await run.signal(word, "on", id="word")


async def cancel(run: Handle[Any]) -> None:
    await run.cancel("enough", id="cancel", by=Actor("ada", "operator"))


async def cancel_plainly(run: Handle[Any]) -> None:
    await run.cancel("enough")


async def stop(run: Handle[Any]) -> None:
    await run.emergency_stop("fire", id="stop")


async def retry_both(run: Handle[Any]) -> None:
    for step in ("root.0", "root.2"):
        await run.retry_step(step, id=f"retry {step}")
        await run.retry_step(step, id=f"retry {step}")


async def skip_both(run: Handle[Any]) -> None:
    for step in ("root.0", "root.2"):
        await run.skip_step(step, value="wrong", id=f"misfit {step}")
        await run.skip_step(step, value=1, id=f"skip {step}")


async def retry_activity(run: Handle[Any]) -> None:
    await run.retry_step("a,0,0", id="retry")


async def skip_activity(run: Handle[Any]) -> None:
    await run.skip_step("a,0,0", value=20, id="skip")


async def denied(run: Handle[Any]) -> None:
    """Acts that the authorizer denies: the run journals them, and continues."""
    host = Probe.host_of(run)
    host.authorizer, before = Roles(), host.authorizer
    try:
        for act in (run.emergency_stop, run.pause):
            try:
                await act("mischief", by=Actor("eve", "viewer"), id=act.__name__)
            except Denied:
                continue
            raise AssertionError("eve may do that")
    finally:
        host.authorizer = before
    await speak(run)


async def tune(run: Handle[Any]) -> None:
    """The second act has the id of the first, and others that do not apply."""
    for _ in range(2):
        await run.update_params({"batch": 50}, "faster", id="tune")
    await run.update_params({"batch": 70}, "other values, and a used id", id="tune")


class Case(NamedTuple):
    """A program, the acts on it after the n-th commit, and those when there is nothing else to do."""

    call: Callable[[], ProgramCall[Any]]
    acts: ScriptFunction
    then: ScriptFunction | None
    status: str
    value: Any = None
    moments: range = range(1, 5)

    def script(self, moment: int) -> After:
        return After(moment, self.acts, at_once=True, then=self.then)


VARIED = [2, 3, 30, 5, "on", 6]

CASES = {
    "paused": Case(varied, pause, resume, "completed", VARIED),
    "paused with its children": Case(varied, pause_all, resume, "completed", VARIED),
    "racing": Case(racing, pause, resume, "completed", 10),
    "stuttering": Case(varied, stutter, resume_at_last, "completed", VARIED, range(1, 4)),
    "cancelled while paused": Case(tidying, pause, cancel, "cancelled"),
    "plainly cancelled while paused": Case(
        tidying, pause, cancel_plainly, "cancelled", None, range(2, 3)
    ),
    "stopped": Case(tidying, stop, None, "cancelled"),
    "denied": Case(varied, denied, None, "completed", VARIED, range(1, 3)),
    "retried": Case(failing, speak, retry_both, "completed", [1, 2, 3], range(1, 2)),
    "skipped": Case(failing, speak, skip_both, "completed", [1, 2, 1], range(1, 2)),
    "chained": Case(lambda: chaining(0), pause, resume, "completed", 3, range(1, 6)),
    "tuned": Case(lambda: tuned(5), tune, speak, "completed", 56),
    "chain tuned": Case(lambda: chain_tuned(0), tune, speak, "completed", 51, range(1, 3)),
    "graph tuned": Case(lambda: graph_tuned(n=5), tune, speak, "completed", 56),
    "graph paused": Case(lambda: forked(x=1), pause, resume, "completed", None),
    "graph stopped": Case(lambda: stuck(x=1), speak, stop, "cancelled", None, range(1, 2)),
    "graph retried": Case(
        lambda: stuck(x=1), speak, retry_activity, "completed", None, range(1, 2)
    ),
    "graph skipped": Case(lambda: stuck(x=1), speak, skip_activity, "completed", None, range(1, 2)),
}
