"""The judgement of a workflow, when it is defined."""

import ast
import warnings
from collections.abc import Callable
from typing import Any, Literal, cast, get_args

from perdure.authoring.linter.scan import Finding, Scan
from perdure.authoring.linter.source import definition_of, plain
from perdure.authoring.linter.things import learn_identities
from perdure.core.errors import InputError, NotDeterministic

Mode = Literal["error", "warn", "off"]


def lint(fn: Callable[..., Any]) -> list[Finding]:
    """What `fn` must not do as a workflow, in the order of lines.

    Covers functions within it, and those of its module that it calls by name, and what those call.
    Empty if there is no source to read, as in a REPL or after `exec`.
    """
    workflow = plain(fn)
    if workflow is None:
        return []
    learn_identities()
    found: list[Finding] = []
    seen: set[ast.AST | None] = {None}
    todo = [(workflow, definition_of(workflow))]
    while todo:
        function, definition = todo.pop()
        if definition not in seen and definition is not None:
            seen.add(definition)
            scan = Scan(function)
            scan.enter(definition)
            found += scan.findings
            todo += scan.called
    return sorted(dict.fromkeys(found), key=lambda finding: finding.line)


def require_deterministic(fn: Callable[..., Any], mode: Mode) -> None:
    """Refuse a workflow with findings, naming them all (`error`), warn of it, or do nothing (`off`)."""
    if mode not in cast(tuple[str, ...], get_args(Mode)):
        raise InputError(f"no such mode of the linter: {mode!r}", "use 'error', 'warn' or 'off'")
    workflow = None if mode == "off" else plain(fn)
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
