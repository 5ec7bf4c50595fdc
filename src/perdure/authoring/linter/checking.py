"""Lints a workflow when it is defined."""

import ast
import warnings
from collections.abc import Callable
from typing import Any, Literal, cast, get_args

from perdure.authoring.linter.scan import CalledFunction, LintFinding, Scan
from perdure.authoring.linter.source import definition_of, underlying_function
from perdure.authoring.linter.symbols import learn_identities
from perdure.core.errors import InputError, NotDeterministic

LintMode = Literal["error", "warn", "off"]


def lint(fn: Callable[..., Any]) -> list[LintFinding]:
    """The findings in `fn`, in the order of lines, those of its own file first.

    Covers nested functions, and all functions and methods of the user's modules that it calls or passes, directly or
    indirectly. Empty if there is no source, as in a REPL or after `exec`.
    """
    workflow = underlying_function(fn)
    if workflow is None:
        return []
    learn_identities()
    home = workflow.__code__.co_filename
    found: list[LintFinding] = []
    seen: set[ast.AST | None] = {None}
    todo: list[CalledFunction] = [(workflow, definition_of(workflow), None)]
    while todo:
        function, definition, owner = todo.pop()
        if definition not in seen and definition is not None:
            seen.add(definition)
            scan = Scan(function, owner)
            scan.enter(definition)
            found += scan.findings
            todo += scan.called
    return sorted(dict.fromkeys(found), key=lambda each: (each.file != home, each.file, each.line))


def require_deterministic(fn: Callable[..., Any], mode: LintMode) -> None:
    """Lint a workflow: raise `NotDeterministic` with all findings (`error`), warn (`warn`), or do nothing (`off`)."""
    if mode not in cast(tuple[str, ...], get_args(LintMode)):
        raise InputError(f"unknown lint mode {mode!r}", "use 'error', 'warn' or 'off'")
    workflow = None if mode == "off" else underlying_function(fn)
    findings = [] if workflow is None else lint(workflow)
    if workflow is None or not findings:
        return
    what = f"workflow {workflow.__qualname__!r} may take another path when it is replayed"
    problem = NotDeterministic(what, "\n  ".join(["change these lines", *map(str, findings)]))
    if mode == "error":
        raise problem
    code, module = workflow.__code__, workflow.__globals__
    registry = module.setdefault("__warningregistry__", {})
    place = (code.co_filename, code.co_firstlineno, workflow.__module__)
    warnings.warn_explicit(str(problem), RuntimeWarning, *place, registry, module)
