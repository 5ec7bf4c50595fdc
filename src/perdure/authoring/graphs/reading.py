"""Reads YAML values as fields of a graph, and reports wrong values with their positions."""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from perdure.authoring.graphs.values import Computed
from perdure.authoring.graphs.yaml_values import (
    YamlList,
    YamlMapping,
    YamlMissing,
    YamlScalar,
    YamlValue,
)
from perdure.core.errors import ExpressionProblem
from perdure.core.expressions import parse
from perdure.core.graph.model import Maps, Problem, RetryRule, SourceLocation
from perdure.core.graph.suggestions import did_you_mean, nearest

MISSING: Final = object()
"""Stands for a value that could not be read."""

_UNKNOWN: Final = "job"
"""Stands for an expression that could not be read: valid everywhere, and of any type."""


class Known(NamedTuple):
    """The known fields of a mapping."""

    values: dict[str, YamlValue]
    guessed: frozenset[str]
    """Fields whose key was misspelled, which is reported."""
    lost: set[str]
    """Fields that may be among the unreadable keys."""


class FieldReader:
    """Reads values, records their positions, and collects problems.

    `places` maps a node and a field of the model to the position in the text and the field's name there;
    `expressions` maps positions to the values that were read as expressions.
    """

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        self.places: dict[tuple[str, str], tuple[SourceLocation, str]] = {}
        self.expressions: dict[SourceLocation, YamlValue] = {}

    def report(self, place: SourceLocation, spot: tuple[str, str], what: str, remedy: str) -> None:
        self.problems.append(Problem(spot[0], self._written(spot), what, remedy, place))

    def _written(self, spot: tuple[str, str]) -> str:
        """The field's name in the document."""
        return self.places[spot][1] if spot in self.places else spot[1]

    def wrong(self, value: YamlValue, spot: tuple[str, str], wanted: str) -> Any:
        self.report(value.place, spot, f"this is {value.noun}", f"write {wanted}")
        return MISSING

    def fields(self, value: YamlValue, spot: tuple[str, str], wanted: str) -> YamlMapping | None:
        if isinstance(value, YamlMapping):
            return value
        self.wrong(value, spot, wanted)
        return None

    def known(self, fields: YamlMapping, node: str, known: Iterable[str], kind: str = "") -> Known:
        """The fields in `known`. Reports other keys, and reads a misspelled key as the field nearest to it."""
        names = tuple(known)
        whose = f" of {kind}" if kind else ""
        values = {name: value for name, value in fields.values.items() if name in names}
        guessed: set[str] = set()
        is_lost = "" in fields.lost
        for name, place in fields.keys.items():
            if name in names:
                continue
            remedy = did_you_mean(name, names, f"use {', '.join(names) or 'none'}")
            self.report(place, (node, name), f"there is no field {name!r}{whose}", remedy)
            meant = nearest(name, names)
            if meant is None or meant in values:
                is_lost = True
            else:
                values[meant] = fields.values[name]
                guessed.add(meant)
        lost = fields.lost.intersection(names)
        if is_lost:
            lost.update(name for name in names if name not in values)
        return Known(values, frozenset(guessed), lost)

    def read(
        self, reads: str, value: YamlValue, spot: tuple[str, str], *, is_guess: bool = False
    ) -> Any:
        """The value, read by the method `reads`. If a guessed field fails, the guess was wrong: nothing is reported."""
        before = len(self.problems)
        found = getattr(self, reads)(value, spot)
        if found is MISSING and is_guess:
            del self.problems[before:]
        return found

    # One method for each form of a field. `spot` is the node and the field.

    def text(self, value: YamlValue, spot: tuple[str, str]) -> Any:
        if isinstance(value, YamlScalar) and isinstance(value.value, str):
            return value.value
        return self.wrong(value, spot, "a text")

    def name(self, value: YamlValue, spot: tuple[str, str]) -> Any:
        """A text is the name itself; `{expr: ...}` computes the name."""
        if not isinstance(value, YamlMapping):
            return self.text(value, spot)
        known = self.known(value, spot[0], ("expr",), "a name that is computed")
        found = known.values.get("expr")
        if found is None:
            return self.wrong(value, spot, "a text, or {expr: ...} for a name that is computed")
        node, field = spot
        self.places[node, f"{field}_from"] = (found.place, self._written(spot))
        return Computed(self.expression(found, spot))

    def version(self, value: YamlValue, spot: tuple[str, str]) -> Any:
        if isinstance(value, YamlScalar) and not isinstance(value.value, bool | None):
            return value.text
        return self.wrong(value, spot, "a text or a number")

    def flag(self, value: YamlValue, spot: tuple[str, str]) -> Any:
        if isinstance(value, YamlScalar) and isinstance(value.value, bool):
            return value.value
        return self.wrong(value, spot, "true or false")

    def whole(self, value: YamlValue, spot: tuple[str, str]) -> Any:
        if isinstance(value, YamlScalar) and type(value.value) is int:
            return value.value
        return self.wrong(value, spot, "a whole number")

    def number(self, value: YamlValue, spot: tuple[str, str]) -> Any:
        if isinstance(value, YamlScalar) and type(value.value) in {int, float}:
            return float(str(value.value))
        return self.wrong(value, spot, "a number of seconds")

    def expression(self, value: YamlValue, spot: tuple[str, str]) -> Any:
        """Text is an expression; numbers, lists and mappings become Python literals."""
        self.expressions[value.place] = value
        if isinstance(value, YamlMissing):
            return _UNKNOWN
        if isinstance(value, YamlScalar):
            return value.value if isinstance(value.value, str) else repr(value.value)
        if isinstance(value, YamlList):
            parts = [self._part(item, spot) for item in value.items]
            return f"[{', '.join(parts)}]"
        if isinstance(value, YamlMapping):
            pairs = [f"{name!r}: {self._part(item, spot)}" for name, item in value.values.items()]
            return f"{{{', '.join(pairs)}}}"
        return self.wrong(value, spot, "an expression")

    def _part(self, value: YamlValue, spot: tuple[str, str]) -> str:
        text = str(self.expression(value, spot))
        try:
            return f"({parse(text).text})" if isinstance(value, YamlScalar) else text
        except ExpressionProblem as error:
            self.report(value.place, spot, error.what, error.remedy)
            return _UNKNOWN

    def maps(self, value: YamlValue, spot: tuple[str, str]) -> Any:
        fields = self.fields(value, spot, "a mapping of names to expressions")
        if fields is None:
            return MISSING
        node, field = spot
        written = self._written(spot)
        found: Maps = {}
        for name, item in fields.values.items():
            self.places[node, f"{field}.{name}"] = (item.place, f"{written}.{name}")
            found[name] = self.expression(item, (node, f"{field}.{name}"))
        return found

    def names(self, value: YamlValue, spot: tuple[str, str]) -> Any:
        """A name, or a list of names."""
        parts = value.items if isinstance(value, YamlList) else [value]
        found = [self.text(part, spot) for part in parts]
        return MISSING if MISSING in found else tuple(found)

    def retry(self, value: YamlValue, spot: tuple[str, str]) -> Any:
        fields = self.fields(value, spot, "a mapping, such as {attempts: 3}")
        if fields is None:
            return MISSING
        node, field = spot
        wanted = {"attempts": "whole", "first": "number", "factor": "number", "ceiling": "number"}
        known = self.known(fields, node, wanted, "a retry")
        given: dict[str, Any] = {}
        for name, item in known.values.items():
            spot = node, f"{field}.{name}"
            self.places[spot] = (item.place, f"{field}.{name}")
            given[name] = self.read(wanted[name], item, spot, is_guess=name in known.guessed)
        return RetryRule(**{name: read for name, read in given.items() if read is not MISSING})
