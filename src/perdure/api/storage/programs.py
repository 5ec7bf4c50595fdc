"""Programs: those that this process has, those that are deployed, and those of which there are open runs."""

import inspect
from typing import Any

import msgspec

from perdure.api.exchange import Exchange
from perdure.api.registered_programs import (
    Schema,
    input_schema,
    kind_of,
    result_schema,
    schema_of,
    signals_of,
)
from perdure.api.runs.source import GraphSource, SourceText, graph_source, source_text
from perdure.authoring.graphs.program import GraphProgram
from perdure.authoring.program import Program
from perdure.authoring.registry import find, registered_names, versions_of
from perdure.client.deployments import DeploymentState
from perdure.core.errors import UnknownName
from perdure.engine.programs.preflight import Preflight
from perdure.store.rows.lists import RunCount


class ProgramVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a program. `state` is that of a deployed graph."""

    version: str
    digest: str
    is_registered: bool
    state: DeploymentState | None
    deployed_at_ms: int | None
    open_runs: RunCount | None


class ProgramSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A program and its versions, the current one last."""

    name: str
    kind: str
    is_registered: bool
    versions: list[ProgramVersion]


class Programs(msgspec.Struct, frozen=True):
    """The programs in the order of their names."""

    programs: list[ProgramSummary]


class ProgramQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which version of a program; without it, the current one."""

    version: str | None = None


class SignalType(msgspec.Struct, frozen=True):
    """A signal that the code of a program can name, and the JSON Schema of its values."""

    name: str
    schema: Schema | None


class ProgramDetail(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a program: what it takes, what it gives, its code."""

    name: str
    kind: str
    version: str
    digest: str
    doc: str
    input_schema: Schema | None
    result_schema: Schema | None
    signals: list[SignalType]
    source: SourceText | None
    drawing: GraphSource | None


async def list_programs(exchange: Exchange) -> Programs:
    shows_counts = exchange.caller.scope is None
    found: dict[str, dict[str, ProgramVersion]] = {}
    kinds: dict[str, str] = {}
    for name in registered_names("program"):
        for version in versions_of("program", name):
            program = find("program", name, version)
            if program is None:
                continue
            kinds[name] = kind_of(program) or ""
            open_runs = await _open_runs(exchange, name, version) if shows_counts else None
            found.setdefault(name, {})[version] = ProgramVersion(
                version=version,
                digest=program.digest,
                is_registered=True,
                state=None,
                deployed_at_ms=None,
                open_runs=open_runs,
            )
    for graph in await exchange.engine.graphs():
        kinds.setdefault(graph.name, "graph")
        is_registered = graph.version in found.get(graph.name, {})
        count = RunCount(graph.open_runs, is_complete=True)
        found.setdefault(graph.name, {})[graph.version] = ProgramVersion(
            version=graph.version,
            digest=graph.digest,
            is_registered=is_registered,
            state=graph.state,
            deployed_at_ms=graph.deployed_at_ms,
            open_runs=count if shows_counts else None,
        )
    registered = set(registered_names("program"))
    return Programs(
        [
            ProgramSummary(
                name=name,
                kind=kinds[name],
                is_registered=name in registered,
                versions=list(versions.values()),
            )
            for name, versions in sorted(found.items())
        ]
    )


_OPEN = ("approved", "running", "blocked", "paused", "cancelling", "diverged", "parked")


async def _open_runs(exchange: Exchange, name: str, version: str) -> RunCount:
    return await exchange.engine.count(program=name, version=version, status=_OPEN)


def program_of_path(exchange: Exchange, version: str | None) -> Program[..., Any]:
    """The program that the path names. Raises `UnknownName` if this process does not have it."""
    name = exchange.part("program")
    found = exchange.host.dispatcher.programs.find(name, version)
    if found is None or (version is not None and found.version != version):
        which = "" if version is None else f" version {version!r:.100}"
        raise UnknownName(
            f"this server does not have program {name!r:.200}{which}",
            "start it as 'perdure serve MODULE:ENGINE', with the module that defines the program",
        )
    return found


async def show_program(exchange: Exchange) -> ProgramDetail:
    program = program_of_path(exchange, exchange.query.version)
    is_graph = isinstance(program, GraphProgram)
    signals = [] if is_graph else signals_of(program).values()
    return ProgramDetail(
        name=program.name,
        kind=kind_of(program) or "",
        version=program.version,
        digest=program.digest,
        doc=inspect.getdoc(program.fn) or "",
        input_schema=input_schema(program),
        result_schema=result_schema(program),
        signals=[SignalType(each.name, schema_of(each.of)) for each in signals],
        source=None if is_graph else source_text(program),
        drawing=graph_source(program, None, None) if isinstance(program, GraphProgram) else None,
    )


async def preflight_program(exchange: Exchange) -> Preflight:
    return await exchange.engine.preflight([exchange.part("program")])
