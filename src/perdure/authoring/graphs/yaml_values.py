"""Parses YAML into values with their positions.

Supports what graphs need: mappings, lists and scalars by the core schema of YAML 1.2, where `on` is an ordinary text.
Tags are refused, and no objects are created. Aliases are resolved, up to a limit on the number of values.
"""

import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from perdure.core.errors import InputError
from perdure.core.graph.model import Problem, SourceLocation

if TYPE_CHECKING:
    from ruamel.yaml.events import Event

MAX_CHARACTERS: Final = 1_000_000
MAX_VALUES: Final = 50_000
"""Values in a document. Values behind an alias count each time."""
MAX_NESTING: Final = 20
MAX_DIGITS: Final = 1_233
"""Digits of a whole number: as many as MAX_EXPRESSION_BITS hold."""

_WORDS: Final = {"": None, "~": None, "null": None, "true": True, "false": False}
_WHOLE: Final = re.compile(r"[-+]?[0-9]+")
_NUMBER: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,4})?")
_ENDLESS: Final = re.compile(r"([-+]?)\.inf|\.nan", re.IGNORECASE)


class YamlValue:
    """A value and its position. `size` counts the value itself and all values in it."""

    __slots__ = ("place", "size")

    def __init__(self, place: SourceLocation) -> None:
        self.place = place
        self.size = 1

    @property
    def noun(self) -> str:
        """Its type, for messages."""
        return "a list" if isinstance(self, YamlList) else "a mapping"


class YamlScalar(YamlValue):
    """A scalar: its text and its value. `width` is its number of columns, or -1 if it spans several lines."""

    __slots__ = ("_quote", "text", "value")

    def __init__(
        self, place: SourceLocation, text: str, *, is_plain: bool, width: int = -1
    ) -> None:
        super().__init__(place)
        self.text = text
        self.value = _resolved(text) if is_plain else text
        quote = 0 if is_plain else 1
        self._quote = quote if width == len(text) + 2 * quote else None

    def place_at(self, offset: int) -> SourceLocation:
        """The position of a character. The start of the text, if it spans lines or contains escapes."""
        if self._quote is None or not offset:
            return self.place
        column = self.place.column + self._quote + offset
        return SourceLocation(self.place.file, self.place.line, column)

    @property
    def noun(self) -> str:
        if self.value is None:
            return "nothing"
        names: dict[type, str] = {bool: "true or false", int: "a number", float: "a number"}
        return names.get(type(self.value), "a text")


class YamlMissing(YamlScalar):
    """Stands for the target of an unknown alias."""

    __slots__ = ()


class YamlList(YamlValue):
    """A list."""

    __slots__ = ("items",)

    def __init__(self, place: SourceLocation) -> None:
        super().__init__(place)
        self.items: list[YamlValue] = []


class YamlMapping(YamlValue):
    """A mapping: its values and the positions of its keys.

    `lost` holds keys with a second value, which was dropped; '' stands for entries whose key is no text.
    """

    __slots__ = ("keys", "lost", "values")

    def __init__(self, place: SourceLocation) -> None:
        super().__init__(place)
        self.values: dict[str, YamlValue] = {}
        self.keys: dict[str, SourceLocation] = {}
        self.lost: set[str] = set()

    def renamed(self, key: str, name: str) -> "YamlMapping":
        """A copy with one key renamed."""
        names = {key: name}
        found = YamlMapping(self.place)
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
    """Whether an expression can't hold the number. Then it is reported, and read as 1."""
    return len(whole.lstrip("-+")) > MAX_DIGITS


