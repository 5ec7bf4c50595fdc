"""One document of YAML, read as a graph."""

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any, Final, get_args

import msgspec

from perdure.authoring.graphs.kinds import KINDS, Kind
from perdure.authoring.graphs.reading import MISSING, Reader
from perdure.authoring.graphs.tree import Fields, Items, Scalar, Value
from perdure.core.graph.model import AnyNode, Edge, FieldType, Graph, Place, Problem, Type, Worker
from perdure.core.graph.starting import started
from perdure.core.graph.suggestions import did_you_mean

_PARTS: Final = ("graph", "version", "input", "output", "activities", "transitions")
_EDGE: Final = {
    "from": ("source", "names"),
    "to": ("target", "names"),
    "on": ("on", "version"),
    "when": ("when", "expression"),
    "errors": ("errors", "names"),
    "bind": ("bind", "text"),
}
_TYPES: Final[tuple[str, ...]] = get_args(Type)
_ARROW: Final = "->"


class Document:
    """A document, and the graph that it describes, as far as that can be read."""

    def __init__(self, value: Value, problems: list[Problem]) -> None:
        self._reader = Reader(problems)
        self.place = value.place
        self.graph: Graph | None = None
        self.name = ""
        self._unread: set[str] = set()
        self._lacks_edges = False
        before = len(problems)
        fields = self._reader.fields(
            value, ("", ""), "a mapping that begins with `graph:` and its name"
        )
        if fields is not None:
            self.graph = self._read(fields)
        self._is_partial = len(problems) > before

    def judged(self, judge: Callable[[Graph], Iterable[Problem]]) -> Iterator[Problem]:
        """What `judge` finds, located: of a graph that was read in part, what that part does not excuse."""
        graph = self.graph
        if graph is None:
            return
        if self._is_partial:  # what could not be read may be what sets a variable
            graph = msgspec.structs.replace(graph, input=None)
        for problem in judge(graph):
            if not (self._is_partial and self._is_excused(graph, problem)):
                yield self.located(problem)

    def _is_excused(self, graph: Graph, problem: Problem) -> bool:
        spot = problem.node, problem.field
        if spot == ("", "") or (spot == ("", "name") and spot not in self._reader.places):
            return True
        if self._lacks_edges and (not problem.field or problem.field in {"to", "of"}):
            return True
        edge = graph.edges[int(problem.node[5:])] if problem.node.startswith("edge ") else None
        touched = {problem.node} if edge is None else {edge.source, edge.target}
        told = f"{problem.what} {problem.remedy}"
        return bool(touched & self._unread) or any(repr(name) in told for name in self._unread)

    def located(self, problem: Problem) -> Problem:
        """The problem with the place of its field, or of what the field belongs to."""
        places = self._reader.places
        node, field = problem.node, problem.field
        where, written = places.get((node, field), (None, field))
        while where is None and field:
            field = field.rpartition(".")[0]
            where = places.get((node, field), (None, ""))[0]
        return msgspec.structs.replace(problem, where=where or self.place, field=written)

    def _read(self, fields: Fields) -> Graph:
        reader = self._reader
        reader.refuse_unknown(fields, "", _PARTS)
        for name, value in fields.values.items():
            reader.places["", "name" if name == "graph" else name] = (value.place, name)
        self.name = self._text(fields, "graph", reader.text)
        if "graph" not in fields.values:
            reader.tell(fields.place, ("", "graph"), "the name is missing", "add `graph: <name>`")
        version = self._text(fields, "version", reader.version)
        nodes = tuple(self._nodes(fields))
        edges = tuple(self._edges(fields))
        graph = Graph(
            self.name,
            nodes,
            edges,
            version,
            self._schema(fields, "input"),
            self._schema(fields, "output"),
            source=str(fields.place),
        )
        return started(graph)

    def _text(
        self, fields: Fields, name: str, read: Callable[[Value, tuple[str, str]], Any]
    ) -> str:
        value = fields.values.get(name)
        found = "" if value is None else read(value, ("", name))
        return "" if found is MISSING else found

    # Schemas

    def _schema(self, fields: Fields, part: str) -> dict[str, FieldType] | None:
        if part not in fields.values:
            return None
        wanted = "a mapping of fields to types, such as {amount: float}"
        found = self._reader.fields(fields.values[part], ("", part), wanted)
        if found is None:
            return None
        schema = {}
        for name, value in found.values.items():
            self._reader.places["", f"{part}.{name}"] = (found.keys[name], f"{part}.{name}")
            schema[name] = self._field_type(value, ("", f"{part}.{name}"))
        return schema

    def _field_type(self, value: Value, spot: tuple[str, str]) -> FieldType:
        if isinstance(value, Scalar):
            return FieldType(self._type(value, spot))
        reader = self._reader
        fields = reader.fields(value, spot, "a type, or a mapping such as {type: int, default: 3}")
        if fields is None:
            return FieldType()
        reader.refuse_unknown(fields, "", ("type", "required", "default"), "a field")
        given: dict[str, Any] = {"required": "default" not in fields.values}
        for name, item in fields.values.items():
            if name == "type":
                given[name] = self._type(item, spot)
            elif name == "required":
                given[name] = reader.flag(item, spot)
            elif name == "default" and isinstance(item, Scalar):
                given[name] = item.value
            elif name == "default":
                reader.wrong(item, spot, "a text, a number, true, false or null")
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

    def _nodes(self, fields: Fields) -> Iterator[AnyNode]:
        value = fields.values.get("activities")
        if value is None:
            self._reader.tell(
                fields.place, ("", "activities"), "there are no activities", "add `activities:`"
            )
            return
        found = self._reader.fields(value, ("", "activities"), "a mapping of names to activities")
        for name, item in found.values.items() if found is not None else ():
            self._reader.places[name, ""] = (found.keys[name] if found else item.place, "")
            node = self._node(name, item)
            if node is None:
                self._unread.add(name)
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
        fields = reader.fields(value, (name, ""), "what it is, such as {worker: name_of_a_task}")
        word = None if fields is None else self._word(name, fields)
        if fields is None or word is None:
            return None
        return self._of_kind(name, fields, word)

    def _word(self, name: str, fields: Fields) -> str | None:
        """Which field says the kind: not one that only another kind's word makes a field."""
        words = [word for word in fields.values if word in KINDS]
        words = [w for w in words if not any(w in KINDS[other].fields for other in words)]
        if len(words) == 1:
            return words[0]
        place, spot = fields.place, (name, "")
        if words:
            remedy = "keep one of them"
            if set(words) == {"hook", "sleep"}:
                remedy = "write `timeout` for how long the hook waits for its signal"
            self._reader.tell(place, spot, f"this is {' and '.join(words)} at once", remedy)
        else:
            slips = [did_you_mean(key, KINDS, "") for key in fields.values]
            remedy = next((slip for slip in slips if slip), f"add one of {', '.join(KINDS)}")
            self._reader.tell(place, spot, "this does not say what it is", remedy)
        return None

    def _of_kind(self, name: str, fields: Fields, word: str) -> AnyNode | None:
        reader, kind = self._reader, KINDS[word]
        reader.refuse_unknown(fields, name, (word, *kind.fields), word)
        wanted = {yaml: part for yaml, part in kind.fields.items() if yaml in fields.values}
        given: dict[str, Any] = {}
        main = fields.values[word]
        is_nothing = isinstance(main, Scalar) and main.value is None
        if kind.main is None or (is_nothing and kind.is_bare):
            if not is_nothing:
                reader.wrong(main, (name, word), f"`{word}:` and nothing behind it")
        else:
            wanted[word] = (kind.main, kind.reads)
        for yaml, (field, reads) in wanted.items():
            value = fields.values[yaml]
            reader.places[name, field] = (value.place, yaml)
            given[field] = getattr(reader, reads)(value, (name, field))
        missing = [field for field in kind.required if field not in given]
        for field in missing:
            what = f"the field {field!r} of {word} is missing"
            reader.tell(reader.places[name, ""][0], (name, field), what, f"add `{field}:`")
        if missing or given.get(kind.main or "") is MISSING:
            return None
        read = {field: value for field, value in given.items() if value is not MISSING}
        return (
            None if any(field not in read for field in kind.required) else _made(kind, name, read)
        )

    # Transitions

    def _edges(self, fields: Fields) -> Iterator[Edge]:
        value = fields.values.get("transitions")
        if value is None:
            return
        if not isinstance(value, Items):
            self._reader.wrong(value, ("", "transitions"), "a list, such as `- charge -> ship`")
            self._lacks_edges = True
            return
        number = 0
        for item in value.items:
            edges = list(self._chain(item) if isinstance(item, Scalar) else self._edge(item))
            self._lacks_edges |= not edges
            for edge, places in edges:
                for field, place in places.items():
                    self._reader.places[f"edge {number}", field] = place
                number += 1
                yield edge

    def _chain(self, value: Scalar) -> Iterator[tuple[Edge, dict[str, tuple[Place, str]]]]:
        """`a -> b -> c`: an edge for each arrow."""
        names = [part.strip() for part in value.text.split(_ARROW)]
        if len(names) < 2 or not all(names):
            self._reader.tell(
                value.place,
                ("", "transitions"),
                f"{value.text!r} is no transition",
                "write `a -> b`, or {from: a, to: b, when: ...}",
            )
            return
        places = list(_places(value, names))
        for index, (source, target) in enumerate(pairwise(names)):
            where = {"": places[index], "source": places[index], "target": places[index + 1]}
            yield Edge(source, target), {field: (place, "") for field, place in where.items()}

    def _edge(self, value: Value) -> Iterator[tuple[Edge, dict[str, tuple[Place, str]]]]:
        reader, spot = self._reader, ("", "transitions")
        fields = reader.fields(value, spot, "`a -> b`, or {from: a, to: b, when: ...}")
        if fields is None:
            return
        reader.refuse_unknown(fields, "", _EDGE, "a transition")
        places = {"": (fields.place, "")}
        given: dict[str, Any] = {}
        for yaml, (field, reads) in _EDGE.items():
            if yaml in fields.values:
                item = fields.values[yaml]
                places[field] = (item.place, yaml)
                given[field] = getattr(reader, reads)(item, ("", yaml))
        for yaml in ("from", "to"):
            if yaml not in fields.values:
                what = f"the field {yaml!r} of a transition is missing"
                reader.tell(fields.place, ("", yaml), what, f"add `{yaml}:`")
                return
        if MISSING in given.values():
            return
        sources, targets = given.pop("source"), given.pop("target")
        for source in sources:
            for target in targets:
                yield Edge(source, target, **given), places


def _made(kind: Kind, name: str, fields: dict[str, Any]) -> AnyNode:
    return kind.node(name=name, **fields)


def _places(value: Scalar, names: list[str]) -> Iterator[Place]:
    """Where each name of a chain is: exactly, if it is on one line and not quoted."""
    offset = 0
    for name in names:
        offset = value.text.index(name, offset)
        shift = offset if value.is_plain and "\n" not in value.text else 0
        yield Place(value.place.file, value.place.line, value.place.column + shift)
        offset += len(name)
