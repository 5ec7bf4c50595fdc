"""The command line `perdure`. It needs the extra `perdure[cli]`; no other package imports it."""

import sys
from importlib import import_module

NEEDS = ("cyclopts", "rich")

NO_EXTRA = 2
"""Exit code if the extra is not installed."""


def main() -> int:
    """Runs the command in `sys.argv` and returns its exit code."""
    try:
        for name in NEEDS:
            import_module(name)
    except ModuleNotFoundError as error:
        print(
            f"perdure: the command line needs {error.name!r}, which is not installed.\n"
            "Install it with: pip install 'perdure[cli]'",
            file=sys.stderr,
        )
        return NO_EXTRA
    from perdure.cli.app import run_command  # noqa: PLC0415 - its dependencies are checked first

    return run_command(sys.argv[1:])
