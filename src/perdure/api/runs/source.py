"""The code of a run: a workflow's source with the lines of its steps, a graph's nodes with the state of their steps."""

import asyncio
import inspect
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import msgspec

from perdure.api.exchange import Exchange
from perdure.api.registered_programs import registered_program
from perdure.api.runs.step_cache import steps_of_chain
from perdure.authoring.graphs.program import GraphProgram
from perdure.authoring.program import Program
from perdure.core.errors import UnknownName
from perdure.core.graph.drawing import drawn_edges, mermaid, node_caption, svg
from perdure.core.graph.fields import node_kind
from perdure.core.ids import StepId
from perdure.core.runs.snapshot import StepStatus
from perdure.core.runs.step_records import StepRecords
from perdure.engine.programs.walkthrough import ReplayRules, walk_through
from perdure.host.clock import HostSources
from perdure.host.services import reading_codec
from perdure.store.rows.records import Run


class StepLine(msgspec.Struct, frozen=True):
    """The line of the program where a step begins."""

    step: StepId
    line: int
    function: str
    file: str


class WorkflowSource(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="workflow"):
    """The source of a workflow as this process has it. `is_same` if the run was recorded with the same code.

    `awaited` are the steps that the program waits for; `problem` says why the run can't be replayed on this code.
    """

    program: str
    version: str
    file: str
    first_line: int
    text: str
    is_same: bool
    steps: list[StepLine]
    awaited: list[StepLine]
    problem: str | None


class DrawnNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node of a graph, and how many steps of the run it has had. `step` is the newest of them."""

    name: str
    kind: str
    caption: str
    steps: int = 0
    open: int = 0
    failed: int = 0
    step: StepId | None = None


class DrawnEdge(msgspec.Struct, frozen=True, rename={"source": "from", "target": "to"}):
    """A transition of a graph. One that `is_back` leads to a node again."""

    source: str
    target: str
    condition: str
    is_back: bool


class GraphSource(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="graph"):
    """A graph with the state of a run in it."""

    program: str
    version: str
    is_same: bool
    nodes: list[DrawnNode]
    edges: list[DrawnEdge]
    svg: str
    mermaid: str


class SourceText(msgspec.Struct, frozen=True):
    """The source of a function. It is empty if the process does not have it."""

    file: str
    first_line: int
    text: str


async def source(exchange: Exchange) -> WorkflowSource | GraphSource:
    chain = await exchange.chain()
    run = chain[-1]
    program = registered_program(exchange.host, run)
    if program is None:
        raise UnknownName(
            f"run {run.run_id!r} is of program {run.program!r}, which this server does not have",
            "start it as 'perdure serve MODULE:ENGINE', with the module that defines the program",
        )
    steps = await steps_of_chain(exchange, chain)
    if isinstance(program, GraphProgram):
        return graph_source(program, steps, run)
    return await _workflow_source(exchange, run, program, steps)


def source_text(program: Program[..., Any]) -> SourceText:
    try:
        lines, first = inspect.getsourcelines(program.fn)
    except (OSError, TypeError):
        return SourceText(Path(program.fn.__code__.co_filename).name, 0, "")
    return SourceText(Path(program.fn.__code__.co_filename).name, first, "".join(lines))


async def _workflow_source(
    exchange: Exchange, run: Run, program: Program[..., Any], steps: StepRecords
) -> WorkflowSource:
    entries = await exchange.store.entries(run.run_id, 0, run.seq)
    context = exchange.host.context
    codec = reading_codec(context.codec, context.services)
    rules = ReplayRules(codec, HostSources(), exchange.host.dispatcher.programs)
    # In a thread, because a long journal takes seconds.
    walk = await asyncio.to_thread(walk_through, run, entries, rules, _Passer())
    text = source_text(program)
    lines = [
        StepLine(step, line.line, line.function, Path(line.file).name)
        for step, line in walk.lines.items()
    ]
    awaited = set() if run.is_over else set(steps.awaited)
    return WorkflowSource(
        program=program.name,
        version=program.version,
        file=text.file,
        first_line=text.first_line,
        text=text.text,
        is_same=program.digest == run.digest,
        steps=lines,
        awaited=[line for line in lines if line.step in awaited],
        problem=walk.divergence,
    )


class _Passer:
    """Looks at nothing: only the lines are wanted."""

    def step_begins(self, step: StepId, frames: Sequence[FrameType]) -> bool:  # noqa: ARG002 - as the protocol says
        return True

    def replay_ends(self, frames: Sequence[FrameType]) -> None:
        pass

    def program_raised(self, error: BaseException, traceback: TracebackType | None) -> None:
        pass


def graph_source(
    program: GraphProgram[..., Any], steps: StepRecords | None, run: Run | None
) -> GraphSource:
    """The graph, with the numbers of a run's steps in it."""
    all_steps, open_steps, failed = Counter[str](), Counter[str](), Counter[str]()
    newest: dict[str, StepId] = {}
    for each in () if steps is None else steps.records:
        name = each.step.partition(",")[0]
        all_steps[name] += 1
        open_steps[name] += each.is_open
        failed[name] += each.status is StepStatus.FAILED
        newest[name] = each.step
    nodes = [
        DrawnNode(
            name=node.name,
            kind=node_kind(node),
            caption=node_caption(node),
            steps=all_steps[node.name],
            open=open_steps[node.name],
            failed=failed[node.name],
            step=newest.get(node.name),
        )
        for node in program.model.nodes
    ]
    return GraphSource(
        program=program.name,
        version=program.version,
        is_same=run is None or program.digest == run.digest,
        nodes=nodes,
        edges=[DrawnEdge(*edge) for edge in drawn_edges(program.model)],
        svg=svg(program.model),
        mermaid=mermaid(program.model),
    )
