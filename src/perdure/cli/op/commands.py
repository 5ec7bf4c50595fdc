"""The commands of `perdure op`. Each takes a place: the directory of the ledger files, or the URL of a store."""

import asyncio
import sys
from collections.abc import Coroutine
from typing import Annotated, Any

from cyclopts import Parameter

from perdure.cli.op import ending, looking
from perdure.cli.op.place import STALENESS_S
from perdure.core.errors import PerdureError

Place = Annotated[str, Parameter(help="The directory of the ledger files, or the URL of a store.")]
Name = Annotated[str, Parameter(help="Its id, or a part of it that no other has.")]
Staleness = Annotated[
    float,
    Parameter(
        help="Seconds without a heartbeat after which the participants take one another for dead."
    ),
]

REFUSED = 2
"""Exit code of what can't be done. Nothing was changed."""


def list_operations(
    place: Place, /, *, all_: bool = False, staleness: Staleness = STALENESS_S
) -> int:
    """List the operations under way, oldest first.

    Parameters
    ----------
    all_
        Those in backup, too.
    """
    return _run(looking.list_all(place, staleness, with_backups=all_))


def show(
    place: Place, operation: Name, /, *, json: bool = False, staleness: Staleness = STALENESS_S
) -> int:
    """Show one operation: who takes part, their calls, and how old their heartbeats are.

    Parameters
    ----------
    json
        Print what the ledger says, as JSON.
    """
    return _run(looking.show_one(place, operation, staleness, is_json=json))


def watch(place: Place, operation: Name, /, *, staleness: Staleness = STALENESS_S) -> int:
    """Show one operation until it ends. The exit code is 1 if it failed."""
    return _run(looking.watch_one(place, operation, staleness))


def log(place: Place, operation: Name, /, *, debug: bool = False, follow: bool = False) -> int:
    """Print the log of an operation.

    Parameters
    ----------
    debug
        All lines, those of level debug included.
    follow
        Go on with new lines until the operation is in backup.
    """
    return _run(looking.print_log(place, operation, debug=debug, follow=follow))


def abort(
    place: Place,
    operation: Name,
    /,
    *,
    reason: str | None = None,
    staleness: Staleness = STALENESS_S,
) -> int:
    """Let an operation fail, and say who will clean up.

    Parameters
    ----------
    reason
        Why, for its log and its participants.
    """
    return _run(ending.abort_one(place, operation, reason, staleness))


def recover(place: Place, operation: Name, /, *, staleness: Staleness = STALENESS_S) -> int:
    """See to the end of an operation whose participants are gone. The exit code is 1 if it failed.

    An operation that somebody carries on is left alone.
    """
    return _run(ending.recover_one(place, operation, staleness))


def _run(command: Coroutine[Any, Any, int]) -> int:
    try:
        return asyncio.run(command)
    except PerdureError as error:
        print(f"perdure op: {error}", file=sys.stderr)
        return REFUSED
