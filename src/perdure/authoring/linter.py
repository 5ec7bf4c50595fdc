"""Finds what a workflow must not do: read a clock, draw randomness, do I/O, start threads, use asyncio.

A workflow is replayed, so the same code must take the same path each time. The source is read as a
tree, and every name in it is looked up where Python would look it up: in the function's own scopes,
its closure, its globals, the builtins. So `from time import time as t` is found, and a function of the
user's own that is called `time` is not. What can't be looked up is given the benefit of the doubt: the
journal's own check finds at run time what slips through here.

Nothing is imported, and no attribute of the user's objects is evaluated. A workflow is judged when it
is decorated, so its module may be half loaded: a function that stands below it is found in the source.
"""

import ast
import builtins
import inspect
import linecache
import os.path
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import BuiltinMethodType, FunctionType, MethodType, ModuleType
from typing import Any, Literal, NamedTuple, TypeAlias, cast, get_args

from perdure.core.errors import InputError, NotDeterministic
from perdure.core.syntax import parse_module

Mode = Literal["error", "warn", "off"]

NOW = "perdure.now()"
SLEEP = "await perdure.sleep(...)"
RANDOM = "perdure.random()"
UUID = "perdure.uuid4()"
TOGETHER = "perdure.gather, perdure.first or perdure.join_set"
DEADLINE = "a timeout= option, or perdure.first with perdure.sleep"
TASK = "a @task"
ARGUMENT = "an argument, or a @task that reads it"

_CALLS: tuple[tuple[str, str, str], ...] = (
    (NOW, "time", "time monotonic perf_counter process_time thread_time"),
    (NOW, "time", "time_ns monotonic_ns perf_counter_ns process_time_ns thread_time_ns"),
    (NOW, "time", "clock_gettime clock_gettime_ns localtime gmtime ctime asctime strftime"),
    (NOW, "datetime.datetime", "now utcnow today"),
    (NOW, "datetime.date", "today"),
    (SLEEP, "time", "sleep"),
    (SLEEP, "asyncio", "sleep"),
    (RANDOM, "os", "urandom getrandom"),
    (UUID, "uuid", "uuid1 uuid4 uuid6 uuid7 uuid8"),
    (TOGETHER, "asyncio", "gather wait as_completed TaskGroup create_task ensure_future shield"),
    (DEADLINE, "asyncio", "wait_for timeout timeout_at"),
    (TASK, "asyncio", "to_thread run Runner get_running_loop get_event_loop new_event_loop"),
    (TASK, "asyncio", "run_coroutine_threadsafe create_subprocess_exec create_subprocess_shell"),
    (TASK, "asyncio", "open_connection start_server open_unix_connection start_unix_server"),
    (TASK, "threading", "Lock RLock"),
    (TASK, "builtins", "open input"),
    (TASK, "io", "open open_code FileIO"),
    (TASK, "os", "open read write close system popen fork forkpty execv execve spawnl spawnv kill"),
    (TASK, "os", "listdir scandir walk stat lstat access mkdir makedirs remove unlink rmdir"),
    (TASK, "os", "rename renames replace link symlink readlink truncate chmod getcwd getpid"),
    (TASK, "os.path", "exists lexists isfile isdir islink getsize getmtime getctime getatime"),
    (ARGUMENT, "os", "getenv getenvb putenv unsetenv"),
)
"""Verb, module or class, and what of it is not allowed."""

_MODULES: tuple[tuple[str, str], ...] = (
    (RANDOM, "random secrets numpy.random"),
    (TASK, "threading _thread multiprocessing concurrent.futures subprocess queue"),
    (TASK, "socket _socket ssl select selectors tempfile shutil glob fileinput aiofiles"),
    (TASK, "urllib.request http.client ftplib imaplib poplib smtplib xmlrpc.client paramiko"),
    (TASK, "requests httpx aiohttp urllib3 websockets grpc"),
    (TASK, "sqlite3 _sqlite3 apsw aiosqlite psycopg psycopg2 asyncpg pymysql MySQLdb aiomysql"),
    (TASK, "redis pymongo motor boto3 botocore aioboto3 aiobotocore openai anthropic"),
)
"""Modules of which nothing may be called, other than exceptions. They are judged by name."""

