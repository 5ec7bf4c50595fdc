"""Reads one YAML document as a graph."""

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any, Final, get_args

import msgspec

from perdure.authoring.graphs.name_positions import position_of_name
from perdure.authoring.graphs.node_syntax import NODE_SYNTAX, NodeSyntax
from perdure.authoring.graphs.reading import MISSING, FieldReader, Known
from perdure.authoring.graphs.unreadable import Unreadable
from perdure.authoring.graphs.values import Computed
from perdure.authoring.graphs.yaml_values import YamlList, YamlMapping, YamlScalar, YamlValue
from perdure.core.graph.fields import PARAMS
from perdure.core.graph.gaps import ANYTHING, Gaps
from perdure.core.graph.model import (
    AnyNode,
    CycleNode,
    Edge,
    FieldType,
    Graph,
    Problem,
    SourceLocation,
    Type,
    WorkerNode,
)
from perdure.core.graph.starting import with_trigger
from perdure.core.graph.suggestions import did_you_mean, nearest

_PARTS: Final = (
    *("graph", "version", "threshold", "input", "output", "params"),
    *("activities", "transitions"),
)
_EDGE: Final = {
    "from": ("source", "names"),
    "to": ("target", "names"),
    "on": ("on", "version"),
    "when": ("when", "expression"),
    "errors": ("errors", "names"),
    "bind": ("bind", "text"),
}
_ReadEdge = tuple[Edge, dict[str, tuple[SourceLocation, str]], set[str]]
"""An edge, the positions of its fields, and the fields that could not be read."""

_TYPES: Final[tuple[str, ...]] = get_args(Type)
_ARROW: Final = "->"