class _Unreadable(Exception):
    """The rest of the text can't be read."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.problem = problem


def documents(text: str, file: str, problems: list[Problem]) -> list[YamlValue]:
    """The documents of a text. Adds errors to `problems`.

    Stops at the first document that can't be parsed.
    """
    found: list[YamlValue] = []
    if len(text) > MAX_CHARACTERS:
        what = f"the text has {len(text):,} characters"
        problems.append(
            _problem(SourceLocation(file, 1, 1), what, f"use at most {MAX_CHARACTERS:,}")
        )
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


def _problem(place: SourceLocation, what: str, remedy: str) -> Problem:
    return Problem("", "", what, remedy, place)


def _events(text: str, file: str) -> Iterator["Event"]:
    try:
        from ruamel.yaml import YAML  # noqa: PLC0415 - an optional dependency
    except ImportError as error:
        raise InputError(
            "graphs in YAML need the package ruamel.yaml",
            "install it: pip install 'perdure[yaml]'",
        ) from error
    try:
        # "safe": the round-trip reader marks folds with a character in the text.
        yield from YAML(typ="safe", pure=True).parse(text)
    except Exception as error:  # the parser raises many types on invalid text
        raise _Unreadable(_syntax_problem(error, text, file)) from error


def _syntax_problem(error: Exception, text: str, file: str) -> Problem:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is None:
        before = text[: getattr(error, "position", 0)]
        line, column = before.count("\n"), len(before) - (before.rfind("\n") + 1)
    else:
        line, column = mark.line, mark.column
    place = SourceLocation(file, line + 1, column + 1)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None)
    reason = " ".join(str(problem or type(error).__name__).split())
    return _problem(
        place,
        f"this is not valid YAML ({reason})",
        "look for a missing quote, bracket or indentation",
    )


class _Composer:
    """Builds values from parser events. Keeps open collections on a stack instead of recursing."""

    def __init__(self, file: str, problems: list[Problem]) -> None:
        self._file = file
        self._problems = problems
        self._begin()

    def _begin(self) -> None:
        self._stack: list[tuple[YamlList | YamlMapping, str | None]] = []
        self._key: list[tuple[str | None, SourceLocation] | None] = []
        self._anchors: dict[str, YamlValue] = {}
        self._count = 0
        self._root: YamlValue | None = None

    def take(self, event: Any) -> YamlValue | None:
        """Process one event. Returns the document if it ends with this event."""
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
            self._open(event, YamlList if name[0] == "S" else YamlMapping)
        elif name in {"SequenceEndEvent", "MappingEndEvent"}:
            self._close()
        return None

    def _scalar(self, event: Any) -> YamlScalar:
        start, end = event.start_mark, event.end_mark
        width = end.column - start.column if end.line == start.line else -1
        return YamlScalar(
            self._place(event), event.value, is_plain=event.style is None, width=width
        )

    def _place(self, event: Any) -> SourceLocation:
        mark = event.start_mark
        return SourceLocation(self._file, mark.line + 1, mark.column + 1)

    def _refuse_tag(self, event: Any) -> None:
        if event.tag is not None:
            self._problems.append(
                _problem(self._place(event), f"the tag {event.tag} is not supported", "remove it")
            )

    def _refuse_long(self, event: Any) -> None:
        if event.style is None and _WHOLE.fullmatch(event.value) and _is_too_long(event.value):
            what = f"the number has {len(event.value.lstrip('-+')):,} digits"
            remedy = f"use at most {MAX_DIGITS:,}"
            self._problems.append(_problem(self._place(event), what, remedy))

    def _aliased(self, event: Any) -> YamlValue:
        value = self._anchors.get(event.anchor)
        if value is None:
            what = f"there is nothing that &{event.anchor} names before"
            self._problems.append(_problem(self._place(event), what, "write it out"))
            return YamlMissing(self._place(event), "", is_plain=True)
        return value

    def _open(self, event: Any, kind: type[YamlList] | type[YamlMapping]) -> None:
        place = self._place(event)
        if len(self._stack) >= MAX_NESTING:
            what = f"this is nested more than {MAX_NESTING} levels deep"
            raise _Unreadable(_problem(place, what, "nest it less deeply"))
        self._stack.append((kind(place), event.anchor))
        self._key.append(None)

    def _close(self) -> None:
        value, anchor = self._stack.pop()
        self._key.pop()
        self._add(value, anchor)

    def _add(self, value: YamlValue, anchor: str | None, count: int = 1) -> None:
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
        if isinstance(parent, YamlList):
            parent.items.append(value)
            parent.size += value.size
        else:
            self._add_field(parent, value)

    def _add_field(self, parent: YamlMapping, value: YamlValue) -> None:
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
            what = f"{name!r} is defined twice, first in line {first.line}"
            self._problems.append(_problem(place, what, "remove one, or rename it"))
            parent.lost.add(name)
            return
        parent.values[name] = value
        parent.keys[name] = place
        parent.size += value.size

    def _text_of_key(self, value: YamlValue) -> str | None:
        if isinstance(value, YamlScalar) and value.value is not None:
            return value.text
        self._problems.append(
            _problem(value.place, f"{value.noun} is no key", "use a word as the key")
        )
        return None
