"""The command line: `perdure`. It needs the extra `perdure[cli]`; nothing else imports it."""

import sys
from importlib import import_module

NEEDS = ("cyclopts", "rich")

NO_EXTRA = 2
"""Exit code where the extra is not installed."""


def main() -> int:
    """Run the command that the process was given, and return its exit code."""
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
    from perdure.cli.app import run_command  # noqa: PLC0415 - only now it is known to work

    return run_command(sys.argv[1:])
