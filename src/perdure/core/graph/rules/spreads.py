"""Spreads: each has one aggregate, and no other edge enters or leaves the nodes between the two."""

from collections.abc import Iterator

from perdure.core.graph import model as m
from perdure.core.graph.fields import ends_here, node_kind, opens_planes
from perdure.core.graph.model import Problem
from perdure.core.graph.suggestions import did_you_mean
from perdure.core.graph.survey import Survey


def problems(survey: Survey) -> Iterator[Problem]:
    spreads = {node.name: node for node in survey.of_kind(m.SpreadNode)}
    ends: dict[str, list[m.AggregateNode]] = {name: [] for name in spreads}
    for aggregate in survey.of_kind(m.AggregateNode):
        if aggregate.of in spreads:
            ends[aggregate.of].append(aggregate)
        elif survey.gaps.has_all_nodes:
            remedy = did_you_mean(aggregate.of, spreads, "name the spread that it ends")
            yield Problem(aggregate.name, "of", f"there is no spread {aggregate.of!r}", remedy)
    for name, spread in spreads.items():
        if not ends[name] and survey.gaps.has_all_kinds:
            yield Problem(
                name,
                "",
                "the spread has no aggregate",
                f"add one with of={name!r}, where the paths of its items end",
            )
        for extra in ends[name][1:]:
            yield Problem(
                extra.name,
                "of",
                f"the spread {name!r} has an aggregate already: {ends[name][0].name!r}",
                "let all paths of the spread lead to that one",
            )
        if len(ends[name]) == 1 and name in survey.reached:
            yield from _body(survey, spread, ends[name][0])


def nodes_between(survey: Survey, spread: str, aggregate: str) -> frozenset[str]:
    """The nodes reachable from the spread without passing the aggregate."""
    return survey.reach((spread,), without=aggregate) - {spread}


def _body(survey: Survey, spread: m.SpreadNode, aggregate: m.AggregateNode) -> Iterator[Problem]:
    body = nodes_between(survey, spread.name, aggregate.name)
    behind = survey.reach((aggregate.name,)) - {aggregate.name}
    inside = body - behind
    between = f"the spread {spread.name!r} and its aggregate {aggregate.name!r}"
    if aggregate.name not in survey.reach((spread.name,)):
        if not survey.gaps.has_all_edges:
            return
        yield Problem(
            aggregate.name,
            "of",
            f"no path leads from the spread {spread.name!r} here",
            "lead the path of each item to its aggregate",
        )
        return
    for name in survey.names:
        if name in inside:
            yield from _inside(survey, survey.nodes[name], between)
    entries = inside | {aggregate.name}
    for numbered in survey.edges:
        source, target = numbered.edge.source, numbered.edge.target
        if source in inside | {spread.name} and target in behind:
            yield Problem(
                numbered.place,
                "target",
                f"{source} -> {target} leads past the aggregate {aggregate.name!r}",
                f"lead to {aggregate.name!r}, and continue from there",
            )
        elif target in entries and source not in inside | {spread.name}:
            if source in survey.reached and survey.gaps.has_all_edges:
                yield Problem(
                    numbered.place,
                    "source",
                    f"{source} -> {target} leads from outside between {between}",
                    f"lead to {spread.name!r}, or past {aggregate.name!r}",
                )


def _inside(survey: Survey, node: m.AnyNode, between: str) -> Iterator[Problem]:
    kind = node_kind(node)
    if isinstance(node, m.OutputNode | m.CycleNode):
        yield Problem(
            node.name,
            "",
            f"it is between {between}, where there is no {kind}",
            "move it behind the aggregate",
        )
    elif opens_planes(node):
        yield Problem(
            node.name,
            "cycle" if isinstance(node, m.HookNode) and node.cycle else "pending",
            f"it is between {between}, and would make items of items",
            "move it into a graph of its own, and start that with an await for each item",
        )
    elif (
        survey.gaps.has_all_edges
        and not survey.outgoing[node.name]
        and not (ends_here(node) or isinstance(node, m.RaiseNode))
    ):
        yield Problem(
            node.name,
            "",
            f"the path ends here, between {between}",
            "lead it on to the aggregate",
        )
