"""The public API: every name that a package exports, with its signature and its docstring."""

import ast
import enum
import inspect
from collections.abc import Iterator, Mapping, Sequence
from types import FunctionType, ModuleType

import perdure
import perdure.operations
import perdure.testing
from tools.reference.layout import code, page, quoted, table
from tools.reference.source import (
    Function,
    attributes,
    class_of,
    forms_of,
    signature,
    text_of,
    written,
)

GROUPS: Mapping[str, Sequence[str]] = {
    "Engines": (
        "Engine",
        "SyncEngine",
        "run",
        "Settings",
        "WarmMemory",
        "Preflight",
        "audit",
        "verify",
    ),
    "Handles": ("Handle", "SyncHandle", "RunStatus", "Chunk", "ChunkState", "Abandoned"),
    "History and views": (
        *("ContractEvent", "EventType", "EngineRunRef", "RunSnapshot", "SnapshotStatus"),
        *("StepSnapshot", "StepStatus", "ApplicationError", "RootCause", "ArtifactRef"),
        *("SequenceGap", "SnapshotProjector", "LedgerAccount", "Alert", "AlertCode"),
    ),
    "Tasks and workflows": (
        *("task", "Task", "workflow", "Workflow", "Call", "ProgramCall", "Retry", "Signal"),
        "upcaster",
    ),
    "Verbs": (
        *("sleep", "now", "random", "uuid4", "gather", "first", "join_set", "JoinSet", "shield"),
        *("start", "ChildRun", "continue_as_new", "patched", "publish", "stream", "Stream"),
        *("info", "Info", "log", "key", "heartbeat", "Cancelled"),
    ),
    "Graphs": (
        *("graph", "inline", "load_graph", "GraphBuilder", "GraphProgram", "Response"),
        *("GraphVersion", "DeploymentState"),
    ),
    "Transactions": ("Transaction", "SyncTransaction"),
    "What a run waits for": (
        *("Description", "Waits", "TaskWait", "TaskState", "RetryWait", "TimerWait", "SignalWait"),
        *("HookWait", "AnswerWait", "ChildWait", "JoinWait", "Explanation", "Cause", "CauseKind"),
    ),
}

# Objects that a decorator or a call makes: users hold them, and need these members only.
SHOWN: Mapping[str, frozenset[str]] = {
    "Call": frozenset(),
    "GraphProgram": frozenset(),
    "ProgramCall": frozenset(),
    "Signal": frozenset({"receive"}),
    "Task": frozenset(),
    "Workflow": frozenset(),
}

# What an engine or a verb gives out. Users never make one, so its constructor is internal.
GIVEN = {"Handle", "SyncHandle", "ChildRun", "JoinSet", "Stream", "SyncTransaction", "Clock"}


def api_page() -> str:
    lead = (
        "Everything that `import perdure` offers. Other modules are internal, save for"
        " [`perdure.operations`](api-operations.md) and [`perdure.testing`](api-testing.md)."
        " Exceptions are on [their own page](errors.md)."
    )
    return page("Python API", lead, _grouped(perdure, GROUPS))


def operations_page() -> str:
    lead = (
        "Everything that `perdure.operations` exports; [operations](../how-to/operations.md)"
        " explains how to use it. Exceptions are on [their own page](errors.md)."
    )
    return page("Python API: perdure.operations", lead, _grouped(perdure.operations, {}))


def testing_page() -> str:
    lead = (
        "Everything that `perdure.testing` exports; [testing](../how-to/testing.md) explains how"
        " to use it."
    )
    return page("Python API: perdure.testing", lead, _grouped(perdure.testing, {}))


def _grouped(module: ModuleType, groups: Mapping[str, Sequence[str]]) -> Iterator[str]:
    names = [name for name in module.__all__ if not _is_error(getattr(module, name))]
    for title, group in groups.items():
        yield f"## {title}"
        for name in group:
            yield from _described(name, getattr(module, name))
    known = {name for group in groups.values() for name in group}
    others = [name for name in names if name not in known]
    if others:
        yield "## Other names" if groups else "## Names"
        for name in others:
            yield from _described(name, getattr(module, name))


