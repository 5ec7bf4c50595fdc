"""Deployed graphs: immutable versions in a store, one of which may be active for new runs."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from perdure.authoring.definition import require_name
from perdure.authoring.graphs.arguments import argument_problems
from perdure.authoring.graphs.program import (
    GraphProgram,
    content_of,
    deployed_program,
    registered_graph,
)
from perdure.authoring.registry import registered_names
from perdure.authoring.texts import require_user_text
from perdure.core.errors import InputError, NotActive, UnknownName, VersionExists
from perdure.core.graph.canonical import canonical
from perdure.core.graph.checking import invalid, problems_of
from perdure.core.graph.expansion import expand
from perdure.core.graph.model import Graph
from perdure.host.host import Host
from perdure.host.runs.dispatcher import Dispatcher
from perdure.host.transactions.joining import current
from perdure.store.graph_tables import require_version
from perdure.store.rows.records import DeployedProgram, NewProgram, StoredProgram
from perdure.store.store import Store


class DeploymentState(StrEnum):
    """Which new runs a deployed version may have, and whether it has open runs."""

    DEPLOYED = "deployed"
    """Never active. A start that names this version runs it, for a trial."""

    ACTIVE = "active"
    """New runs use this version."""

    DRAINING = "draining"
    """No longer active, with open runs."""

    RETIRED = "retired"
    """No longer active, without open runs. It can be activated again."""


class GraphVersion(msgspec.Struct, frozen=True):
    """A deployed version of a graph. `open_runs` counts its runs that are not over."""

    name: str
    version: str
    digest: str
    state: DeploymentState
    open_runs: int
    deployed_at_ms: int


async def deploy_graphs(store: Store, given: Iterable[object], now_ms: int) -> list[GraphVersion]:
    """Commits: all given versions of graphs, or none if one of them is refused.

    A version that is deployed already stays as it is, if the given graph has the same meaning. Raises `VersionExists`
    if it has another, and `GraphInvalid` with all problems of the first invalid graph.
    """
    programs = [deployable(graph) for graph in given]
    missing = programs
    while True:
        try:
            await store.deploy_programs([_new_program(program) for program in missing], now_ms)
            break
        except VersionExists:
            tried = missing
            missing = [each for each in tried if not await _is_deployed(store, each)]
            if len(missing) == len(tried):
                raise
    return [await _deployed_version(store, program.name, program.version) for program in programs]


def _new_program(program: GraphProgram[..., Any]) -> NewProgram:
    content = program.content.decode()
    return NewProgram(program.name, program.version, program.digest, content)


async def _is_deployed(store: Store, program: GraphProgram[..., Any]) -> bool:
    found = await store.program(program.name, program.version)
    return found is not None and _has_same_meaning(found, program)


def _has_same_meaning(stored: StoredProgram, program: GraphProgram[..., Any]) -> bool:
    """Whether both differ at most in how their expressions are spelled. False if the stored graph can't be read."""
    try:
        deployed = deployed_program(stored.content.encode())
        return deployed.digest == stored.digest and _meaning(deployed) == _meaning(program)
    except Exception:  # a newer version of Perdure may have written any content
        return False


def _meaning(program: GraphProgram[..., Any]) -> bytes:
    return content_of(canonical(program.model))


def deployable(graph: object) -> GraphProgram[..., Any]:
    """The program to deploy for a graph: checked, with the graphs that it calls expanded in it."""
    model = graph.model if isinstance(graph, GraphProgram) else graph
    if not isinstance(model, Graph):
        raise InputError(
            f"{model!r:.200} is not a graph",
            "pass a graph program, the result of a GraphBuilder, or the result of load_graph",
        )
    expanded = check_and_expand(model)
    if not expanded.version:
        raise InputError(
            f"graph {expanded.name!r} has no version", "give it one: its runs stay on it"
        )
    return GraphProgram(expanded, is_registered=False)


