"""Graphs that are deployed to a store: versions that never change, and which of them new runs are of."""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from perdure.authoring.definition import require_name
from perdure.authoring.graphs.arguments import argument_problems
from perdure.authoring.graphs.program import (
    GraphProgram,
    content_of,
    program_from,
    registered_graph,
)
from perdure.authoring.registry import names
from perdure.authoring.texts import require_text
from perdure.core.errors import InputError, NotActive, UnknownName, VersionExists
from perdure.core.graph.canonical import canonical
from perdure.core.graph.checking import invalid, problems_of
from perdure.core.graph.expansion import expand
from perdure.core.graph.model import Graph
from perdure.store.graphs import require_version
from perdure.store.records import Deployed, NewProgram, Program
from perdure.store.store import Store


class DeploymentState(StrEnum):
    """What may come of a deployed version."""

    DEPLOYED = "deployed"
    """It was never active. A run of it is started by naming it, to try it out."""

    ACTIVE = "active"
    """New runs are of this version."""

    DRAINING = "draining"
    """It was active, and has runs that are not over."""

    RETIRED = "retired"
    """It was active, and has no runs any more. It can be activated again."""


class GraphVersion(msgspec.Struct, frozen=True):
    """A version of a graph that was deployed. `open_runs` counts the runs of it that are not over."""

    name: str
    version: str
    digest: str
    state: DeploymentState
    open_runs: int
    deployed_at_ms: int


async def deploy(store: Store, given: Iterable[object], now_ms: int) -> list[GraphVersion]:
    """Commits: versions of graphs, all of them or, if anything is wrong with one, none.

    The same again changes nothing, however it is spelled. Raises `GraphInvalid` with everything that is wrong with the
    first graph that is, or `VersionExists`.
    """
    programs = [deployable(graph) for graph in given]
    missing = programs
    while True:
        try:
            await store.deploy_programs([_new(program) for program in missing], now_ms)
            break
        except VersionExists:
            known, missing = missing, [each for each in missing if not await _is_there(store, each)]
            if len(missing) == len(known):
                raise
    return [await _stored(store, program.name, program.version) for program in programs]


def _new(program: GraphProgram[..., Any]) -> NewProgram:
    content = program.content.decode()
    return NewProgram(program.name, program.version, program.digest, content)


async def _is_there(store: Store, program: GraphProgram[..., Any]) -> bool:
    found = await store.program(program.name, program.version)
    return found is not None and _says_the_same(found, program)


def _says_the_same(stored: Program, program: GraphProgram[..., Any]) -> bool:
    """Whether they differ in how expressions are spelled alone. Of what can't be read as a whole nobody knows."""
    try:
        there = program_from(stored.content.encode())
        return there.digest == stored.digest and _meaning(there) == _meaning(program)
    except Exception:  # a newer Perdure may have written anything
        return False


def _meaning(program: GraphProgram[..., Any]) -> bytes:
    return content_of(canonical(program.model))


def deployable(graph: object) -> GraphProgram[..., Any]:
    """The graph as it is deployed: checked, with the graphs that it calls expanded in it."""
    model = graph.model if isinstance(graph, GraphProgram) else graph
    if not isinstance(model, Graph):
        raise InputError(
            f"{model!r:.200} is not a graph",
            "pass a graph program, what a builder builds, or what load_graph reads",
        )
    expanded = checked(model)
    if not expanded.version:
        raise InputError(
            f"graph {expanded.name!r} has no version", "give it one: its runs stay on it"
        )
    return GraphProgram(expanded, is_registered=False)


def checked(graph: Graph, beside: Sequence[Graph] = ()) -> Graph:
    """The graph, with the graphs that it calls expanded in it: those `beside` it, or registered here.

    `GraphInvalid` tells everything that is wrong.
    """
    problems = [*problems_of(graph), *argument_problems(graph)]
    if problems:
        raise invalid(graph.name, problems)
    near = {each.name: each for each in beside}
    return expand(
        graph, lambda name: near.get(name) or registered_graph(name), [*near, *names("program")]
    )


async def activate(store: Store, name: str, version: str) -> GraphVersion:
    """Commits: new runs of the graph are of this version. Raises `UnknownVersion`."""
    require_name("graph", name)
    require_text("a version", version)
    await store.activate_program(name, version)
    return await _stored(store, name, version)


async def graphs(store: Store) -> list[GraphVersion]:
    """All versions of all graphs, in the order of names and then of deployment."""
    return [_told(program) for program in await store.programs()]


async def _stored(store: Store, name: str, version: str) -> GraphVersion:
    found = await store.program(name, version)
    assert found is not None  # noqa: S101 - versions are never taken away
    return _told(found)


def _told(program: Program) -> GraphVersion:
    return GraphVersion(
        program.name,
        program.version,
        program.digest,
        _state_of(program),
        program.open_runs,
        program.deployed_at_ms,
    )


def _state_of(program: Program) -> DeploymentState:
    if program.is_active:
        return DeploymentState.ACTIVE
    if not program.activations:
        return DeploymentState.DEPLOYED
    return DeploymentState.DRAINING if program.open_runs else DeploymentState.RETIRED


def startable(name: str, version: str | None, deployed: Sequence[Deployed]) -> str:
    """The version that a new run is of: the active one, or the one that is named. Raises if it can't be."""
    if not deployed:
        is_own = registered_graph(name) is not None
        raise UnknownName(
            f"no graph {name!r} is deployed",
            "start a call of it, or deploy it" if is_own else "deploy it first, and activate it",
        )
    active = next((each.version for each in deployed if each.is_active), None)
    if version is None:
        if active is None:
            raise NotActive(
                f"no version of graph {name!r} is active (deployed: {_listed(deployed)})",
                f"activate one: activate({name!r}, {deployed[-1].version!r})",
            )
        return active
    require_version(name, version, [each.version for each in deployed])
    chosen = next(each for each in deployed if each.version == version)
    if chosen.activations and not chosen.is_active:
        raise NotActive(
            f"version {version!r} of graph {name!r} was active, and version {active!r} is now",
            f"activate it again, or start version {active!r}",
        )
    return version


def _listed(deployed: Sequence[Deployed]) -> str:
    return ", ".join(repr(each.version) for each in deployed)
