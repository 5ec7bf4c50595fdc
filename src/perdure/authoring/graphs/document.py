"""One document of YAML, read as a graph."""

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any, Final, get_args

import msgspec

from perdure.authoring.graphs.kinds import KINDS, Kind
from perdure.authoring.graphs.losses import Losses
from perdure.authoring.graphs.names import place_of
from perdure.authoring.graphs.reading import MISSING, Known, Reader
from perdure.authoring.graphs.tree import Fields, Items, Scalar, Value
from perdure.core.graph.gaps import ANYTHING, Gaps
from perdure.core.graph.model import (
    AnyNode,
    Cycle,
    Edge,
    FieldType,
    Graph,
    Place,
    Problem,
    Type,
    Worker,
)
from perdure.core.graph.starting import started
from perdure.core.graph.suggestions import did_you_mean, nearest

_PARTS: Final = ("graph", "version", "input", "output", "activities", "transitions")
_EDGE: Final = {
    "from": ("source", "names"),
    "to": ("target", "names"),
    "on": ("on", "version"),
    "when": ("when", "expression"),
    "errors": ("errors", "names"),
    "bind": ("bind", "text"),
}
_ReadEdge = tuple[Edge, dict[str, tuple[Place, str]], set[str]]
"""An edge, the places of its fields, and those that could not be read."""

_TYPES: Final[tuple[str, ...]] = get_args(Type)
_ARROW: Final = "->"


