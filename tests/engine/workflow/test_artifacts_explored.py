"""Programs that store artifacts, under every schedule of one fault, with a sweep around every commit."""

from typing import Any

import pytest

import perdure
from perdure import ArtifactRef, Retry, task, workflow
from perdure.core.limits import MAX_PAYLOAD_BYTES
from perdure.testing.workflows import explore_workflow
from tests.engine.catching import Record, catching
from tests.engine.workflow.artifact_bugs import BUGS, large_payloads_stored_never

QUEUES = ["artifacts-elsewhere"]


@task(name="explored_artifact", retry=Retry(attempts=3, first=0.01))
async def explored_artifact(number: int) -> ArtifactRef:
    return await perdure.put_artifact(b"x" * number, kind="explored")


@task(name="explored_artifact_far", queue=QUEUES[0])
async def explored_artifact_far(number: int) -> ArtifactRef:
    return await perdure.put_artifact(b"y" * number, kind="explored far")


@workflow
async def explored_storing() -> list[int]:
    refs = [await explored_artifact(3), await explored_artifact_far(4)]
    refs += await perdure.gather(explored_artifact(5), explored_artifact_far(6))
    return [ref.size_bytes or 0 for ref in refs]


@perdure.graph(name="explored_storing_graph")
async def explored_storing_graph() -> Any:
    near = await explored_artifact(3)
    far = await explored_artifact_far(4)
    return [near.size_bytes, far.size_bytes]


@pytest.mark.parametrize("program", [explored_storing, explored_storing_graph])
async def test_what_a_journal_refers_to_is_stored_and_nothing_else_is_left(
    program: Any, record_property: Record
) -> None:
    explored = await explore_workflow(program, queues=QUEUES, modes=["warm", "stepwise"])
    record_property("explored", f"artifacts of {program.name}: {explored}")


@pytest.mark.parametrize("name", BUGS)
async def test_the_explorer_catches_a_seeded_bug_of_artifacts(
    name: str, record_property: Record
) -> None:
    make, symptom = BUGS[name]
    with catching(f"bug {name}", symptom, record_property), make():
        await explore_workflow(explored_storing, queues=QUEUES, modes=["warm"])


LARGE = "x" * (MAX_PAYLOAD_BYTES + 1)


@task(name="explored_large", queue=QUEUES[0])
async def explored_large(text: str) -> str:
    return text + "y"


@workflow
async def explored_large_values() -> int:
    return len(await explored_large(LARGE))


async def test_large_payloads_are_stored_before_the_commit_that_refers_to_them(
    record_property: Record,
) -> None:
    explored = await explore_workflow(explored_large_values, queues=QUEUES, modes=["warm"])
    record_property("explored", f"large payloads: {explored}")


async def test_the_explorer_catches_large_payloads_that_are_never_stored(
    record_property: Record,
) -> None:
    with (
        catching("bug large_payloads_stored_never", "is not stored", record_property),
        large_payloads_stored_never(),
    ):
        await explore_workflow(explored_large_values, queues=QUEUES, modes=["warm"])
