"""Lowering: from a checked graph without calls to the vertices that the engine executes.

Each kind of activity becomes one of six primitives and data of the vertex, so the engine knows no kinds. A new kind is
a new case here, beside its model, its rules, its picture (`drawing.py`) and its syntax in `authoring/`.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from perdure.core.expressions import Expression, parse
from perdure.core.graph import model as m
from perdure.core.graph.fields import waits_for_signal
from perdure.core.graph.shape import Shape
from perdure.core.graph.vertex import (
    Arrow,
    ChildRequest,
    Inline,
    Lowered,
    Mapped,
    Primitive,
    RaisedError,
    SignalRequest,
    Stop,
    TaskRequest,
    TimerRequest,
    ToAll,
    ToRun,
    ToTopic,
    Vertex,
)


def lower(graph: m.Graph) -> Lowered:
    """The executable form of a graph that has no problems and no calls."""
    by_name: dict[str, Vertex] = {}
    for index, node in enumerate(graph.nodes):
        vertex = by_name[node.name] = Vertex(index, node.name)
        _LOWERED[type(node)](node, vertex)
    for edge in graph.edges:
        source, target = by_name[edge.source], by_name[edge.target]
        arrow = Arrow(source, target, edge.on, _maybe(edge.when), edge.errors, edge.bind)
        arrow.order = target.required
        target.required += 1
        source.arrows.append(arrow)
    for node in graph.nodes:
        vertex = by_name[node.name]
        if isinstance(node, m.CycleNode):
            vertex.returns_to = by_name[node.to]
        elif isinstance(node, m.AggregateNode):
            vertex.spread = by_name[node.of]
            vertex.spread.aggregate = vertex
    vertices = tuple(by_name.values())
    _place(vertices)
    trigger = next(node for node in graph.nodes if isinstance(node, m.TriggerNode))
    return Lowered(
        graph.name,
        by_name[trigger.name],
        vertices,
        _mapped(trigger.keys),
        _maybe(trigger.emit),
        trigger.persist,
        graph.threshold,
    )


def _maybe(text: str | None) -> Expression | None:
    return None if text is None else parse(text)


def _mapped(maps: m.Maps | None) -> Mapped:
    return tuple((name, parse(text)) for name, text in (maps or {}).items())


def _output(maps: m.Maps | None) -> Mapped | None:
    return None if maps is None else _mapped(maps)


# Kinds


def _trigger(node: m.TriggerNode, vertex: Vertex) -> None:
    vertex.primitive = Primitive.PASS_THROUGH
    vertex.output = ()
    vertex.job = _mapped(node.job)


def _worker(node: m.WorkerNode, vertex: Vertex) -> None:
    vertex.primitive = Primitive.RESPOND_LATER
    vertex.request = TaskRequest(
        node.task, node.retry, node.timeout, _maybe(node.task_from), node.on_failure
    )
    vertex.arguments = _mapped(node.input)
    vertex.output = _output(node.output)
    vertex.job = _mapped(node.job)
    vertex.opens_planes = node.pending


def _await(node: m.AwaitNode, vertex: Vertex) -> None:
    vertex.primitive = Primitive.RESPOND_LATER
    vertex.request = ChildRequest(node.program, node.wait, node.retry, _maybe(node.program_from))
    vertex.arguments = _mapped(node.input)
    vertex.output = _output(node.output)
    vertex.job = _mapped(node.job)


def _hook(node: m.HookNode, vertex: Vertex) -> None:
    vertex.primitive = Primitive.RESPOND_LATER
    vertex.output = _output(node.output)
    vertex.job = _mapped(node.job)
    vertex.opens_planes = node.pending or node.cycle
    vertex.is_reentrant = node.cycle
    if waits_for_signal(node):
        named_by = _maybe(node.topic_from)
        vertex.request = SignalRequest(
            node.topic or "", _maybe(node.key), _maybe(node.sleep), named_by
        )
    elif node.sleep is not None:
        vertex.request = TimerRequest(parse(node.sleep))
    else:
        vertex.primitive = Primitive.PASS_THROUGH
    if not isinstance(vertex.request, SignalRequest) and node.output is None:
        vertex.output = ()  # the hook has no result


def _signal(node: m.SignalNode, vertex: Vertex) -> None:
    vertex.primitive = Primitive.SEND
    vertex.output = ()
    vertex.job = _mapped(node.job)
    data, named_by = parse(node.data), _maybe(node.topic_from)
    if node.run is not None:
        vertex.sending = ToRun(node.topic, parse(node.run), data, node.code, named_by)
    elif node.all is not None:
        key = parse(node.key or "None")
        vertex.sending = ToAll(node.topic, node.all, key, data, node.code, node.scrub, named_by)
    else:
        key = parse(node.key or "None")
        vertex.sending = ToTopic(node.topic, key, data, node.code, named_by)


def _interrupt(node: m.InterruptNode, vertex: Vertex) -> None:
    vertex.primitive = Primitive.END if node.target is None else Primitive.SEND
    vertex.output = ()
    vertex.job = _mapped(node.job)
    vertex.sending = Stop(
        _maybe(node.target), parse(node.reason), node.throw, node.code, node.descend
    )


def _cycle(node: m.CycleNode, vertex: Vertex) -> None:
    vertex.primitive = Primitive.RE_ENTER
    vertex.arguments = _mapped(node.input)


def _aggregate(node: m.AggregateNode, vertex: Vertex) -> None:
    vertex.primitive = Primitive.BARRIER
    vertex.output = ()
    vertex.job = _mapped(node.job)
    vertex.collect = parse(node.collect)
    vertex.into = node.into


def _assign(node: m.AssignNode, vertex: Vertex) -> None:
    vertex.inline = Inline.ASSIGN
    vertex.assigns = _mapped(node.set)
    vertex.job = _mapped(node.job)


def _branch(_: m.BranchNode, vertex: Vertex) -> None:
    vertex.inline = Inline.BRANCH


def _spread(node: m.SpreadNode, vertex: Vertex) -> None:
    vertex.inline = Inline.SPREAD
    vertex.opens_planes = True
    vertex.items = parse(node.items)
    vertex.item = node.item
    vertex.item_index = node.index


def _finish(node: m.OutputNode, vertex: Vertex) -> None:
    vertex.inline = Inline.OUTPUT
    vertex.value = parse(node.value)


def _raise(node: m.RaiseNode, vertex: Vertex) -> None:
    vertex.inline = Inline.RAISE
    vertex.fault = RaisedError(node.error, parse(node.message), node.again, node.bases)


_LOWERED: dict[type[m.Node], Callable[[Any, Vertex], None]] = {
    m.TriggerNode: _trigger,
    m.WorkerNode: _worker,
    m.AwaitNode: _await,
    m.HookNode: _hook,
    m.SignalNode: _signal,
    m.CycleNode: _cycle,
    m.InterruptNode: _interrupt,
    m.AggregateNode: _aggregate,
    m.AssignNode: _assign,
    m.BranchNode: _branch,
    m.SpreadNode: _spread,
    m.OutputNode: _finish,
    m.RaiseNode: _raise,
}


# Places


def _place(vertices: tuple[Vertex, ...]) -> None:
    """Compute the address of each vertex, and the loops and variables of each arrow."""
    shape = Shape(
        len(vertices),
        [(vertex.index, arrow.target.index) for vertex in vertices for arrow in vertex.arrows],
    )
    depths: dict[int, int] = {}
    for index in shape.order:
        vertex = vertices[index]
        above = max((depths[before] for before in shape.before[index]), default=-1)
        depths[index] = above + (vertex.primitive is not None or vertex.opens_planes)
    around = {index: _around(vertices, index, shape) for index in shape.order}
    for index in shape.order:
        openers = sorted(around[index], key=depths.__getitem__)
        vertices[index].place(depths[index], tuple(depths[opener] for opener in openers))
    for index in reversed(shape.order):
        vertex = vertices[index]
        after = [arrow.target.needs for arrow in vertex.arrows]
        vertex.needs = frozenset().union(_reads(vertex), *after)
    _place_joins(vertices, around, shape)
    loops = {index: _loops_around(vertices, index, around, shape) for index in shape.order}
    _place_loops(vertices, loops, shape)


def _place_joins(vertices: tuple[Vertex, ...], around: dict[int, list[int]], shape: Shape) -> None:
    """Set the variables that each path to a join may change. Where several paths may set the same one, the join finds
    the changes by comparing with the scope from before the paths parted."""
    joined: dict[int, list[Arrow]] = {}
    for vertex in vertices:
        for arrow in vertex.arrows:
            if arrow.target.required > 1:
                joined.setdefault(arrow.target.index, []).append(arrow)
    for index, arrows in joined.items():
        parting = vertices[shape.parting(index)]
        outside = {*around[parting.index], parting.index}
        for arrow in arrows:
            part = shape.since_parting(arrow.source.index, index)
            # Variables that an item of a spread sets do not exist behind the aggregate.
            passed = [
                vertices[each] for each in part if _spreads(vertices, around[each]) <= outside
            ]
            arrow.variables = frozenset().union(*map(_sets, passed))
        counts = Counter(name for arrow in arrows for name in arrow.variables)
        if any(count > 1 for count in counts.values()):
            key = f"@{parting.name}"
            for arrow in parting.arrows:
                arrow.keeps = key
            for arrow in arrows:
                arrow.since = key


def _spreads(vertices: tuple[Vertex, ...], around: list[int]) -> set[int]:
    return {each for each in around if vertices[each].aggregate is not None}


def _place_loops(vertices: tuple[Vertex, ...], loops: dict[int, list[int]], shape: Shape) -> None:
    """Set the arrows out of each loop, and the cycle activities that decide whether it repeats. `loops`: by vertex."""
    for vertex in vertices:
        around = sorted(loops[vertex.index], key=lambda hook: -vertices[hook].depth)
        for arrow in vertex.arrows:
            kept = loops[arrow.target.index]
            arrow.leaves = tuple(vertices[hook] for hook in around if hook not in kept)
            for hook in arrow.leaves:
                hook.exits += 1
        if vertex.returns_to is not None:
            vertex.decides = tuple(vertices[hook] for hook in around)
            for hook in vertex.decides:
                hook.cycles += 1
    for vertex in vertices:
        if vertex.opens_planes and vertex.spread is None:
            behind = [vertices[each] for each in shape.descendants(vertex.index) | {vertex.index}]
            outer = [vertices[hook] for hook in loops[vertex.index] if hook != vertex.index]
            vertex.again = tuple((hook, *_counts(hook, behind)) for hook in outer)


def _counts(hook: Vertex, behind: list[Vertex]) -> tuple[int, int]:
    """How many of these vertices decide whether the loop repeats, and how many of their arrows leave it."""
    exits = sum(hook in arrow.leaves for vertex in behind for arrow in vertex.arrows)
    return sum(hook in vertex.decides for vertex in behind), exits


def _around(vertices: tuple[Vertex, ...], index: int, shape: Shape) -> list[int]:
    """The vertices whose planes contain the vertex."""
    found = []
    for opener in shape.ancestors(index):
        vertex = vertices[opener]
        if not vertex.opens_planes:
            continue
        aggregate = vertex.aggregate
        if aggregate is None or not (
            index == aggregate.index or aggregate.index in shape.ancestors(index)
        ):
            found.append(opener)
    return found


def _loops_around(
    vertices: tuple[Vertex, ...], index: int, around: dict[int, list[int]], shape: Shape
) -> list[int]:
    """The hooks of the loops around a vertex. Between a spread and its aggregate these are the loops around the spread:
    an item leaves no loop."""
    spreads = _spreads(vertices, around[index])
    index = min(spreads, key=lambda each: vertices[each].depth, default=index)
    before = shape.ancestors(index) | {index}
    hooks = {cycle.returns_to.index for cycle in vertices if cycle.returns_to is not None}
    return [hook for hook in hooks & before if _leads_back(vertices, index, hook, shape)]


def _leads_back(vertices: tuple[Vertex, ...], index: int, hook: int, shape: Shape) -> bool:
    """Whether a path returns to the hook without leaving its loop: by its own cycle activity, or one of hooks behind
    it."""
    seen: set[int] = set()
    waiting = [index]
    while waiting:
        each = waiting.pop()
        for below in shape.descendants(each) | {each}:
            target = vertices[below].returns_to
            if target is None or target.index in seen:
                continue
            if target.index == hook:
                return True
            if hook in shape.ancestors(target.index):
                seen.add(target.index)
                waiting.append(target.index)
    return False


def _reads(vertex: Vertex) -> set[str]:
    """Variables that its expressions read, and those of its arrows."""
    texts: list[Expression | None] = [vertex.items, vertex.collect, vertex.value]
    for mapped in (vertex.arguments, vertex.output or (), vertex.job, vertex.assigns):
        texts.extend(expression for _, expression in mapped)
    for part in (vertex.request, vertex.sending, vertex.fault):
        if part is not None:
            fields = (getattr(part, name) for name in part.__struct_fields__)
            texts.extend(field for field in fields if isinstance(field, Expression))
    texts.extend(arrow.when for arrow in vertex.arrows)
    names = {name for text in texts if text is not None for name in text.names}
    if vertex.fault is not None and vertex.fault.again is not None:
        names.add(vertex.fault.again)
    return names


def _sets(vertex: Vertex) -> Iterable[str]:
    """Variables that the vertex may set."""
    yield from (name for name, _ in vertex.assigns)
    if vertex.output is None and vertex.primitive is not None:
        yield vertex.name
    yield from (name for name, _ in vertex.output or ())
    if vertex.into:
        yield vertex.into
    yield from (arrow.bind for arrow in vertex.arrows if arrow.bind is not None)
