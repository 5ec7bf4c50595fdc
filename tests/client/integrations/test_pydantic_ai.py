"""Agents of Pydantic AI in workflows: unmodified agents whose model requests and tool calls are steps."""

import asyncio
import gc
from collections import Counter
from collections.abc import AsyncIterable, Iterator
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import (
    Agent,
    DeferredToolRequests,
    DeferredToolResults,
    ModelRetry,
    RunContext,
    ToolApproved,
    ToolDenied,
)
from pydantic_ai.messages import (
    AgentStreamEvent,
    ModelMessage,
    ModelResponse,
    PartDeltaEvent,
    TextPart,
    TextPartDelta,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.toolsets import FunctionToolset

import perdure
from perdure import Chunk, Engine, Handle, InputError, Retry, Signal, workflow
from perdure.core.journal import events as e
from perdure.integrations.pydantic_ai import PerdureDurability, StepOptions
from perdure.testing.workflows import Ended
from tests.client.engines import killed, opened, recorded, until_recorded
from tests.engine.modes import explore_one_fault

# A run that leaves memory in the middle of an agent refuses what the agent does to clean up, and parts of it complain.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

asked: Counter[str] = Counter()
"""Requests of the fake models and calls of tools in this process."""


@pytest.fixture(autouse=True)
def _separate_tests() -> Iterator[None]:
    """A killed host leaves coroutines of agents in this process. What they do when they are collected must not happen
    while another host drives a workflow: anyio would take that workflow's task for theirs."""
    asked.clear()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.collect()


def returned(messages: list[ModelMessage]) -> list[Any]:
    return [part.content for part in messages[-1].parts if isinstance(part, ToolReturnPart)]


def forecast(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """Asks for the weather of two cities at once, and then says it."""
    asked[f"model {len(messages)}"] += 1
    if len(messages) == 1:
        cities = [ToolCallPart("weather", {"city": city}, city) for city in ("Rome", "Oslo")]
        return ModelResponse(parts=cities)
    return ModelResponse(parts=[TextPart(" and ".join(returned(messages)))])


traveller = Agent(FunctionModel(forecast), name="traveller", capabilities=[PerdureDurability()])


@traveller.tool_plain
async def weather(city: str) -> str:
    asked[city] += 1
    await asyncio.sleep(0)
    return f"sun in {city}"


@workflow(name="agents.travel")
async def travel(question: str) -> str:
    result = await traveller.run(question)
    return result.output


async def test_an_unmodified_agent_with_parallel_tools_is_a_workflow(engine: Engine) -> None:
    run = await engine.start(travel("Where to?"))
    assert await run.result(60) == "sun in Rome and sun in Oslo"
    steps = [each.function_name for each in await recorded(engine, run, e.InvokeScheduled)]
    tool = "traveller__function_toolset__<agent>.call_tool:weather"
    request = "traveller__model.request"
    assert steps == [request, tool, tool, request]
    assert asked == {"model 1": 1, "model 3": 1, "Rome": 1, "Oslo": 1}


async def test_outside_a_workflow_the_agent_runs_as_without_perdure() -> None:
    assert (await traveller.run("Where to?")).output == "sun in Rome and sun in Oslo"


async def test_an_agent_survives_every_crash() -> None:
    """The explorer refuses a step that begins again after its outcome was durable."""
    explored = await explore_one_fault(
        lambda: travel("Where to?"),
        check=lambda ended: _require_value(ended, "sun in Rome and sun in Oslo"),
    )
    assert explored.schedules > 10


def _require_value(ended: Ended, value: object) -> None:
    assert (ended.status, ended.value) == ("completed", value)


@workflow(name="agents.travel_when_told", lint="off")
async def travel_in_two_parts(question: str) -> str:
    result = await traveller.run(question)
    await go.receive()
    return result.output


go = Signal("agents.go", bool)


async def test_a_killed_agent_continues_without_asking_the_model_again(shared_url: str) -> None:
    async with killed(shared_url) as first:
        run = await first.start(travel_in_two_parts("Where to?"))
        await until_recorded(first, run, e.ExecutionAwaiting, 4)
    before = Counter(asked)
    async with opened(shared_url) as second:
        again: Handle[Any] = second.handle(run.run_id)
        await again.signal(go, True)
        assert await again.result(60) == "sun in Rome and sun in Oslo"
    assert asked == before


class Refund(BaseModel):
    amount: int
    note: str


def clerk(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    asked[f"clerk {len(messages)}"] += 1
    if len(messages) == 1:
        return ModelResponse(parts=[ToolCallPart("refund", {"amount": 120}, "1")])
    output = info.output_tools[0].name
    (said,) = returned(messages)
    return ModelResponse(parts=[ToolCallPart(output, {"amount": 120, "note": str(said)}, "2")])


accountant = Agent(
    FunctionModel(clerk),
    name="accountant",
    output_type=Refund | DeferredToolRequests,  # type: ignore[arg-type] # a union is a form of types
    capabilities=[PerdureDurability()],
)


@accountant.tool_plain(requires_approval=True)
def refund(amount: int) -> str:
    asked["refund"] += 1
    return f"refunded {amount}"


approval = Signal("agents.approval", bool)


@workflow(name="agents.account")
async def account() -> Refund:
    result = await accountant.run("Please refund me")
    while isinstance(result.output, DeferredToolRequests):
        answers = DeferredToolResults()
        for call in result.output.approvals:
            ok = await approval.receive(ask=f"{call.tool_name} {call.args}?", who="finance")
            answers.approvals[call.tool_call_id] = ToolApproved() if ok else ToolDenied("no money")
        result = await accountant.run(
            message_history=result.all_messages(), deferred_tool_results=answers
        )
    return result.output


@pytest.mark.parametrize(
    ("ok", "note", "refunds"), [(True, "refunded 120", 1), (False, "no money", 0)]
)
async def test_a_person_approves_a_tool(shared_url: str, ok: bool, note: str, refunds: int) -> None:
    async with opened(shared_url) as engine:
        run = await engine.start(account())
        await until_recorded(engine, run, e.ExecutionAwaiting, 2)
        signals = (await run.waits()).signals
        assert signals[0].ask == "refund {'amount': 120}?"
        await run.signal(approval, ok)
        assert await run.result(60) == Refund(amount=120, note=note)
    assert asked["refund"] == refunds
    assert max(asked.values()) == 1


async def test_an_agent_with_a_person_survives_every_crash() -> None:
    async def agree(run: Handle[Any]) -> None:
        await run.signal(approval, True, id="1")

    await explore_one_fault(
        account,
        script=agree,
        modes=["warm"],
        check=lambda ended: _require_value(ended, {"amount": 120, "note": "refunded 120"}),
    )


async def tell(_: list[ModelMessage], __: AgentInfo) -> Any:
    for word in ("once ", "upon ", "a time"):
        yield word


async def to_stream(_: RunContext[None], events: AsyncIterable[AgentStreamEvent]) -> None:
    async for event in events:
        if isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
            perdure.stream("words").append(event.delta.content_delta)


teller = Agent(
    FunctionModel(stream_function=tell),
    name="teller",
    capabilities=[PerdureDurability(event_stream_handler=to_stream)],
)


@workflow(name="agents.tell")
async def tell_a_story() -> str:
    return (await teller.run("A story, please")).output


async def test_words_of_the_model_are_streamed_while_it_answers(shared_url: str) -> None:
    async with opened(shared_url) as engine:
        run = await engine.start(tell_a_story())
        chunks = [
            each async for each in run.stream("words", of=str, start=0) if isinstance(each, Chunk)
        ]
        assert "".join(each.value for each in chunks) in "once upon a time"
        assert len(chunks) >= 2
        assert {each.step for each in chunks} != {"root"}
        assert await run.result(60) == "once upon a time"


def insisting(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    asked["insisting"] += 1
    if (said := returned(messages)) == ["won"]:
        return ModelResponse(parts=[TextPart(said[0])])
    return ModelResponse(parts=[ToolCallPart("lucky", {}, str(len(messages)))])


gambler: Agent[None, str] = Agent(
    FunctionModel(insisting), name="gambler", capabilities=[PerdureDurability()]
)


@gambler.tool_plain(
    retries=2, metadata={"perdure": StepOptions(Retry(attempts=3, first=0.001), timeout=30)}
)
async def lucky() -> str:
    asked["lucky"] += 1
    if asked["lucky"] == 1:
        raise ConnectionError("the step is tried again")
    if asked["lucky"] == 2:
        raise ModelRetry("the model is asked again")
    return "won"


@workflow(name="agents.gamble")
async def gamble() -> str:
    return (await gambler.run("Try")).output


async def test_steps_are_retried_and_models_are_asked_again(shared_url: str) -> None:
    async with opened(shared_url) as engine:
        run = await engine.start(gamble())
        assert await run.result(60) == "won"
        assert len(await recorded(engine, run, e.InvokeRetrying)) == 1
    assert asked == {"insisting": 3, "lucky": 3}


async def test_wrong_options_are_refused() -> None:
    with pytest.raises(InputError, match="StepOptions"):
        PerdureDurability(model=Retry())  # type: ignore[arg-type]


def chatting(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    asked["chatting"] += 1
    if said := returned(messages):
        return ModelResponse(parts=[TextPart(f"at {said[0]}")])
    return ModelResponse(parts=[ToolCallPart("clock", {}, "1")])


clockmaker: Agent[None, str] = Agent(
    "test",
    name="clockmaker",
    capabilities=[PerdureDurability(models={"chatty": FunctionModel(chatting)})],
)


@clockmaker.tool_plain(metadata={"perdure": False})
async def clock() -> str:
    await perdure.sleep(0.001)
    return perdure.now().isoformat()


@workflow(name="agents.tell_the_time")
async def tell_the_time() -> str:
    return (await clockmaker.run("How late is it?", model="chatty")).output


async def test_a_tool_may_run_in_the_workflow_and_a_run_may_name_a_model(engine: Engine) -> None:
    run = await engine.start(tell_the_time())
    assert (await run.result(60)).startswith("at 2")
    steps = [each.function_name for each in await recorded(engine, run, e.InvokeScheduled)]
    assert steps == ["clockmaker__model.request.chatty"] * 2
    assert len(await recorded(engine, run, e.TimerFired)) == 1


@workflow(name="agents.with_a_late_toolset")
async def with_a_late_toolset() -> str:
    toolset: FunctionToolset[object] = FunctionToolset([lucky_number], id="late")
    return (await traveller.run("Where to?", toolsets=[toolset])).output


def lucky_number() -> int:
    return 7


async def test_toolsets_that_are_passed_to_a_run_are_refused(engine: Engine) -> None:
    run = await engine.start(with_a_late_toolset())
    with pytest.raises(Exception, match="toolset"):
        await run.result(60)
