"""Options of nodes: which go together, and which values they may have."""

import math
from collections.abc import Callable, Iterator
from typing import Any, Final

from perdure.core.graph import model as m
from perdure.core.graph.fields import waits_for_signal
from perdure.core.graph.model import Problem
from perdure.core.graph.rules.errors import name_faults
from perdure.core.graph.survey import Survey
from perdure.core.limits import MAX_ATTEMPTS
from perdure.core.syntax import literal_value

_CODES: Final = range(100, 1000)
_ERROR_CODES: Final = range(400, 600)
_TOGETHER: Final = frozenset(("topic", "all", "scrub", "error"))
"""Fields whose problems may come from other, unreadable fields."""


def problems(survey: Survey) -> Iterator[Problem]:
    threshold: object = survey.graph.threshold
    if isinstance(threshold, bool) or not isinstance(threshold, int) or threshold < 0:
        what = f"{threshold!r} is no number of open obligations"
        yield Problem("", "threshold", what, "use a whole number, 0 or more")
    for node in survey.nodes.values():
        judge = _JUDGES.get(type(node))
        if judge is not None:
            is_whole = node.name not in survey.gaps.partial
            for field, what, remedy in judge(node):
                if is_whole or field not in _TOGETHER:
                    yield Problem(node.name, field, what, remedy)


OptionProblem = tuple[str, str, str]
"""Field, problem and remedy."""


def _worker(node: m.WorkerNode) -> Iterator[OptionProblem]:
    if node.timeout is not None:
        yield from _seconds("timeout", node.timeout)
    if node.retry is not None:
        yield from _retry(node.retry)
    if node.on_failure not in (None, "fail", "park"):
        yield "on_failure", f"{node.on_failure!r}", "use 'fail' or 'park'"


def _await(node: m.AwaitNode) -> Iterator[OptionProblem]:
    if node.retry is None:
        return
    if not node.wait:
        yield (
            "retry",
            "the run is not waited for, so nothing is known of its failures",
            "remove `retry`, or `wait: false`",
        )
    yield from _retry(node.retry)


def _retry(retry: m.RetryRule) -> Iterator[OptionProblem]:
    if not 1 <= retry.attempts <= MAX_ATTEMPTS:
        yield "retry.attempts", f"{retry.attempts} attempts", f"use 1 to {MAX_ATTEMPTS}"
    yield from _seconds("retry.first", retry.first)
    yield from _seconds("retry.ceiling", retry.ceiling)
    if not (math.isfinite(retry.factor) and retry.factor >= 1):
        yield "retry.factor", f"a factor of {retry.factor}", "use 1 or more"


def _seconds(field: str, seconds: float) -> Iterator[OptionProblem]:
    if not (math.isfinite(seconds) and seconds > 0):
        yield field, f"{seconds} seconds", "use a finite number above 0"


def _hook(node: m.HookNode) -> Iterator[OptionProblem]:
    if node.cycle:
        for field in ("sleep", "topic", "topic_from", "pending"):
            if getattr(node, field):
                yield (
                    field,
                    "a hook that is cycled back to waits for nothing",
                    "remove it, or wait in a hook of its own behind this one",
                )
    if not waits_for_signal(node):
        for field in ("key", "pending"):
            if getattr(node, field):
                yield (
                    field,
                    "the hook waits for no signal",
                    "name the signal's topic, or remove it",
                )
    if node.sleep is not None:
        yield from _literal_seconds("sleep", node.sleep)


def _literal_seconds(field: str, text: str) -> Iterator[OptionProblem]:
    try:
        value = literal_value(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return  # no literal, or no expression: other rules report that
    if isinstance(value, bool) or not isinstance(value, int | float):
        yield field, f"{text} is not a number of seconds", "use an expression for a number"
    elif not (math.isfinite(value) and value >= 0):
        yield field, f"{text} seconds", "use a finite number, 0 or more"


def _signal(node: m.SignalNode) -> Iterator[OptionProblem]:
    ways = [name for name in ("key", "run") if getattr(node, name) is not None]
    if node.all is not None and node.key is None:
        yield (
            "all",
            "says by which search key runs are found, and no value to find",
            "set `key` to an expression for that value",
        )
    elif not ways:
        yield (
            "topic",
            "the signal has no recipient",
            "set `key`, or `run`, or `all` and `key`",
        )
    if len(ways) == 2 or (node.run is not None and node.all is not None):
        yield (
            "run",
            "the signal goes to one run, and elsewhere too",
            "set `run` alone, or `key`, or `all` and `key`",
        )
    if node.scrub and node.all is None:
        yield (
            "scrub",
            "only an index that runs were found by is scrubbed",
            "set `all`, or remove `scrub`",
        )
    yield from _code(node.code)


def _interrupt(node: m.InterruptNode) -> Iterator[OptionProblem]:
    if node.code not in _ERROR_CODES:
        remedy = f"use {_ERROR_CODES[0]} to {_ERROR_CODES[-1]}"
        yield "code", f"{node.code} is no code of an error", remedy


def _code(code: int) -> Iterator[OptionProblem]:
    if code not in _CODES:
        yield "code", f"{code} is no code", f"use {_CODES[0]} to {_CODES[-1]}"


def _raise(node: m.RaiseNode) -> Iterator[OptionProblem]:
    if bool(node.error) == (node.again is not None):
        yield (
            "error",
            "it is not clear what is raised",
            "name the error, or set `again` to the variable of one that was caught",
        )
    for field, names in (("error", (node.error,) if node.error else ()), ("bases", node.bases)):
        for what, remedy in name_faults(names):
            yield field, what, remedy


_JUDGES: Final[dict[type[m.Node], Callable[[Any], Iterator[OptionProblem]]]] = {
    m.WorkerNode: _worker,
    m.AwaitNode: _await,
    m.HookNode: _hook,
    m.SignalNode: _signal,
    m.InterruptNode: _interrupt,
    m.RaiseNode: _raise,
}
