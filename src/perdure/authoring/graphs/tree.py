"""YAML as values that know where they are written.

Only what graphs need is read: mappings, lists and scalars, by the core schema of YAML 1.2, in which `on` is a text like
any other. No tag is obeyed and no object is made. Aliases stand for what they name, up to a bound on all values.
"""

import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from perdure.core.errors import InputError
from perdure.core.graph.model import Place, Problem

if TYPE_CHECKING:
    from ruamel.yaml.events import Event

MAX_CHARACTERS: Final = 1_000_000
MAX_VALUES: Final = 50_000
"""Values in a document, those counted again that aliases stand for."""
MAX_NESTING: Final = 20
MAX_DIGITS: Final = 1_233
"""Of a whole number: as many as MAX_EXPRESSION_BITS hold."""

_WORDS: Final = {"": None, "~": None, "null": None, "true": True, "false": False}
_WHOLE: Final = re.compile(r"[-+]?[0-9]+")
_NUMBER: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,4})?")
_ENDLESS: Final = re.compile(r"([-+]?)\.inf|\.nan", re.IGNORECASE)


class Value:
    """Something that is written somewhere. `size` counts the values in it, and itself."""

    __slots__ = ("place", "size")

    def __init__(self, place: Place) -> None:
        self.place = place
        self.size = 1

    @property
    def noun(self) -> str:
        """What it is, for people."""
        return "a list" if isinstance(self, Items) else "a mapping"


class Scalar(Value):
    """A text, and the value that it stands for. `width` is how many columns it takes, if it is on one line."""

    __slots__ = ("_quote", "text", "value")

    def __init__(self, place: Place, text: str, *, is_plain: bool, width: int = -1) -> None:
        super().__init__(place)
        self.text = text
        self.value = _resolved(text) if is_plain else text
        quote = 0 if is_plain else 1
        self._quote = quote if width == len(text) + 2 * quote else None

    def place_at(self, offset: int) -> Place:
        """Where a character of the text is: its beginning, if the text is not written as it is on one line."""
        if self._quote is None or not offset:
            return self.place
        column = self.place.column + self._quote + offset
        return Place(self.place.file, self.place.line, column)

    @property
    def noun(self) -> str:
        if self.value is None:
            return "nothing"
        names: dict[type, str] = {bool: "true or false", int: "a number", float: "a number"}
        return names.get(type(self.value), "a text")


class Lost(Scalar):
    """Nothing, instead of what an alias should stand for."""

    __slots__ = ()


class Items(Value):
    """A list."""

    __slots__ = ("items",)

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.items: list[Value] = []


class Fields(Value):
    """A mapping: the values by key, and where the keys are.

    `lost` are the keys whose value was left out, because they are there twice; '' for those that are none.
    """

    __slots__ = ("keys", "lost", "values")

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.values: dict[str, Value] = {}
        self.keys: dict[str, Place] = {}
        self.lost: set[str] = set()

    def renamed(self, key: str, name: str) -> "Fields":
        """The same with another name for a key."""
        names = {key: name}
        found = Fields(self.place)
        found.values = {names.get(each, each): value for each, value in self.values.items()}
        found.keys = {names.get(each, each): place for each, place in self.keys.items()}
        found.lost = {names.get(each, each) for each in self.lost}
        return found


def _resolved(text: str) -> str | int | float | bool | None:
    lowered = text.lower() if text in {text.lower(), text.upper(), text.capitalize()} else text
    if lowered in _WORDS:
        return _WORDS[lowered]
    if _WHOLE.fullmatch(text):
        return 1 if _is_too_long(text) else int(text)
    if _NUMBER.fullmatch(text):
        return float(text)
    if _ENDLESS.fullmatch(text):
        return float(text.replace(".", "")) if "inf" in text.lower() else math.nan
    return text


def _is_too_long(whole: str) -> bool:
    """Whether a number is more than expressions hold. It is told, and another one stands in for it."""
    return len(whole.lstrip("-+")) > MAX_DIGITS