_READS = dict.fromkeys(("os.environ", "os.environb", "sys.argv"), ARGUMENT) | {"sys.stdin": TASK}
"""What must not even be looked at."""

_ENOUGH_ARGUMENTS = {
    **dict.fromkeys(("random.Random", "numpy.random.default_rng", "numpy.random.RandomState"), 1),
    **dict.fromkeys(("time.localtime", "time.gmtime", "time.ctime", "time.asctime"), 1),
    "time.strftime": 2,
    "uuid.uuid8": 3,
}
"""With that many arguments the call depends on nothing else: a seed, a time."""

_PATH = "pathlib.Path"
_PATH_METHODS = (
    "open read_text read_bytes write_text write_bytes exists is_file is_dir is_symlink stat lstat"
    " iterdir glob rglob walk mkdir touch unlink rmdir rename replace samefile symlink_to"
    " hardlink_to chmod owner group readlink copy copy_into move move_into cwd home"
)

_RULES: dict[str, str | None] = {
    **{f"{owner}.{name}": verb for verb, owner, names in _CALLS for name in names.split()},
    **{module: verb for verb, modules in _MODULES for module in modules.split()},
    **{f"{_PATH}.{name}": TASK for name in _PATH_METHODS.split()},
    "secrets.compare_digest": None,
}
"""Dotted names, and what to use instead of calling them or anything within; none if that is fine."""

_NamedDefinition: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_Definition: TypeAlias = _NamedDefinition | ast.Lambda
_Comprehension: TypeAlias = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


class Finding(NamedTuple):
    """`what` is done at a line of `file`, which is a path as Python knows it; use `instead`."""

    file: str
    line: int
    what: str
    instead: str

    def __str__(self) -> str:
        call = "" if self.what in _READS else "()"
        place = f"{os.path.basename(self.file)}:{self.line}"
        return f"{place}: {self.what}{call} in a workflow: use {self.instead}"


def lint(fn: Callable[..., Any]) -> list[Finding]:
    """What `fn` must not do as a workflow, in the order of lines.

    Covers functions within it, and those of its module that it calls by name, and what those call.
    Empty if there is no source to read, as in a REPL or after `exec`.
    """
    workflow = _plain(fn)
    if workflow is None:
        return []
    _learn_identities()
    found: list[Finding] = []
    seen: set[ast.AST | None] = {None}
    todo = [(workflow, _definition(workflow))]
    while todo:
        function, definition = todo.pop()
        if definition not in seen and definition is not None:
            seen.add(definition)
            scan = _Scan(function)
            scan.enter(definition)
            found += scan.findings
            todo += scan.called
    return sorted(dict.fromkeys(found), key=lambda finding: finding.line)


def require_deterministic(fn: Callable[..., Any], mode: Mode) -> None:
    """Refuse a workflow with findings, naming them all (`error`), warn of it, or do nothing (`off`)."""
    if mode not in cast(tuple[str, ...], get_args(Mode)):
        raise InputError(f"no such mode of the linter: {mode!r}", "use 'error', 'warn' or 'off'")
    workflow = None if mode == "off" else _plain(fn)
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


def _plain(fn: object) -> FunctionType | None:
    """The function under decorators that say what they wrap, or a method's function."""
    inner = inspect.unwrap(cast(Callable[..., Any], fn))
    if isinstance(inner, MethodType):
        inner = inspect.unwrap(inner.__func__)
    return inner if isinstance(inner, FunctionType) else None


def _definition(function: FunctionType, name: str | None = None) -> _Definition | None:
    """The source of `function`, or of `name` at the top level of its file, if it can be told."""
    code = function.__code__
    linecache.checkcache(code.co_filename)
    source = "".join(linecache.getlines(code.co_filename, function.__globals__))
    place = (code.co_firstlineno, code.co_name) if name is None else (_TOP_LEVEL, name)
    found = _definitions(source).get(place, [])
    return found[0] if len(found) == 1 else None


_TOP_LEVEL = 0
"""In place of a line: wherever it is. Decorated functions are left out, they may be tasks."""


