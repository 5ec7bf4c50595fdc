"""Measures how deep a text nests, by its tokens alone, before Python's parser gets it.

The parser and the compiler of syntax trees are recursive, in C. A text of some thousand brackets, dots or minus signs
may exhaust the stack of a thread before any check of the tree.
"""

import re

from perdure.core.errors import ExpressionProblem
from perdure.core.limits import MAX_EXPRESSION_DEPTH

_MOST = 3 * MAX_EXPRESSION_DEPTH
"""A level of the tree is written with up to three nesting tokens; the tree itself is measured later."""

_TOKEN = re.compile(
    r"""(?P<prefix>(?:[fF][rR]?|[rR][fFbB]?|[bB][rR]?|[uU])?)(?P<quote>'''|\"""|'|")
    |(?P<word>\w+)
    |(?P<comment>\#[^\n]*)
    |(?P<mark>\*\*|//|[<>!=:]=|\S)
    |\s+""",
    re.VERBOSE,
)

_BODIES = {
    quote: re.compile(rf"((?:[^\\]|\\.)*?){quote}", re.DOTALL) for quote in ("'''", '"""', "'", '"')
}

_BRACE = re.compile("[{}]")

_SEPARATORS = frozenset({",", ":", "and", "or"})
_LINKS = frozenset({"."})
_OPENING = frozenset("([{")
_CLOSING = frozenset(")]}")


def require_shallow(text: str) -> None:
    """Refuse a text that nests too deep for the parser."""
    if _depth(text) > _MOST:
        raise ExpressionProblem(
            "the expression nests too deep", "write it in several steps, or in a task", 1, 0
        )


class _Levels:
    """The open brackets, and in each the operators and links above the next token."""

    def __init__(self) -> None:
        self._outer: list[tuple[int, int]] = []
        self._around = 0
        self._operators = 0
        self._links = 0
        self._forks = 0

    @property
    def depth(self) -> int:
        return self._around + self._operators + self._links + self._forks

    def take(self, token: str) -> None:
        if token in _OPENING:
            self._links += 1
            self._outer.append((self._operators, self._links))
            self._around += self._operators + self._links
            self._operators = self._links = 0
        elif token in _CLOSING:
            if self._outer:
                self._operators, self._links = self._outer.pop()
                self._around -= self._operators + self._links
        elif token in _LINKS:
            self._links += 1
        elif token in _SEPARATORS:
            self._operators = self._links = 0
        elif token in {"if", "lambda"}:
            self._forks += 1
        elif token in {"not", "await"} or not token[0].isalnum():
            self._operators += 1
            self._links = 0


def _depth(code: str) -> int:
    """An upper bound for the depth of the tree that `code` is parsed to, valid or not."""
    levels = _Levels()
    deepest = place = 0
    while place < len(code):
        token = _TOKEN.match(code, place)
        if token is None:
            return deepest  # no token of Python: the parser refuses the text here at the latest
        place = token.end()
        if token["quote"]:
            string = _BODIES[token["quote"]].match(code, place)
            if string is None:
                return deepest  # the same: an unterminated string
            place = string.end()
            if "f" in token["prefix"].lower():
                inside = max((_depth(field) for field in _fields(string[1])), default=0)
                deepest = max(deepest, levels.depth + inside + 1)
        elif token["word"] or token["mark"]:
            levels.take(token["word"] or token["mark"])
            deepest = max(deepest, levels.depth)
        if deepest > _MOST:
            return deepest
    return deepest


def _fields(body: str) -> list[str]:
    """The code in the fields of an f-string, and in the fields of their formats."""
    found: list[str] = []
    place = 0
    while (place := body.find("{", place)) >= 0:
        if body.startswith("{{", place):
            place += 2
        else:
            place = _read_field(body, place + 1, found, outermost=True)
    return found


def _read_field(body: str, start: int, found: list[str], *, outermost: bool) -> int:
    """Add the code of the field that begins at `start` to `found`; returns the position after the field."""
    place = start
    level = 0
    while token := _TOKEN.match(body, place):
        mark = token["mark"]
        place = token.end()
        if token["quote"]:
            string = _BODIES[token["quote"]].match(body, place)
            place = string.end() if string else len(body)
        elif mark in _OPENING:
            level += 1
        elif level and mark in _CLOSING:
            level -= 1
        elif mark == "}" or (not level and mark in {":", ":="}):
            found.append(_without_backslash(body[start : token.start()]))
            if mark == "}":
                return place
            return _read_format(body, token.start() + 1, found, outermost=outermost)
    raise _not_closed()


def _read_format(body: str, place: int, found: list[str], *, outermost: bool) -> int:
    """Add the fields of the format that begins at `place` to `found`; returns the position after its field."""
    while brace := _BRACE.search(body, place):
        place = brace.end()
        if brace[0] == "}":
            return place
        if not outermost:
            raise ExpressionProblem(
                "the formats of an f-string nest too deep", "give the inner one a constant", 1, 0
            )
        place = _read_field(body, place, found, outermost=False)
    raise _not_closed()


def _without_backslash(code: str) -> str:
    if "\\" in code:
        raise ExpressionProblem(
            "there is a backslash in a field of an f-string, which not every Python can read",
            "join texts with `+` instead",
            1,
            0,
        )
    return code


def _not_closed() -> ExpressionProblem:
    return ExpressionProblem(
        "a field of an f-string is not closed",
        "write `}` behind it; inside of it, use the other kind of quotes",
        1,
        0,
    )
