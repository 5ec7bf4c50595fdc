"""What a workflow must not call or read, and what to use instead."""

import ast
from functools import lru_cache

NOW = "perdure.now()"
SLEEP = "await perdure.sleep(...)"
RANDOM = "perdure.random()"
UUID = "perdure.uuid4()"
AWAIT = "`await`: the workflow's own event loop runs already"
TASK = "a @task"
ARGUMENT = "an argument, or a @task that reads it"
SORTED = "sorted(...)"
DIGEST = "a hashlib digest"
KEPT = "a local variable, or a @task that keeps it"
IDENTITY = "`is` to compare, perdure.uuid4() to name"

COUNTING = "counting in a global"
CHANGING = "changing a global collection"

_CUMULATIVE = {
    "list": "append extend insert pop remove reverse sort __iadd__",
    "dict": "popitem",
    "deque": "append appendleft extend extendleft insert pop popleft remove reverse rotate",
    "Counter": "update subtract popitem",
    "OrderedDict": "popitem move_to_end",
    "defaultdict": "popitem",
}
CUMULATIVE = {
    f"{'builtins' if kind in ('list', 'dict') else 'collections'}.{kind}.{name}"
    for kind, names in _CUMULATIVE.items()
    for name in names.split()
}
"""Methods whose effect accumulates with each call. Others, such as `dict.update`, may fill a cache."""

_CALLS: tuple[tuple[str, str, str], ...] = (
    (NOW, "time", "time monotonic perf_counter process_time thread_time"),
    (NOW, "time", "time_ns monotonic_ns perf_counter_ns process_time_ns thread_time_ns"),
    (NOW, "time", "clock_gettime clock_gettime_ns localtime gmtime ctime asctime strftime"),
    (NOW, "datetime.datetime", "now utcnow today"),
    (NOW, "datetime.date", "today"),
    (SLEEP, "time", "sleep"),
    (RANDOM, "os", "urandom getrandom"),
    (UUID, "uuid", "uuid1 uuid4 uuid6 uuid7 uuid8"),
    (AWAIT, "asyncio", "run Runner new_event_loop set_event_loop"),
    (TASK, "asyncio", "to_thread"),
    (TASK, "asyncio", "run_coroutine_threadsafe create_subprocess_exec create_subprocess_shell"),
    (TASK, "asyncio", "open_connection start_server open_unix_connection start_unix_server"),
    (TASK, "anyio", "open_file run_process open_process connect_tcp connect_unix Path"),
    (TASK, "anyio", "create_tcp_listener create_udp_socket getaddrinfo open_signal_receiver"),
    (AWAIT, "anyio", "run"),
    (TASK, "threading", "Lock RLock"),
    (TASK, "builtins", "open input eval exec"),
    (TASK, "io", "open open_code FileIO"),
    (TASK, "os", "open read write close system popen fork forkpty execv execve spawnl spawnv kill"),
    (TASK, "os", "listdir scandir walk stat lstat access mkdir makedirs remove unlink rmdir"),
    (TASK, "os", "rename renames replace link symlink readlink truncate chmod getcwd getpid"),
    (TASK, "os.path", "exists lexists isfile isdir islink getsize getmtime getctime getatime"),
    (ARGUMENT, "os", "getenv getenvb putenv unsetenv"),
    (DIGEST, "builtins", "hash"),
    (IDENTITY, "builtins", "id"),
)
"""What to use instead, the module or class, and its forbidden names."""

_MODULES: tuple[tuple[str, str], ...] = (
    (RANDOM, "random secrets numpy.random"),
    (TASK, "threading _thread multiprocessing concurrent.futures subprocess queue"),
    (TASK, "socket _socket ssl select selectors tempfile shutil glob fileinput aiofiles"),
    (TASK, "anyio.to_thread anyio.from_thread anyio.to_process anyio.to_interpreter"),
    (TASK, "urllib.request http.client ftplib imaplib poplib smtplib xmlrpc.client paramiko"),
    (TASK, "requests httpx aiohttp urllib3 websockets grpc"),
    (TASK, "sqlite3 _sqlite3 apsw aiosqlite psycopg psycopg2 asyncpg pymysql MySQLdb aiomysql"),
    (TASK, "redis pymongo motor boto3 botocore aioboto3 aiobotocore openai anthropic"),
)
"""Modules of which only exceptions may be called. They are judged by name, loaded or not."""

READS = dict.fromkeys(("os.environ", "os.environb", "sys.argv"), ARGUMENT) | {"sys.stdin": TASK}
"""Objects that a workflow must not even read."""

_ENOUGH_ARGUMENTS = {
    **dict.fromkeys(("random.Random", "numpy.random.default_rng", "numpy.random.RandomState"), 1),
    **dict.fromkeys(("time.localtime", "time.gmtime", "time.ctime", "time.asctime"), 1),
    "time.strftime": 2,
    "uuid.uuid8": 3,
}
"""The number of arguments that make the call deterministic: a seed, a time."""

PATH = "pathlib.Path"
_PATH_METHODS = (
    "open read_text read_bytes write_text write_bytes exists is_file is_dir is_symlink stat lstat"
    " iterdir glob rglob walk mkdir touch unlink rmdir rename replace samefile symlink_to"
    " hardlink_to chmod owner group readlink copy copy_into move move_into cwd home"
)

RULES: dict[str, str | None] = {
    **{f"{owner}.{name}": verb for verb, owner, names in _CALLS for name in names.split()},
    **{module: verb for verb, modules in _MODULES for module in modules.split()},
    **{f"{PATH}.{name}": TASK for name in _PATH_METHODS.split()},
    "secrets.compare_digest": None,
}
"""What to use instead of a dotted name and everything in it; None if it is allowed."""


@lru_cache(maxsize=4096)
def replacement_for(name: str) -> str | None:
    """What to use instead of `name`; None if it is allowed."""
    while name and name not in RULES:
        name = name.rpartition(".")[0]
    return RULES.get(name)


def may_be_referred_to(name: str) -> bool:
    """Whether a bare reference is allowed, because only the arguments of a call decide."""
    return name in _ENOUGH_ARGUMENTS


def has_enough_arguments(node: ast.Call, name: str) -> bool:
    values = (*node.args, *(keyword.value for keyword in node.keywords))
    given = [v for v in values if not (isinstance(v, ast.Constant) and v.value is None)]
    is_unpacked = any(isinstance(v, ast.Starred) for v in given)
    return name in _ENOUGH_ARGUMENTS and (is_unpacked or len(given) >= _ENOUGH_ARGUMENTS[name])