def _is_error(thing: object) -> bool:
    return isinstance(thing, type) and issubclass(thing, Exception)


def _described(name: str, thing: object) -> Iterator[str]:
    yield f"### `{name}`"
    if isinstance(thing, type) and issubclass(thing, enum.Enum):
        yield text_of(class_of(thing))
        yield table(["member", "value"], [(f"`{m.name}`", f"`{m.value!r}`") for m in thing])
    elif isinstance(thing, type):
        yield from _class(name, thing)
    elif isinstance(thing, FunctionType):
        yield from _function(name, thing)
    else:
        yield inspect.cleandoc(type(thing).__doc__ or "")


def _function(name: str, thing: FunctionType) -> Iterator[str]:
    *overloads, whole = forms_of(inspect.unwrap(thing))
    yield code("\n".join(signature(form, name) for form in overloads or [whole]))
    yield text_of(whole)


def _class(name: str, kind: type) -> Iterator[str]:
    nodes = [class_of(each) for each in kind.__mro__ if each.__module__.startswith("perdure")]
    made = _constructor(name, nodes)
    if made:
        yield code(made)
    yield text_of(nodes[0])
    wanted = SHOWN.get(name)
    fields = [each for node in nodes for each in attributes(node.body) if not _is_hidden(each.type)]
    fields = [each for each in fields if wanted is None or each.name in wanted]
    if fields:
        rows = [(quoted(f.name), quoted(f.type), quoted(f.default), f.text) for f in fields]
        yield table(["attribute", "type", "default", "meaning"], rows)
    seen: set[str] = set()
    for node in nodes:
        yield from _members(name, node, wanted, seen)


def _is_hidden(kind: str) -> bool:
    """What describes the class and not its objects."""
    return kind.startswith("ClassVar") or not kind


def _constructor(name: str, nodes: Sequence[ast.ClassDef]) -> str:
    if name in GIVEN or (name in SHOWN and name != "Signal"):
        return ""
    for node in nodes:
        for each in node.body:
            if isinstance(each, Function) and each.name == "__init__":
                return (
                    signature(each, name, drop_first=True)
                    .replace("def ", "", 1)
                    .removesuffix(" -> None")
                )
    return ""


def _members(
    owner: str, node: ast.ClassDef, wanted: frozenset[str] | None, seen: set[str]
) -> Iterator[str]:
    overloaded: dict[str, list[Function]] = {}
    for each in node.body:
        if not isinstance(each, Function) or each.name.startswith("_") or each.name in seen:
            continue
        if wanted is not None and each.name not in wanted:
            continue
        marks = {ast.unparse(mark) for mark in each.decorator_list}
        if marks & {f"{each.name}.setter", f"{each.name}.deleter"}:
            continue
        if "overload" in marks:
            overloaded.setdefault(each.name, []).append(each)
            continue
        yield f"#### `{owner}.{each.name}`"
        yield _member(each, marks, overloaded.get(each.name, []))
        if text_of(each):
            yield text_of(each)
    seen |= {each.name for each in node.body if isinstance(each, Function)}


def _member(node: Function, marks: set[str], forms: Sequence[Function]) -> str:
    if "property" in marks:
        kind = "" if node.returns is None else f": {written(node.returns)}"
        return code(f"{node.name}{kind}  # property")
    if any("contextmanager" in mark for mark in marks):
        head = "async with" if isinstance(node, ast.AsyncFunctionDef) else "with"
        shown = signature(node, node.name, drop_first=True)
        return code(f"{shown}  # used as `{head} ...`")
    whole = list(forms) or [node]
    is_static = "staticmethod" in marks
    return code("\n".join(signature(each, each.name, drop_first=not is_static) for each in whole))