@lru_cache(maxsize=32)
def _definitions(source: str) -> dict[tuple[int, str], list[_Definition]]:
    """By first line, as code objects count it, and name. A module is parsed once for all its functions."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the import has warned of the user's source already
            tree = parse_module(source)
    except (SyntaxError, ValueError, RecursionError):
        return {}
    found: dict[tuple[int, str], list[_Definition]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Lambda):
            found.setdefault((node.lineno, "<lambda>"), []).append(node)
        elif isinstance(node, _NamedDefinition):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            found.setdefault((first, node.name), []).append(node)
    for node in tree.body:
        if isinstance(node, _NamedDefinition) and not node.decorator_list:
            found.setdefault((_TOP_LEVEL, node.name), []).append(node)
    return found


_ABSENT = object()


class _Thing(NamedTuple):
    """What a name stands for: a dotted name, and the object itself if there is one to look into."""

    name: str
    target: object = _ABSENT


_IDENTITIES: dict[int, tuple[object, str]] = {}
"""Known objects by identity, with a reference that keeps the identity theirs. A builtin may say that
it is of `posix` or `_io`, and `random.choice` is a method of a hidden object."""

_LEARNED: set[str] = set()


def _learn_identities() -> None:
    """Of what is forbidden, as far as it has been loaded by now."""
    for name in (*_RULES, *_READS, _PATH):
        if name not in _LEARNED and name.partition(".")[0] in sys.modules:
            _LEARNED.add(name)
            _learn(name)


def _learn(dotted: str) -> None:
    known, *attributes = dotted.split(".")
    target: object = sys.modules[known]
    for attribute in attributes:
        target = _static(target, attribute)
        known = f"{known}.{attribute}"
        if target is not _ABSENT and not _namespace(target):
            _IDENTITIES.setdefault(id(target), (target, known))
    # Other modules have things of harmless ones in them: `queue` has `deque`. And constants may be
    # the same object everywhere.
    for attribute, value in _namespace(target).items() if _verb(dotted) == RANDOM else ():
        if callable(value) and not attribute.startswith("_"):
            _IDENTITIES.setdefault(id(value), (value, f"{dotted}.{attribute}"))


def _namespace(target: object) -> dict[str, object]:
    """Of a module, without waking one that loads lazily; empty for anything else."""
    if not issubclass(type(target), ModuleType):
        return {}
    return cast(dict[str, object], object.__getattribute__(target, "__dict__"))


def _static(target: object, attribute: str) -> object:
    """An attribute of a module or class, without running any code of theirs."""
    found = _namespace(target).get(attribute, _ABSENT)
    if issubclass(type(target), type):
        owners = cast(type, target).__mro__
        found = next((vars(c)[attribute] for c in owners if attribute in vars(c)), _ABSENT)
    is_wrapped = type(found) is staticmethod or type(found) is classmethod
    return cast(MethodType, found).__func__ if is_wrapped else found


def _thing(target: object) -> _Thing:
    """Of an object that is no module, class or function, the name is that of its class."""
    if id(target) in _IDENTITIES:
        return _Thing(_IDENTITIES[id(target)][1], target)
    kind = type(target)
    if issubclass(kind, ModuleType):
        return _Thing(str(_namespace(target).get("__name__")), target)
    if issubclass(kind, type) or kind is FunctionType:
        return _Thing(_public_name(cast(type, target)), target)
    if kind is BuiltinMethodType or kind is MethodType:
        method = cast(MethodType, target)
        return _Thing(f"{_thing(method.__self__).name}.{method.__name__}", target)
    known = next((_IDENTITIES[id(c)][1] for c in kind.__mro__ if id(c) in _IDENTITIES), None)
    return _Thing(known or _public_name(kind))


def _public_name(target: type) -> str:
    """By the outermost package that has it: `requests.Session`, not `requests.sessions.Session`."""
    module, name = str(target.__module__), target.__qualname__
    parts = module.split(".")
    outer = (".".join(parts[:count]) for count in range(1, len(parts)))
    has_it = (package for package in outer if _static(sys.modules.get(package), name) is target)
    return f"{next(has_it, module)}.{name}"


def _imported(dotted: str) -> _Thing:
    """What an import inside a function binds. Nothing is imported for it: a name is enough."""
    if dotted in sys.modules:
        return _Thing(dotted, sys.modules[dotted])
    owner, _, attribute = dotted.rpartition(".")
    return _attribute(_imported(owner), attribute) if owner else _Thing(dotted)


def _attribute(thing: _Thing, attribute: str) -> _Thing:
    path = f"{thing.name}.{attribute}"
    found = _static(thing.target, attribute)
    if found is _ABSENT:
        return _Thing(path)
    if _namespace(thing.target) and path not in _READS and _verb(path) is None:
        return _thing(found)
    return _Thing(path, found)


@lru_cache(maxsize=4096)
def _verb(name: str) -> str | None:
    """What to use instead of calling `name`; none if it may be called."""
    while name and name not in _RULES:
        name = name.rpartition(".")[0]
    return _RULES.get(name)


_Origin: TypeAlias = str | ast.expr | None
"""Whence a name has its value: an import, an expression, or nobody knows."""

_NAMING = {ast.arg: "arg", ast.MatchMapping: "rest"}
"""Where such a node has the name that it binds; others that bind one have it as their `name`."""

_BARE = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)
_LEAVES = {ast.Constant, *(kind for base in _BARE for kind in base.__subclasses__())}


def _parts(node: ast.AST) -> list[ast.AST]:
    """What `node` is made of, less what can't hold a name."""
    values = [getattr(node, field, None) for field in node._fields]
    nested = [part for value in values if type(value) is list for part in value]
    return [p for p in values + nested if isinstance(p, ast.AST) and type(p) not in _LEAVES]