class Document:
    """A YAML document and the graph that it describes, as far as the graph can be read."""

    def __init__(self, value: YamlValue, problems: list[Problem]) -> None:
        self._reader = FieldReader(problems)
        self.place = value.place
        self.graph: Graph | None = None
        self.name = ""
        self._unreadable = Unreadable()
        self._has_name = False
        self._has_parameters = True
        """False if the parameters could not be read."""
        fields = self._reader.fields(
            value, ("", ""), "a mapping that begins with `graph:` and its name"
        )
        if fields is not None:
            self.graph = self._read(fields)

    def judged(self, judge: Callable[[Graph, Gaps], Iterable[Problem]]) -> Iterator[Problem]:
        """The problems that `judge` finds, with positions, except those that unreadable input may explain."""
        graph = self.graph
        if graph is None:
            return
        for problem in judge(graph, self._unreadable.gaps()):
            if not self._is_excused(problem):
                yield self.located(problem)

    def _is_excused(self, problem: Problem) -> bool:
        """Whether the problem is about the graph's name, its parameters, or a node, that could not be read."""
        if (problem.node, problem.field) == ("", "name") and not self._has_name:
            return True
        if not self._has_parameters and (
            problem.variable == PARAMS
            or problem.field.startswith(PARAMS)
            or "parameter" in problem.what
        ):
            return True
        unread = self._unreadable.unread
        if problem.variable or problem.node.startswith("edge "):
            return False  # does not depend on the kind of a node
        return problem.node in unread or any(repr(name) in problem.what for name in unread)

    def located(self, problem: Problem) -> Problem:
        """The problem with the position of its variable, of its field, or of the value that contains the field."""
        places = self._reader.places
        node, field = problem.node, problem.field
        where, written = places.get((node, field), (None, field))
        while where is None and field:
            field = field.rpartition(".")[0]
            where = places.get((node, field), (None, ""))[0]
        value = None if where is None else self._reader.expressions.get(where)
        if problem.variable and value is not None:
            where = position_of_name(problem.variable, value) or where
        return msgspec.structs.replace(problem, where=where or self.place, field=written)

    def _read(self, fields: YamlMapping) -> Graph:
        reader = self._reader
        known = reader.known(fields, "", _PARTS)
        for part, value in known.values.items():
            reader.places["", "name" if part == "graph" else part] = (value.place, part)
        if "graph" not in known.values:
            reader.report(fields.place, ("", "graph"), "the name is missing", "add `graph: <name>`")
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
            threshold=self._threshold(known),
            params=self._parameters(known),
        )
        return with_trigger(graph)

    def _threshold(self, known: Known) -> int:
        value = known.values.get("threshold")
        if value is None:
            return 0
        is_guess = "threshold" in known.guessed
        found = self._reader.read("whole", value, ("", "threshold"), is_guess=is_guess)
        return 0 if found is MISSING else int(found)

    def _text(self, known: Known, name: str, reads: str) -> str | None:
        value = known.values.get(name)
        if value is None:
            return None
        found = self._reader.read(reads, value, ("", name), is_guess=name in known.guessed)
        return None if found is MISSING else str(found)

    # Schemas

    def _schema(self, known: Known, part: str) -> dict[str, FieldType] | None:
        """The schema of `part`; None if the document has none, or if a part of it can't be read."""
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

    def _parameters(self, known: Known) -> dict[str, FieldType] | None:
        problems = len(self._reader.problems)
        found = self._schema(known, PARAMS)
        self._has_parameters = len(self._reader.problems) == problems and PARAMS not in known.lost
        return found

    def _field_type(self, value: YamlValue, spot: tuple[str, str]) -> FieldType:
        if isinstance(value, YamlScalar):
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
            elif isinstance(item, YamlScalar):
                given[name] = item.value
            else:
                reader.wrong(item, spot, "a text, a number, true, false or null")
        if known.lost or MISSING in given.values():
            return FieldType(required=False)
        return FieldType(**given)

    def _type(self, value: YamlValue, spot: tuple[str, str]) -> Any:
        # `type: null` means the type `none`, but YAML reads it as no value.
        text = value.text if isinstance(value, YamlScalar) else self._reader.text(value, spot)
        if text is MISSING or text in _TYPES:
            return text
        remedy = did_you_mean(text, _TYPES, f"use {', '.join(_TYPES)}")
        self._reader.report(value.place, spot, f"there is no type {text!r}", remedy)
        return "any"

    # Activities

    def _nodes(self, known: Known, place: SourceLocation) -> Iterator[AnyNode]:
        reader, value = self._reader, known.values.get("activities")
        if value is None:
            reader.report(place, ("", "activities"), "there are no activities", "add `activities:`")
            self._unreadable.mark_nodes_missing()
            return
        found = reader.fields(value, ("", "activities"), "a mapping of names to activities")
        if found is None or "" in found.lost or "activities" in known.lost:
            self._unreadable.mark_nodes_missing()
        if found is None:
            return
        for name, item in found.values.items():
            reader.places[name, ""] = (found.keys[name], "")
            if name in found.lost:
                self._unreadable.mark_duplicate_node(name)
            node = self._node(name, item)
            if node is None:
                self._unreadable.mark_node_unread(name)
                node = WorkerNode(name=name, task="unread")
            yield node

    def _node(self, name: str, value: YamlValue) -> AnyNode | None:
        reader = self._reader
        if isinstance(value, YamlScalar) and value.value in NODE_SYNTAX:
            kind = NODE_SYNTAX[str(value.value)]
            if kind.is_bare:
                return _made(kind, name, {})
            wanted = f"{{{value.value}: ...}}: it has to say which {kind.main}"
            reader.report(value.place, (name, ""), "this value is incomplete", f"write {wanted}")
            return None
        if (
            isinstance(value, YamlScalar)
            and (meant := nearest(value.text, NODE_SYNTAX)) is not None
        ):
            what = f"{value.text!r} is not a kind of activity"
            reader.report(value.place, (name, ""), what, f"did you mean {meant!r}?")
            return _made(NODE_SYNTAX[meant], name, {}) if NODE_SYNTAX[meant].is_bare else None
        fields = reader.fields(value, (name, ""), "what it is, such as {worker: name_of_a_task}")
        key = None if fields is None else self._key(name, fields)
        if fields is None or key is None:
            return None
        word = key if key in NODE_SYNTAX else str(nearest(key, NODE_SYNTAX))
        return self._of_kind(name, fields.renamed(key, word), word, is_guess=key != word)

    def _key(self, name: str, fields: YamlMapping) -> str | None:
        """The key that names the kind of node, perhaps misspelled. Keys that are fields of another kind don't count."""
        words = [word for word in fields.values if word in NODE_SYNTAX]
        slips = {
            key: meant
            for key in fields.values
            if key not in NODE_SYNTAX and (meant := nearest(key, NODE_SYNTAX)) is not None
        }
        others = [*words, *slips.values()]
        words = [w for w in words if not any(w in NODE_SYNTAX[other].fields for other in others)]
        if len(words) == 1:
            return words[0]
        place, spot = fields.place, (name, "")
        if words:
            remedy = "keep one of them"
            if set(words) == {"hook", "sleep"}:
                remedy = "write `timeout` for how long the hook waits for its signal"
            self._reader.report(place, spot, f"this is {' and '.join(words)} at once", remedy)
        else:
            key = next(iter(slips), "")
            remedy = (
                f"did you mean {slips[key]!r}?" if slips else f"add one of {', '.join(NODE_SYNTAX)}"
            )
            self._reader.report(place, spot, "the kind of activity is missing", remedy)
            if (
                len(slips) == 1
                and fields.values.keys() - {key} <= NODE_SYNTAX[slips[key]].fields.keys()
            ):
                return key
        return None

    def _of_kind(
        self, name: str, fields: YamlMapping, word: str, *, is_guess: bool
    ) -> AnyNode | None:
        reader, kind = self._reader, NODE_SYNTAX[word]
        known = reader.known(fields, name, (word, *kind.fields), word)
        wanted = {yaml: part for yaml, part in kind.fields.items() if yaml in known.values}
        lost = {kind.fields[yaml][0] for yaml in known.lost if yaml in kind.fields}
        main = fields.values[word]
        is_nothing = isinstance(main, YamlScalar) and main.value is None
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
            if isinstance(found, Computed):
                read[f"{field}_from"] = found.text
            elif found is not MISSING:
                read[field] = found
            if found is MISSING or (isinstance(value, YamlMapping) and value.lost):
                lost.add(field)
        for field in kind.required:
            if field not in read and field not in lost:
                what = f"the field {field!r} of {word} is missing"
                reader.report(reader.places[name, ""][0], (name, field), what, f"add `{field}:`")
        needed = {*kind.required, *((kind.main,) if kind.main in lost else ())}
        if not needed <= read.keys():
            return None
        self._unreadable.mark_fields_missing(
            name, lost, read["to"] if kind.node is CycleNode else None
        )
        return _made(kind, name, read)

    # Transitions

    def _edges(self, known: Known) -> Iterator[Edge]:
        value = known.values.get("transitions")
        if "transitions" in known.lost:
            self._unreadable.mark_edge_missing()
        if value is None:
            return
        if not isinstance(value, YamlList):
            self._reader.wrong(value, ("", "transitions"), "a list, such as `- charge -> ship`")
            self._unreadable.mark_edge_missing(None if isinstance(value, YamlScalar) else ANYTHING)
            return
        number = 0
        for item in value.items:
            for edge, places, lost in (
                self._chain(item) if isinstance(item, YamlScalar) else self._edge(item)
            ):
                for field, place in places.items():
                    self._reader.places[f"edge {number}", field] = place
                self._unreadable.mark_edge_fields_missing(f"edge {number}", lost)
                number += 1
                yield edge

    def _chain(self, value: YamlScalar) -> Iterator[_ReadEdge]:
        """`a -> b -> c`: an edge for each arrow."""
        names = [part.strip() for part in value.text.split(_ARROW)]
        if len(names) < 2 or not all(names):
            self._reader.report(
                value.place,
                ("", "transitions"),
                f"{value.text!r} is no transition",
                "write `a -> b`, or {from: a, to: b, when: ...}",
            )
            self._unreadable.mark_edge_missing()
            return
        places = list(_places(value, names))
        for index, (source, target) in enumerate(pairwise(names)):
            where = {"": places[index], "source": places[index], "target": places[index + 1]}
            yield Edge(source, target), {name: (place, "") for name, place in where.items()}, set()

    def _edge(self, value: YamlValue) -> Iterator[_ReadEdge]:
        reader, spot = self._reader, ("", "transitions")
        fields = reader.fields(value, spot, "`a -> b`, or {from: a, to: b, when: ...}")
        if fields is None:
            self._unreadable.mark_edge_missing(ANYTHING)
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
                reader.report(fields.place, ("", yaml), what, f"add `{yaml}:`")
            elif given.get(_EDGE[yaml][0]) == ():
                what, remedy = "this is an empty list", "name an activity, or more"
                reader.report(known.values[yaml].place, ("", yaml), what, remedy)
                del given[_EDGE[yaml][0]]
        if not {"source", "target"} <= given.keys():
            self._unreadable.mark_edge_missing(ANYTHING if "bind" in lost else given.get("bind"))
            return
        sources, targets = given.pop("source"), given.pop("target")
        for source in sources:
            for target in targets:
                yield Edge(source, target, **given), places, lost


def _made(kind: NodeSyntax, name: str, fields: dict[str, Any]) -> AnyNode:
    return kind.node(name=name, **fields)


def _places(value: YamlScalar, names: list[str]) -> Iterator[SourceLocation]:
    """The position of each name in a chain."""
    offset = 0
    for name in names:
        offset = value.text.index(name, offset)
        yield value.place_at(offset)
        offset += len(name)