class Document:
    """A document, and the graph that it describes, as far as that can be read."""

    def __init__(self, value: Value, problems: list[Problem]) -> None:
        self._reader = Reader(problems)
        self.place = value.place
        self.graph: Graph | None = None
        self.name = ""
        self._losses = Losses()
        self._has_name = False
        fields = self._reader.fields(
            value, ("", ""), "a mapping that begins with `graph:` and its name"
        )
        if fields is not None:
            self.graph = self._read(fields)

    def judged(self, judge: Callable[[Graph, Gaps], Iterable[Problem]]) -> Iterator[Problem]:
        """What `judge` finds, located: of a graph that was read in part, what that part does not excuse."""
        graph = self.graph
        if graph is None:
            return
        for problem in judge(graph, self._losses.gaps()):
            if not self._is_excused(problem):
                yield self.located(problem)

    def _is_excused(self, problem: Problem) -> bool:
        """Whether it is about the name, or a node, that could not be read."""
        if (problem.node, problem.field) == ("", "name") and not self._has_name:
            return True
        unread = self._losses.unread
        if problem.variable or problem.node.startswith("edge "):
            return False  # nothing of this follows from the kind of a node
        return problem.node in unread or any(repr(name) in problem.what for name in unread)

    def located(self, problem: Problem) -> Problem:
        """The problem with the place of its variable, of its field, or of what the field belongs to."""
        places = self._reader.places
        node, field = problem.node, problem.field
        where, written = places.get((node, field), (None, field))
        while where is None and field:
            field = field.rpartition(".")[0]
            where = places.get((node, field), (None, ""))[0]
        value = None if where is None else self._reader.expressions.get(where)
        if problem.variable and value is not None:
            where = place_of(problem.variable, value) or where
        return msgspec.structs.replace(problem, where=where or self.place, field=written)

    def _read(self, fields: Fields) -> Graph:
        reader = self._reader
        known = reader.known(fields, "", _PARTS)
        for part, value in known.values.items():
            reader.places["", "name" if part == "graph" else part] = (value.place, part)
        if "graph" not in known.values:
            reader.tell(fields.place, ("", "graph"), "the name is missing", "add `graph: <name>`")
        name, version = self._text(known, "graph", "text"), self._text(known, "version", "version")
        self.name, self._has_name = name or "", name is not None
        nodes = tuple(self._nodes(known, fields.place))
        edges = tuple(self._edges(known))
        graph = Graph(
            self.name,
            nodes,
            edges,
            version or "",
            self._schema(known, "input"),
            self._schema(known, "output"),
            source=str(fields.place),
        )
        return started(graph)

    def _text(self, known: Known, name: str, reads: str) -> str | None:
        value = known.values.get(name)
        if value is None:
            return None
        found = self._reader.read(reads, value, ("", name), is_guess=name in known.guessed)
        return None if found is MISSING else str(found)

    # Schemas

    def _schema(self, known: Known, part: str) -> dict[str, FieldType] | None:
        """None if nothing is said, or if not all of it can be read."""
        if part not in known.values:
            return None
        wanted = "a mapping of fields to types, such as {amount: float}"
        found = self._reader.fields(known.values[part], ("", part), wanted)
        if found is None or part in known.lost:
            return None
        schema: dict[str, FieldType] = {}
        for name, value in found.values.items():
            self._reader.places["", f"{part}.{name}"] = (found.keys[name], f"{part}.{name}")
            schema[name] = self._field_type(value, ("", f"{part}.{name}"))
        return schema | {name: FieldType() for name in found.lost if name}

    def _field_type(self, value: Value, spot: tuple[str, str]) -> FieldType:
        if isinstance(value, Scalar):
            return FieldType(self._type(value, spot))
        reader = self._reader
        fields = reader.fields(value, spot, "a type, or a mapping such as {type: int, default: 3}")
        if fields is None:
            return FieldType()
        known = reader.known(fields, "", ("type", "required", "default"), "a field")
        given: dict[str, Any] = {"required": "default" not in known.values}
        for name, item in known.values.items():
            if name == "type":
                given[name] = self._type(item, spot)
            elif name == "required":
                given[name] = reader.flag(item, spot)
            elif isinstance(item, Scalar):
                given[name] = item.value
            else:
                reader.wrong(item, spot, "a text, a number, true, false or null")
        if known.lost or MISSING in given.values():
            return FieldType(required=False)
        return FieldType(**given)

    def _type(self, value: Value, spot: tuple[str, str]) -> Any:
        # `type: null` is a way to write none, and YAML reads it as nothing.
        text = value.text if isinstance(value, Scalar) else self._reader.text(value, spot)
        if text is MISSING or text in _TYPES:
            return text
        remedy = did_you_mean(text, _TYPES, f"use {', '.join(_TYPES)}")
        self._reader.tell(value.place, spot, f"there is no type {text!r}", remedy)
        return "any"

    # Activities

    def _nodes(self, known: Known, place: Place) -> Iterator[AnyNode]:
        reader, value = self._reader, known.values.get("activities")
        if value is None:
            told = "there are no activities", "add `activities:`"
            reader.tell(place, ("", "activities"), *told)
            self._losses.lose_nodes()
            return
        found = reader.fields(value, ("", "activities"), "a mapping of names to activities")
        if found is None or "" in found.lost or "activities" in known.lost:
            self._losses.lose_nodes()
        if found is None:
            return
        for name, item in found.values.items():
            reader.places[name, ""] = (found.keys[name], "")
            if name in found.lost:
                self._losses.lose_another(name)
            node = self._node(name, item)
            if node is None:
                self._losses.lose_node(name)
                node = Worker(name=name, task="unread")
            yield node

    def _node(self, name: str, value: Value) -> AnyNode | None:
        reader = self._reader
        if isinstance(value, Scalar) and value.value in KINDS:
            kind = KINDS[str(value.value)]
            if kind.is_bare:
                return _made(kind, name, {})
            wanted = f"{{{value.value}: ...}}: it has to say which {kind.main}"
            reader.tell(value.place, (name, ""), "this does not say enough", f"write {wanted}")
            return None
        if isinstance(value, Scalar) and (meant := nearest(value.text, KINDS)) is not None:
            what = f"{value.text!r} does not say what it is"
            reader.tell(value.place, (name, ""), what, f"did you mean {meant!r}?")
            return _made(KINDS[meant], name, {}) if KINDS[meant].is_bare else None
        fields = reader.fields(value, (name, ""), "what it is, such as {worker: name_of_a_task}")
        key = None if fields is None else self._key(name, fields)
        if fields is None or key is None:
            return None
        word = key if key in KINDS else str(nearest(key, KINDS))
        return self._of_kind(name, fields.renamed(key, word), word, is_guess=key != word)

    def _key(self, name: str, fields: Fields) -> str | None:
        """Which field says the kind: not one that only another kind's word makes a field. It may be a slip."""
        words = [word for word in fields.values if word in KINDS]
        slips = {
            key: meant
            for key in fields.values
            if key not in KINDS and (meant := nearest(key, KINDS)) is not None
        }
        others = [*words, *slips.values()]
        words = [w for w in words if not any(w in KINDS[other].fields for other in others)]
        if len(words) == 1:
            return words[0]
        place, spot = fields.place, (name, "")
        if words:
            remedy = "keep one of them"
            if set(words) == {"hook", "sleep"}:
                remedy = "write `timeout` for how long the hook waits for its signal"
            self._reader.tell(place, spot, f"this is {' and '.join(words)} at once", remedy)
        else:
            key = next(iter(slips), "")
            remedy = f"did you mean {slips[key]!r}?" if slips else f"add one of {', '.join(KINDS)}"
            self._reader.tell(place, spot, "this does not say what it is", remedy)
            if len(slips) == 1 and fields.values.keys() - {key} <= KINDS[slips[key]].fields.keys():
                return key
        return None

    def _of_kind(self, name: str, fields: Fields, word: str, *, is_guess: bool) -> AnyNode | None:
        reader, kind = self._reader, KINDS[word]
        known = reader.known(fields, name, (word, *kind.fields), word)
        wanted = {yaml: part for yaml, part in kind.fields.items() if yaml in known.values}
        lost = {kind.fields[yaml][0] for yaml in known.lost if yaml in kind.fields}
        main = fields.values[word]
        is_nothing = isinstance(main, Scalar) and main.value is None
        if kind.main is None or (is_nothing and kind.is_bare):
            if not (is_nothing or is_guess):
                reader.wrong(main, (name, word), f"`{word}:` and nothing behind it")
        else:
            wanted[word] = (kind.main, kind.reads)
        read: dict[str, Any] = {}
        for yaml, (field, reads) in wanted.items():
            value = known.values[yaml]
            reader.places[name, field] = (value.place, yaml)
            is_slip = yaml in known.guessed or (is_guess and yaml == word)
            found = reader.read(reads, value, (name, field), is_guess=is_slip)
            if found is not MISSING:
                read[field] = found
            if found is MISSING or (isinstance(value, Fields) and value.lost):
                lost.add(field)
        for field in kind.required:
            if field not in read and field not in lost:
                what = f"the field {field!r} of {word} is missing"
                reader.tell(reader.places[name, ""][0], (name, field), what, f"add `{field}:`")
        needed = {*kind.required, *((kind.main,) if kind.main in lost else ())}
        if not needed <= read.keys():
            return None
        self._losses.lose_fields(name, lost, read["to"] if kind.node is Cycle else None)
        return _made(kind, name, read)

    # Transitions

    def _edges(self, known: Known) -> Iterator[Edge]:
        value = known.values.get("transitions")
        if "transitions" in known.lost:
            self._losses.lose_edge()
        if value is None:
            return
        if not isinstance(value, Items):
            self._reader.wrong(value, ("", "transitions"), "a list, such as `- charge -> ship`")
            self._losses.lose_edge(None if isinstance(value, Scalar) else ANYTHING)
            return
        number = 0
        for item in value.items:
            for edge, places, lost in (
                self._chain(item) if isinstance(item, Scalar) else self._edge(item)
            ):
                for field, place in places.items():
                    self._reader.places[f"edge {number}", field] = place
                self._losses.lose_edge_fields(f"edge {number}", lost)
                number += 1
                yield edge

    def _chain(self, value: Scalar) -> Iterator[_ReadEdge]:
        """`a -> b -> c`: an edge for each arrow."""
        names = [part.strip() for part in value.text.split(_ARROW)]
        if len(names) < 2 or not all(names):
            self._reader.tell(
                value.place,
                ("", "transitions"),
                f"{value.text!r} is no transition",
                "write `a -> b`, or {from: a, to: b, when: ...}",
            )
            self._losses.lose_edge()
            return
        places = list(_places(value, names))
        for index, (source, target) in enumerate(pairwise(names)):
            where = {"": places[index], "source": places[index], "target": places[index + 1]}
            yield Edge(source, target), {name: (place, "") for name, place in where.items()}, set()

    def _edge(self, value: Value) -> Iterator[_ReadEdge]:
        reader, spot = self._reader, ("", "transitions")
        fields = reader.fields(value, spot, "`a -> b`, or {from: a, to: b, when: ...}")
        if fields is None:
            self._losses.lose_edge(ANYTHING)
            return
        known = reader.known(fields, "", _EDGE, "a transition")
        lost = {_EDGE[yaml][0] for yaml in known.lost}
        places = {"": (fields.place, "")}
        given: dict[str, Any] = {}
        for yaml, item in known.values.items():
            field, reads = _EDGE[yaml]
            places[field] = (item.place, yaml)
            found = reader.read(reads, item, ("", yaml), is_guess=yaml in known.guessed)
            if found is MISSING:
                lost.add(field)
            else:
                given[field] = found
        for yaml in ("from", "to"):
            if yaml not in known.values:
                what = f"the field {yaml!r} of a transition is missing"
                reader.tell(fields.place, ("", yaml), what, f"add `{yaml}:`")
            elif given.get(_EDGE[yaml][0]) == ():
                what, remedy = "this is an empty list", "name an activity, or more"
                reader.tell(known.values[yaml].place, ("", yaml), what, remedy)
                del given[_EDGE[yaml][0]]
        if not {"source", "target"} <= given.keys():
            self._losses.lose_edge(ANYTHING if "bind" in lost else given.get("bind"))
            return
        sources, targets = given.pop("source"), given.pop("target")
        for source in sources:
            for target in targets:
                yield Edge(source, target, **given), places, lost


def _made(kind: Kind, name: str, fields: dict[str, Any]) -> AnyNode:
    return kind.node(name=name, **fields)


def _places(value: Scalar, names: list[str]) -> Iterator[Place]:
    """Where each name of a chain is."""
    offset = 0
    for name in names:
        offset = value.text.index(name, offset)
        yield value.place_at(offset)
        offset += len(name)