def _bindings(*nodes: ast.AST) -> Iterator[tuple[str, _Origin]]:
    """Each name that `nodes` bind in their own scope."""
    todo = list(nodes)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Name):
            if not isinstance(node.ctx, ast.Load):
                yield node.id, None
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from _imports(node)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, node.value if len(node.targets) == 1 else None
            todo += [*node.targets[1:], node.value]
        elif isinstance(node, _Comprehension):
            todo += [n.target for n in ast.walk(node) if isinstance(n, ast.NamedExpr)]
        else:
            name = getattr(node, _NAMING.get(type(node), "name"), None)
            if isinstance(name, str):
                yield name, None
            if not isinstance(node, _Definition | ast.ClassDef):
                todo += _parts(node)


def _imports(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    origin = ""
    if isinstance(node, ast.ImportFrom):
        origin = "." * node.level + (f"{node.module}." if node.module else "")
    for alias in node.names:
        top = alias.name.partition(".")[0]
        yield alias.asname or top, origin + (alias.name if alias.asname else top)


class _Scan:
    """Reads one function. `called` are functions of its module that it calls."""

    def __init__(self, function: FunctionType) -> None:
        self.findings: list[Finding] = []
        self.called: list[tuple[FunctionType, _Definition | None]] = []
        self._function = function
        cells = function.__closure__ or ()
        self._cells = dict(zip(function.__code__.co_freevars, cells, strict=True))
        self._scopes: list[dict[str, _Thing | None]] = []

    def enter(self, node: _Definition) -> None:
        """Read a body. Annotations are not run, and defaults and decorators were before."""
        body: list[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else [*node.body]
        with self._scope(node.args, *body):
            for statement in body:
                self.visit(statement)

    @contextmanager
    def _scope(self, *binders: ast.AST) -> Iterator[None]:
        """A name that a scope assigns is its own there, be it declared `global` or `nonlocal`."""
        origins: dict[str, list[_Origin]] = {}
        for name, origin in _bindings(*binders):
            origins.setdefault(name, []).append(origin)
        names: dict[str, _Thing | None] = dict.fromkeys(origins)
        self._scopes.append(names)
        for name, of_name in reversed(origins.items()):
            names[name] = self._bound(of_name)
        yield
        self._scopes.pop()

    def _bound(self, origins: list[_Origin]) -> _Thing | None:
        """Imports that exclude each other are of a kind; a name that is assigned twice is not known."""
        if all(isinstance(origin, str) for origin in origins):
            return _imported(str(origins[-1]))
        only = origins[0] if len(origins) == 1 else None
        return self._resolve(only) if isinstance(only, ast.expr) else None

    def _lookup(self, name: str) -> _Thing | None:
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        if name in self._cells:
            try:
                return _thing(self._cells[name].cell_contents)
            except ValueError:  # not assigned yet
                return None
        for namespace in (self._function.__globals__, vars(builtins)):
            if name in namespace:
                return _thing(namespace[name])
        below = _definition(self._function, name)
        return None if below is None else _Thing(name, below)

    def _resolve(self, node: ast.AST) -> _Thing | None:
        """What an expression stands for, as far as it is made of names; of values, paths only."""
        if isinstance(node, ast.Name):
            return self._lookup(node.id)
        if isinstance(node, ast.Attribute):
            owner = self._resolve(node.value)
            is_directory = owner == _Thing(_PATH) and node.attr == "parent"
            return owner if owner is None or is_directory else _attribute(owner, node.attr)
        if isinstance(node, ast.Call):
            maker = self._resolve(node.func)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            maker = self._resolve(node.left)
        else:
            return None
        is_path = maker is not None and f"{maker.name}.".startswith(f"{_PATH}.")
        return _Thing(_PATH) if is_path else None

    def _report(self, node: ast.expr, what: str, instead: str) -> None:
        line = node.end_lineno or node.lineno  # a chain over several lines ends with the name
        file = self._function.__code__.co_filename
        self.findings.append(Finding(file, line, what.removeprefix("builtins."), instead))

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.Call):
            self._judge(node)
        elif isinstance(node, ast.Name | ast.Attribute):
            self._read(node)
        if isinstance(node, _Definition):
            self._visit_definition(node)
        elif isinstance(node, _Comprehension):
            with self._scope(*(generator.target for generator in node.generators)):
                self._visit_parts(node)
        else:
            self._visit_parts(node)

    def _visit_parts(self, node: ast.AST) -> None:
        """All that is run: the annotation of a local variable is not, nor is `type X = ...`."""
        for part in () if type(node).__name__ == "TypeAlias" else _parts(node):
            if not (isinstance(node, ast.AnnAssign) and part is node.annotation):
                self.visit(part)

    def _visit_definition(self, node: _Definition) -> None:
        """Its body as well, whether it is called or not, unless Perdure makes a task of it."""
        decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
        for outside in (*decorators, *node.args.defaults, *node.args.kw_defaults):
            if outside is not None:
                self.visit(outside)
        makers = (self._resolve(d.func if isinstance(d, ast.Call) else d) for d in decorators)
        if not any(maker is not None and maker.name.startswith("perdure.") for maker in makers):
            self.enter(node)

    def _read(self, node: ast.Name | ast.Attribute) -> None:
        thing = self._resolve(node)
        if thing is not None and thing.name in _READS:
            self._report(node, thing.name, _READS[thing.name])

    def _judge(self, node: ast.Call) -> None:
        thing = self._resolve(node.func)
        if thing is not None and not self._is_followed(thing.target):
            kind = thing.target if issubclass(type(thing.target), type) else object
            verb = None if issubclass(cast(type, kind), BaseException) else _verb(thing.name)
            if verb is not None and not _has_enough_arguments(node, thing.name):
                self._report(node.func, thing.name, verb)
        elif isinstance(node.func, ast.Attribute) and node.func.attr == "run_in_executor":
            self._report(node.func, node.func.attr, TASK)

    def _is_followed(self, target: object) -> bool:
        """Functions of the module are read instead of judged by name."""
        if isinstance(target, _NamedDefinition):
            self.called.append((self._function, target))
            return True
        function = _plain(target) if type(target) is FunctionType else None
        if function is None or function.__globals__ is not self._function.__globals__:
            return False
        self.called.append((function, _definition(function)))
        return True


def _has_enough_arguments(node: ast.Call, name: str) -> bool:
    values = (*node.args, *(keyword.value for keyword in node.keywords))
    given = [v for v in values if not (isinstance(v, ast.Constant) and v.value is None)]
    is_unpacked = any(isinstance(v, ast.Starred) for v in given)
    return name in _ENOUGH_ARGUMENTS and (is_unpacked or len(given) >= _ENOUGH_ARGUMENTS[name])