def check_and_expand(graph: Graph, beside: Sequence[Graph] = ()) -> Graph:
    """The graph with the graphs that it calls expanded in it: those `beside` it, or registered ones.

    Raises `GraphInvalid` with all problems.
    """
    problems = [*problems_of(graph), *argument_problems(graph)]
    if problems:
        raise invalid(graph.name, problems)
    near = {each.name: each for each in beside}
    return expand(
        graph,
        lambda name: near.get(name) or registered_graph(name),
        [*near, *registered_names("program")],
    )


async def activate_graph(store: Store, name: str, version: str) -> GraphVersion:
    """Commits: new runs of the graph use this version. Raises `UnknownVersion`."""
    require_name("graph", name)
    require_user_text("a version", version)
    await store.activate_program(name, version)
    return await _deployed_version(store, name, version)


async def graph_versions(store: Store) -> list[GraphVersion]:
    """All versions of all graphs, by name and then in the order of deployment."""
    return [_version_of(program) for program in await store.programs()]


async def _deployed_version(store: Store, name: str, version: str) -> GraphVersion:
    found = await store.program(name, version)
    assert found is not None  # noqa: S101 - versions are never deleted
    return _version_of(found)


def _version_of(program: StoredProgram) -> GraphVersion:
    return GraphVersion(
        program.name,
        program.version,
        program.digest,
        _state_of(program),
        program.open_runs,
        program.deployed_at_ms,
    )


def _state_of(program: StoredProgram) -> DeploymentState:
    if program.is_active:
        return DeploymentState.ACTIVE
    if not program.activations:
        return DeploymentState.DEPLOYED
    return DeploymentState.DRAINING if program.open_runs else DeploymentState.RETIRED


def version_to_start(name: str, version: str | None, deployed: Sequence[DeployedProgram]) -> str:
    """The version of a new run: the active one, or the named one if that is active or never was.

    Raises `UnknownName`, `UnknownVersion` or `NotActive`.
    """
    if not deployed:
        is_registered = registered_graph(name) is not None
        raise UnknownName(
            f"no graph {name!r} is deployed",
            "start a call of it, or deploy it"
            if is_registered
            else "deploy it first, and activate it",
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


def _listed(deployed: Sequence[DeployedProgram]) -> str:
    return ", ".join(repr(each.version) for each in deployed)


class GraphDeployments(ABC):
    """The methods of `Engine` that deploy graphs."""

    async def deploy(self, graph: GraphProgram[..., Any] | Graph) -> GraphVersion:
        """Deploy a version of a graph, so that every engine on this store can run it. `activate` makes it active.

        Raises `GraphInvalid` with all problems of the graph. A version never changes: deploying the same graph again
        changes nothing, and another graph under the same name and version raises `VersionExists`.
        """
        dispatcher = self._require_no_transaction("deployed")
        (deployed,) = await deploy_graphs(dispatcher.store, [graph], dispatcher.sources.now_ms())
        await dispatcher.catalogue.refresh()
        self._require_host().versions_changed()
        return deployed

    async def activate(self, name: str, version: str) -> GraphVersion:
        """Make this version of a graph the one for new runs. Runs that have started keep their version."""
        dispatcher = self._require_no_transaction("activated")
        activated = await activate_graph(dispatcher.store, name, version)
        await dispatcher.catalogue.refresh()
        self._require_host().versions_changed()
        return activated

    def _require_no_transaction(self, what: str) -> Dispatcher:
        dispatcher = self._require_host().dispatcher
        if current(dispatcher) is not None:
            raise InputError(
                f"a graph can't be {what} inside a transaction", "do it before or after"
            )
        return dispatcher

    async def graphs(self) -> list[GraphVersion]:
        """All versions of all deployed graphs, with their states."""
        return await graph_versions(self._require_host().dispatcher.store)

    @abstractmethod
    def _require_host(self) -> Host: ...
