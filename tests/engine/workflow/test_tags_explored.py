"""Tags under every schedule of faults: each commits with the run, replaces its value before, and reaches the child."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import perdure
from perdure import task, workflow
from perdure.core.graph.identity import mailbox_of
from perdure.core.ids import StepId
from perdure.core.runs.listing import RunFilter
from perdure.store.commit.bundle import Bundle
from perdure.store.commit.fence import Fence
from perdure.store.store import Store
from perdure.testing import explore_workflow
from perdure.testing.explorer import ScheduleFailed, memory_store

EXPECTED = {
    "explored.tagged": {"stage": "paid"},
    "explored.tagged_child": {"stage": "new", "deep": "true"},
}


@task(name="explored.tag_step")
async def step() -> None:
    pass


@workflow(name="explored.tagged_child")
async def tagged_child() -> None:
    perdure.tag(deep=True)
    await step()


@workflow(name="explored.tagged")
async def tagged() -> None:
    perdure.tag(stage="new")
    await step()
    await tagged_child()
    perdure.tag(stage="paid")
    await step()


@workflow(name="explored.tag_loop")
async def tag_loop(left: int) -> None:
    perdure.tag(lap=left)
    await step()
    if left:
        await perdure.continue_as_new(tag_loop(left - 1))


@asynccontextmanager
async def store_with_laps() -> AsyncIterator[Store]:
    """A store whose runs are a chain, each with the tag of its own lap and no other."""
    async with memory_store() as store:
        yield store
        page = await store.list_runs(RunFilter(), None, 100)
        assert [run.tags for run in page.runs] == [{"lap": "0"}, {"lap": "1"}]


@asynccontextmanager
async def store_with_tags() -> AsyncIterator[Store]:
    """A store whose runs must have the expected tags in the end."""
    async with memory_store() as store:
        yield store
        page = await store.list_runs(RunFilter(), None, 100)
        assert {run.program: run.tags for run in page.runs} == EXPECTED
        hooks = await store.count_runs(RunFilter(tags={"stage": "new"}))
        assert hooks.runs == 1, "the parent has its last stage only"


async def test_tags_commit_with_the_run_under_every_schedule() -> None:
    explored = await explore_workflow(tagged, open_store=store_with_tags)
    assert explored.commits > 100


async def test_a_chain_passes_its_tags_on_under_every_schedule() -> None:
    await explore_workflow(lambda: tag_loop(1), open_store=store_with_laps)


async def test_seeded_bug_a_tag_that_keeps_its_value_before_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def keep_both(
        self: Bundle, fence: Fence, name: str, value: str, since_ms: int, _: str | None = None
    ) -> None:
        self.hook(fence, StepId("root"), mailbox_of(name, value), "key", name, value, since_ms)

    monkeypatch.setattr(Bundle, "tag", keep_both)
    with pytest.raises(ScheduleFailed):
        await explore_workflow(tagged, modes=["warm"], open_store=store_with_tags)
