"""The commands and names of the API that a text mentions, and whether each exists."""

import re
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import perdure
from tools.reference.contracts import cli_page

COMMAND = re.compile(r"(?<![\w.$/-])(?<!from )perdure ([a-z]+)(?: ([a-z][a-z-]*))?")
API = re.compile(r"(?<![\w./:-])(perdure(?:\.[A-Za-z_]\w*)+)(?!/)")
MEMBER = re.compile(r"(?<![\w./])(engine|handle)\.([a-z_]\w*)")
SETTING = re.compile(r"(?<!\w)Settings\((\w+)=")

OWNERS = {
    "engine": (perdure.Engine, perdure.SyncEngine),
    "handle": (perdure.Handle, perdure.SyncHandle),
}

SOURCE = Path(perdure.__file__).parent
ATTRIBUTE = re.compile(r"\"(perdure\.\w+)\": ")
LOGGER = re.compile(r"(?:getLogger\(|\"name\": )\"(perdure[\w.]*)\"")
TABLE = re.compile(r"CREATE TABLE (perdure\.\w+)")


@cache
def other_names() -> set[str]:
    """What begins like a module and is none: the default file, loggers, tables, attributes of spans."""
    loggers = {name for path in SOURCE.rglob("*.py") for name in LOGGER.findall(path.read_text())}
    tables = {name for path in SOURCE.rglob("*.sql") for name in TABLE.findall(path.read_text())}
    spans = set(ATTRIBUTE.findall((SOURCE / "core" / "runs" / "tracing.py").read_text()))
    return loggers | tables | spans | {"perdure.db", "perdure.toml"}


def unknown_names(text: str) -> list[str]:
    """What `text` mentions and does not exist: commands, API names, settings."""
    called = [match for match in COMMAND.finditer(text) if not _is_command(match[1], match[2])]
    names = [match for match in API.finditer(text) if not _resolves(match[1])]
    members = [match for match in MEMBER.finditer(text) if not _is_member(match[1], match[2])]
    settings = [match for match in SETTING.finditer(text) if not _is_setting(match[1])]
    return [match[0] for match in [*called, *names, *members, *settings]]


@cache
def commands() -> dict[str, set[str]]:
    """The commands, and those below each."""
    found: dict[str, set[str]] = {}
    for name, below in re.findall(r"^##+ perdure (\w+)(?: ([\w-]+))?$", cli_page(), re.MULTILINE):
        found.setdefault(name, set()).update({below} if below else ())
    return found


def _is_command(name: str, below: str | None) -> bool:
    inner = commands().get(name)
    return inner is not None and (not inner or below is None or below in inner)


def _resolves(dotted: str) -> bool:
    if dotted in other_names():
        return True
    if _is_module(dotted):
        return True  # found, not imported: the demo's module would register its tasks here
    owner, _, name = dotted.rpartition(".")
    return _resolves(owner) and hasattr(_found(owner), name)


def _found(dotted: str) -> object:
    if _is_module(dotted):
        return import_module(dotted)
    owner, _, name = dotted.rpartition(".")
    return getattr(_found(owner), name)


def _is_module(path: str) -> bool:
    try:
        return find_spec(path) is not None
    except ModuleNotFoundError:
        return False


def _is_member(owner: str, name: str) -> bool:
    return any(hasattr(kind, name) for kind in OWNERS[owner])


def _is_setting(name: str) -> bool:
    return name in perdure.Settings.__struct_fields__
