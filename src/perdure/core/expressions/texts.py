"""Values as text: `str`, `repr` and f-strings, within bounds and the same on every machine."""

import re
from collections.abc import Callable
from typing import Any

from perdure.core.errors import EvaluationError
from perdure.core.expressions.budget import Evaluation, too_costly
from perdure.core.expressions.plain import measure, require_plain
from perdure.core.limits import MAX_EXPRESSION_TEXT, MAX_FORMAT_WIDTH

_NUMBER = re.compile(r"\d+")


def text_form(work: Evaluation, value: Any) -> str:
    return value if type(value) is str else _spelled(work, value, str)


def representation(work: Evaluation, value: Any) -> str:
    return _spelled(work, value, repr)


def ascii_representation(work: Evaluation, value: Any) -> str:
    return _spelled(work, value, ascii)


def _spelled(work: Evaluation, value: Any, spell: Callable[[Any], str]) -> str:
    size = measure(value, MAX_EXPRESSION_TEXT + 2, strict=True)
    work.require_text(size - 2)
    work.spend(size >> 2)
    text = spell(value)
    work.require_text(len(text))
    return text


def formatted(work: Evaluation, value: Any, spec: str) -> str:
    """A value in an f-string, formatted by `spec`, the text after the colon."""
    if not spec:
        return text_form(work, value)
    if len(spec) > MAX_FORMAT_WIDTH or any(
        len(number) > 9 or int(number) > MAX_FORMAT_WIDTH for number in _NUMBER.findall(spec)
    ):
        too_costly(
            f"the format {spec[:40]!r} is wider than {MAX_FORMAT_WIDTH:,} characters",
        )
    if spec.endswith("n"):
        raise EvaluationError(
            f"the format {spec!r} depends on the language of the machine", "use `,` or `_` instead"
        )
    require_plain(value)
    text = format(value, spec)
    work.require_text(len(text))
    return text
