"""The MCP server: what each role may do, with the official client, in process and over standard input and output."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from perdure import Engine, InputError, Request, Roles, RunStatus, Signal, task, workflow
from perdure.core.journal import events as e
from perdure.integrations.mcp import mcp_server
from tests.client.engines import assert_cancelled, opened, recorded, until_status

approval = Signal("mcp.approval", bool)
price = Request("mcp.price", str, int)


@task(name="mcp.looked_up")
async def looked_up(word: str) -> int:
    return len(word)


@workflow(name="mcp.quote")
async def quote() -> bool:
    ask = await price.receive(ask="What does it cost?", who="sales")
    await ask.reply(await looked_up(ask.value))
    return await approval.receive()


@asynccontextmanager
async def assistant(url: str, role: str) -> AsyncIterator[Client]:
    async with (
        Engine(url, hosts=False, authorizer=Roles()) as front_end,
        Client(mcp_server(front_end, role=role, name="helper")) as client,
    ):
        yield client


async def said(client: Client, tool: str, **arguments: Any) -> str:
    """The text of a tool's answer."""
    answer: Any = await client.call_tool(tool, arguments)
    return "\n".join(each.text for each in answer.content)


READS = {"list_runs", "explain_run", "describe_run", "read_history"}
OPERATES = READS | {"send_signal", "ask_run", "pause_run", "resume_run", "cancel_run"}


@pytest.mark.parametrize(
    ("role", "tools"),
    [("viewer", READS), ("operator", OPERATES), ("engineer", OPERATES | {"fork_run"})],
)
async def test_a_role_has_its_tools(shared_url: str, role: str, tools: set[str]) -> None:
    async with opened(shared_url), assistant(shared_url, role) as client:
        listed = (await client.list_tools()).tools
        assert {each.name for each in listed} == tools
        assert all(each.description for each in listed)


async def test_an_assistant_finds_asks_signals_and_forks_a_run(shared_url: str) -> None:
    async with opened(shared_url) as engine:
        run = await engine.start(quote(), tags={"customer": "acme"})
        await until_status(run, RunStatus.BLOCKED)
        async with assistant(shared_url, "engineer") as client:
            listed = json.loads(await said(client, "list_runs", tags={"customer": "acme"}))
            assert [each["run_id"] for each in listed["runs"]] == [run.run_id]
            asked = {"run_id": run.run_id}
            assert "What does it cost?" in await said(client, "explain_run", **asked)
            assert "asks sales" in await said(client, "describe_run", **asked)
            for _ in range(2):
                reply = await said(
                    client, "ask_run", **asked, name="mcp.price", value="horse", call_id="1"
                )
                assert reply == "5"
            await said(client, "send_signal", **asked, name="mcp.approval", value=True)
            assert await run.result(60) is True
            assert "ExecutionCompleted" in await said(client, "read_history", **asked, limit=100)
            forked = await said(client, "fork_run", **asked, reason="another price", call_id="f")
            assert forked == await said(
                client, "fork_run", **asked, reason="another price", call_id="f"
            )
            assert forked != run.run_id
            fork = engine.handle(forked)
            await until_status(fork, RunStatus.COMPLETED)


async def test_acts_are_journaled_under_the_assistants_name(shared_url: str) -> None:
    async with opened(shared_url) as engine:
        run = await engine.start(quote())
        await until_status(run, RunStatus.BLOCKED)
        async with assistant(shared_url, "operator") as client:
            asked = {"run_id": run.run_id, "reason": "look first"}
            decided = json.loads(await said(client, "pause_run", **asked, call_id="p"))
            assert decided["accepted"] is True
            await said(client, "resume_run", **asked)
            await said(client, "cancel_run", **asked)
        await assert_cancelled(run)
        accepted = await recorded(engine, run, e.SignalAccepted)
        assert {(each.by, each.role) for each in accepted} == {("helper", "operator")}


async def test_the_assistant_reads_the_text_of_errors(shared_url: str) -> None:
    async with opened(shared_url), assistant(shared_url, "viewer") as client:
        answer = await client.call_tool("explain_run", {"run_id": "r_none"})
        assert answer.is_error
        assert "is not a run id" in str(answer.content)


async def test_an_unknown_role_is_refused(shared_url: str) -> None:
    async with opened(shared_url) as engine:
        with pytest.raises(InputError, match="'boss' is not a role"):
            mcp_server(engine, role="boss")


async def test_the_command_serves_over_standard_input_and_output(shared_url: str) -> None:
    async with opened(shared_url) as engine:
        run = await engine.start(quote())
        await until_status(run, RunStatus.BLOCKED)
        server = StdioServerParameters(
            command=sys.executable,
            args=["-c", "from perdure.cli import main; main()", "mcp", "--store", shared_url],
        )
        async with Client(server) as client:
            assert "mcp.price" in await said(client, "explain_run", run_id=run.run_id)
