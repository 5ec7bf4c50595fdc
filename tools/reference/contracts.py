"""The pages of settings, limits, events, errors and commands."""

import subprocess
import sys
from collections.abc import Iterator

import perdure
from perdure.core import errors, limits
from perdure.core.journal import events
from perdure.core.journal.postings import TABLE
from perdure.operations import LedgerSettings
from tools.reference.layout import page, quoted, table
from tools.reference.source import attributes, class_of, text_of, tree_of


def settings_page() -> str:
    lead = (
        "`Engine(url, settings=Settings(...))` takes these. Nothing is read from files or from"
        " environment variables. Times are in seconds."
    )
    parts = []
    for title, kind in (
        ("Settings of an engine", perdure.Settings),
        ("Settings of an operation's ledger", LedgerSettings),
    ):
        node = class_of(kind)
        rows = [
            (quoted(f.name), quoted(f.type), quoted(_value(kind, f.name)), f.text)
            for f in attributes(node.body)
            if not f.type.startswith("ClassVar")
        ]
        parts += [f"## {title}", f"`{kind.__name__}`: {text_of(node)}"]
        parts.append(table(["setting", "type", "default", "meaning"], rows))
    return page("Settings", lead, parts)


def _value(kind: type, name: str) -> str:
    return repr(getattr(kind(), name))


def limits_page() -> str:
    lead = (
        "Perdure checks each limit before it changes anything, and names the limit and the value in"
        " the error. They are constants of `perdure.core.limits` and can't be configured."
    )
    rows = [
        (quoted(each.name), f"{getattr(limits, each.name):,}", each.text)
        for each in attributes(tree_of(limits).body)
    ]
    return page("Limits", lead, [table(["limit", "value", "reason"], rows)])


def events_page() -> str:
    kinds = list(TABLE)
    lead = (
        f"A journal holds {len(kinds)} types of event. `handle.events()` yields them, and the type"
        " is the `type` of its stored JSON. *Ledger* says whether the event also posts digits; the"
        " audit recomputes them from the event alone. A `payload` of `None` means that the event has"
        " none, or that it was erased."
    )
    return page("Journal events", lead, (part for kind in kinds for part in _event(kind)))


def _event(kind: type[events.Event]) -> Iterator[str]:
    yield f"## {kind.__name__}"
    text = text_of(class_of(kind))
    bases = [base for base in kind.__mro__[1:] if base.__module__ == events.__name__]
    inherited = [text_of(class_of(base)) for base in bases if base is events.Terminal]
    yield "\n\n".join(each for each in [text, *inherited] if each) or "No further text."
    fields = [
        (quoted(each.name), quoted(each.type), quoted(each.default))
        for base in [kind, *bases]
        for each in attributes(class_of(base).body)
    ]
    if fields:
        yield table(["field", "type", "default"], fields)
    yield f"Ledger: {'posts nothing.' if TABLE[kind] is None else 'posts digits.'}"


def errors_page() -> str:
    lead = (
        "Every error that Perdure raises on purpose derives from `PerdureError`. Each has a `code`"
        " that never changes once released, `what` happened with the value concerned, and a"
        " `remedy`. Classes marked with a star are exported by `perdure`; the others are in"
        " `perdure.core.errors`. The indentation shows which class derives from which."
    )
    described = _in_tree()
    rows = [
        (
            f"{'&nbsp;&nbsp;' * depth}`{kind.__name__}`{_star(kind)}",
            quoted(kind.code),
            described.get(kind.__name__) or _first_line(kind),
        )
        for depth, kind in _walk(errors.PerdureError, 0)
    ]
    return page("Errors", lead, [table(["error", "code", "raised for"], rows)])


def _star(kind: type) -> str:
    return "\\*" if kind.__name__ in perdure.__all__ else ""


def _first_line(kind: type) -> str:
    return text_of(class_of(kind)).split("\n\n")[0]


def _in_tree() -> dict[str, str]:
    """The line of each error in the tree that the module of the errors draws."""
    lines = (line.lstrip("│├└─ ").split(None, 1) for line in (errors.__doc__ or "").splitlines())
    return {line[0]: line[1] for line in lines if len(line) == 2 and line[0][0].isupper()}


def _walk(
    kind: type[errors.PerdureError], depth: int
) -> Iterator[tuple[int, type[errors.PerdureError]]]:
    yield depth, kind
    for each in sorted(kind.__subclasses__(), key=lambda sub: sub.__name__):
        if each.__module__.startswith("perdure.core.errors"):
            yield from _walk(each, depth + 1)


def cli_page() -> str:
    lead = (
        "`pip install 'perdure[cli]'` installs the command `perdure`. `perdure COMMAND --help`"
        " prints the same text. The exit code is 0 on success, 1 if what was asked for failed, 2 if"
        " it can't be done, and 130 after Ctrl-C."
    )
    # In a process of its own: commands that ran in this one change what cyclopts generates.
    program = "from perdure.cli.app import app; print(app.generate_docs(), end='')"
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    text = done.stdout
    commands = text[text.index("\n## perdure ") :]
    return page("Command line", lead, [commands.strip()])
