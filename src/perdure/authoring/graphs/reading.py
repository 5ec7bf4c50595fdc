"""Values of YAML, read as what a field of a graph wants; what is not that is told with its place."""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from perdure.authoring.graphs.tree import Fields, Items, Lost, Scalar, Value
from perdure.core.errors import ExpressionProblem
from perdure.core.expressions import parse
from perdure.core.graph.model import Maps, Place, Problem, RetryRule
from perdure.core.graph.suggestions import did_you_mean, nearest

MISSING: Final = object()
"""Instead of a value that could not be read."""

_UNKNOWN: Final = "job"
"""Instead of an expression that could not be read: sound everywhere, and of any type."""


class Known(NamedTuple):
    """The fields of a mapping that have a meaning."""

    values: dict[str, Value]
    guessed: frozenset[str]
    """Fields whose name is a slip, which is told."""
    lost: set[str]
    """Fields that may be what could not be read."""


class Reader:
    """Reads values, keeps where each was, and collects what is wrong.

    `places` lead from a node and a field of the model to the place in the text, and the field's name there;
    `expressions` from the place to the value that was read as one.
    """

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        self.places: dict[tuple[str, str], tuple[Place, str]] = {}
        self.expressions: dict[Place, Value] = {}

    def tell(self, place: Place, spot: tuple[str, str], what: str, remedy: str) -> None:
        self.problems.append(Problem(spot[0], self._written(spot), what, remedy, place))

    def _written(self, spot: tuple[str, str]) -> str:
        """The field as the text calls it."""
        return self.places[spot][1] if spot in self.places else spot[1]

    def wrong(self, value: Value, spot: tuple[str, str], wanted: str) -> Any:
        self.tell(value.place, spot, f"this is {value.noun}", f"write {wanted}")
        return MISSING

    def fields(self, value: Value, spot: tuple[str, str], wanted: str) -> Fields | None:
        if isinstance(value, Fields):
            return value
        self.wrong(value, spot, wanted)
        return None

    def known(self, fields: Fields, node: str, known: Iterable[str], kind: str = "") -> Known:
        """The fields that are in `known`. The others are told; a slip is read as what it is nearest to."""
        names = tuple(known)
        whose = f" of {kind}" if kind else ""
        values = {name: value for name, value in fields.values.items() if name in names}
        guessed: set[str] = set()
        is_lost = "" in fields.lost
        for name, place in fields.keys.items():
            if name in names:
                continue
            remedy = did_you_mean(name, names, f"use {', '.join(names) or 'none'}")
            self.tell(place, (node, name), f"there is no field {name!r}{whose}", remedy)
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
        self, reads: str, value: Value, spot: tuple[str, str], *, is_guess: bool = False
    ) -> Any:
        """The value, read as the method `reads` does. If that fails, a guess was wrong, and this is not told."""
        before = len(self.problems)
        found = getattr(self, reads)(value, spot)
        if found is MISSING and is_guess:
            del self.problems[before:]
        return found

    # What fields may want: each takes the value, and the node and field that it is for.

    def text(self, value: Value, spot: tuple[str, str]) -> Any:
        if isinstance(value, Scalar) and isinstance(value.value, str):
            return value.value
        return self.wrong(value, spot, "a text")

    def version(self, value: Value, spot: tuple[str, str]) -> Any:
        if isinstance(value, Scalar) and not isinstance(value.value, bool | None):
            return value.text
        return self.wrong(value, spot, "a text or a number")

    def flag(self, value: Value, spot: tuple[str, str]) -> Any:
        if isinstance(value, Scalar) and isinstance(value.value, bool):
            return value.value
        return self.wrong(value, spot, "true or false")

    def whole(self, value: Value, spot: tuple[str, str]) -> Any:
        if isinstance(value, Scalar) and type(value.value) is int:
            return value.value
        return self.wrong(value, spot, "a whole number")

    def number(self, value: Value, spot: tuple[str, str]) -> Any:
        if isinstance(value, Scalar) and type(value.value) in {int, float}:
            return float(str(value.value))
        return self.wrong(value, spot, "a number of seconds")

    def expression(self, value: Value, spot: tuple[str, str]) -> Any:
        """Text is an expression as it is; numbers, lists and mappings are written as Python's."""
        self.expressions[value.place] = value
        if isinstance(value, Lost):
            return _UNKNOWN
        if isinstance(value, Scalar):
            return value.value if isinstance(value.value, str) else repr(value.value)
        if isinstance(value, Items):
            parts = [self._part(item, spot) for item in value.items]
            return f"[{', '.join(parts)}]"
        if isinstance(value, Fields):
            pairs = [f"{name!r}: {self._part(item, spot)}" for name, item in value.values.items()]
            return f"{{{', '.join(pairs)}}}"
        return self.wrong(value, spot, "an expression")

    def _part(self, value: Value, spot: tuple[str, str]) -> str:
        text = str(self.expression(value, spot))
        try:
            return f"({parse(text).text})" if isinstance(value, Scalar) else text
        except ExpressionProblem as error:
            self.tell(value.place, spot, error.what, error.remedy)
            return _UNKNOWN

    def maps(self, value: Value, spot: tuple[str, str]) -> Any:
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

    def names(self, value: Value, spot: tuple[str, str]) -> Any:
        """A name, or a list of names."""
        parts = value.items if isinstance(value, Items) else [value]
        found = [self.text(part, spot) for part in parts]
        return MISSING if MISSING in found else tuple(found)

    def retry(self, value: Value, spot: tuple[str, str]) -> Any:
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