class _Unreadable(Exception):
    """The rest of the text can't be read."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.problem = problem


def documents(text: str, file: str, problems: list[Problem]) -> list[Value]:
    """The documents of a text, each as one value. What is wrong is added to `problems`.

    A document that can't be read ends the list.
    """
    found: list[Value] = []
    if len(text) > MAX_CHARACTERS:
        what = f"the text has {len(text):,} characters"
        problems.append(_problem(Place(file, 1, 1), what, f"use at most {MAX_CHARACTERS:,}"))
        return found
    composer = _Composer(file, problems)
    try:
        for event in _events(text, file):
            document = composer.take(event)
            if document is not None:
                found.append(document)
    except _Unreadable as error:
        problems.append(error.problem)
    return found


def _problem(place: Place, what: str, remedy: str) -> Problem:
    return Problem("", "", what, remedy, place)


def _events(text: str, file: str) -> Iterator["Event"]:
    try:
        from ruamel.yaml import YAML  # noqa: PLC0415 - an extra: only who reads YAML needs it
    except ImportError as error:
        raise InputError(
            "graphs in YAML need the package ruamel.yaml",
            "install it: pip install 'perdure[yaml]'",
        ) from error
    try:
        # "safe": the other reader marks where a text is folded, with a character in the text itself.
        yield from YAML(typ="safe", pure=True).parse(text)
    except Exception as error:  # the parser fails in many ways on texts that are no YAML
        raise _Unreadable(_syntax_problem(error, text, file)) from error


def _syntax_problem(error: Exception, text: str, file: str) -> Problem:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is None:
        before = text[: getattr(error, "position", 0)]
        line, column = before.count("\n"), len(before) - (before.rfind("\n") + 1)
    else:
        line, column = mark.line, mark.column
    place = Place(file, line + 1, column + 1)
    told = getattr(error, "problem", None) or getattr(error, "reason", None)
    reason = " ".join(str(told or type(error).__name__).split())
    return _problem(
        place, f"this is no YAML ({reason})", "look for a missing quote, bracket or indentation"
    )


class _Composer:
    """Makes values of events. Open collections are a stack: nesting costs no recursion."""

    def __init__(self, file: str, problems: list[Problem]) -> None:
        self._file = file
        self._problems = problems
        self._begin()

    def _begin(self) -> None:
        self._stack: list[tuple[Items | Fields, str | None]] = []
        self._key: list[tuple[str | None, Place] | None] = []
        self._anchors: dict[str, Value] = {}
        self._count = 0
        self._root: Value | None = None

    def take(self, event: Any) -> Value | None:
        """The document, if it ends with this event."""
        name = type(event).__name__
        if name == "DocumentStartEvent":
            self._begin()
        elif name == "DocumentEndEvent":
            return self._root
        elif name == "AliasEvent":
            value = self._aliased(event)
            self._add(value, None, value.size)
        elif name == "ScalarEvent":
            self._refuse_tag(event)
            self._refuse_long(event)
            self._add(self._scalar(event), event.anchor)
        elif name in {"SequenceStartEvent", "MappingStartEvent"}:
            self._refuse_tag(event)
            self._open(event, Items if name[0] == "S" else Fields)
        elif name in {"SequenceEndEvent", "MappingEndEvent"}:
            self._close()
        return None

    def _scalar(self, event: Any) -> Scalar:
        start, end = event.start_mark, event.end_mark
        width = end.column - start.column if end.line == start.line else -1
        return Scalar(self._place(event), event.value, is_plain=event.style is None, width=width)

    def _place(self, event: Any) -> Place:
        mark = event.start_mark
        return Place(self._file, mark.line + 1, mark.column + 1)

    def _refuse_tag(self, event: Any) -> None:
        if event.tag is not None:
            self._problems.append(
                _problem(self._place(event), f"the tag {event.tag} is not obeyed", "remove it")
            )

    def _refuse_long(self, event: Any) -> None:
        if event.style is None and _WHOLE.fullmatch(event.value) and _is_too_long(event.value):
            what = f"the number has {len(event.value.lstrip('-+')):,} digits"
            remedy = f"use at most {MAX_DIGITS:,}"
            self._problems.append(_problem(self._place(event), what, remedy))

    def _aliased(self, event: Any) -> Value:
        value = self._anchors.get(event.anchor)
        if value is None:
            what = f"there is nothing that &{event.anchor} names before"
            self._problems.append(_problem(self._place(event), what, "write it out"))
            return Lost(self._place(event), "", is_plain=True)
        return value

    def _open(self, event: Any, kind: type[Items] | type[Fields]) -> None:
        place = self._place(event)
        if len(self._stack) >= MAX_NESTING:
            what = f"this is nested more than {MAX_NESTING} levels deep"
            raise _Unreadable(_problem(place, what, "write it flatter"))
        self._stack.append((kind(place), event.anchor))
        self._key.append(None)

    def _close(self) -> None:
        value, anchor = self._stack.pop()
        self._key.pop()
        self._add(value, anchor)

    def _add(self, value: Value, anchor: str | None, count: int = 1) -> None:
        self._count += count
        if self._count > MAX_VALUES:
            what = f"there are more than {MAX_VALUES:,} values, those counted that aliases repeat"
            raise _Unreadable(_problem(value.place, what, "write less"))
        if anchor is not None:
            self._anchors[anchor] = value
        if not self._stack:
            self._root = value
            return
        parent = self._stack[-1][0]
        if isinstance(parent, Items):
            parent.items.append(value)
            parent.size += value.size
        else:
            self._add_field(parent, value)

    def _add_field(self, parent: Fields, value: Value) -> None:
        key = self._key[-1]
        if key is None:
            self._key[-1] = (self._text_of_key(value), value.place)
            return
        self._key[-1] = None
        name, place = key
        if name is None:
            parent.lost.add("")
            return
        if name in parent.values:
            first = parent.keys[name]
            what = f"{name!r} is there twice, first in line {first.line}"
            self._problems.append(_problem(place, what, "remove one, or rename it"))
            parent.lost.add(name)
            return
        parent.values[name] = value
        parent.keys[name] = place
        parent.size += value.size

    def _text_of_key(self, value: Value) -> str | None:
        if isinstance(value, Scalar) and value.value is not None:
            return value.text
        self._problems.append(
            _problem(value.place, f"{value.noun} is no key", "use a word as the key")
        )
        return None
