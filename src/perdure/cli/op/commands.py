"""The commands of `perdure op`. Their first argument is a ledger: a directory, or the URL of a store."""

import asyncio
import sys
from collections.abc import Coroutine
from typing import Annotated, Any

from cyclopts import Parameter

from perdure.cli.exit_codes import REFUSED
from perdure.cli.op import ending, reading
from perdure.cli.op.ledgers import STALENESS_S
from perdure.core.errors import PerdureError

LedgerArgument = Annotated[
    str, Parameter(help="The directory of the ledger files, or the URL of a store.")
]
OperationArgument = Annotated[str, Parameter(help="The operation id, or a unique part of it.")]
Staleness = Annotated[
    float,
    Parameter(help="Seconds without a heartbeat after which a participant counts as dead."),
]


def list_operations(
    ledger: LedgerArgument, /, *, all_: bool = False, staleness: Staleness = STALENESS_S
) -> int:
    """List the current operations, oldest first.

    Parameters
    ----------
    all_
        Also list operations in the backups.
    """
    return _run(reading.print_list(ledger, staleness, with_backups=all_))


def show_operation(
    ledger: LedgerArgument,
    operation: OperationArgument,
    /,
    *,
    json: bool = False,
    staleness: Staleness = STALENESS_S,
) -> int:
    """Show one operation: its participants, their calls and the age of their heartbeats.

    Parameters
    ----------
    json
        Print the ledger as JSON.
    """
    return _run(reading.print_operation(ledger, operation, staleness, is_json=json))


def watch_operation(
    ledger: LedgerArgument, operation: OperationArgument, /, *, staleness: Staleness = STALENESS_S
) -> int:
    """Show one operation until it ends. The exit code is 1 if it failed."""
    return _run(reading.follow_operation(ledger, operation, staleness))


def show_log(
    ledger: LedgerArgument,
    operation: OperationArgument,
    /,
    *,
    debug: bool = False,
    follow: bool = False,
) -> int:
    """Print the log of an operation.

    Parameters
    ----------
    debug
        Include lines of level debug.
    follow
        Print new lines until the operation is in the backups.
    """
    return _run(reading.print_log(ledger, operation, debug=debug, follow=follow))


def abort_operation(
    ledger: LedgerArgument,
    operation: OperationArgument,
    /,
    *,
    reason: str | None = None,
    staleness: Staleness = STALENESS_S,
) -> int:
    """Make an operation fail and show who will clean up.

    Parameters
    ----------
    reason
        The reason, for the log and the participants.
    """
    return _run(ending.abort_and_report(ledger, operation, reason, staleness))


def recover_operation(
    ledger: LedgerArgument, operation: OperationArgument, /, *, staleness: Staleness = STALENESS_S
) -> int:
    """End an operation whose participants are all gone. The exit code is 1 if it failed.

    Changes nothing if live participants continue the operation.
    """
    return _run(ending.recover_and_report(ledger, operation, staleness))


def _run(command: Coroutine[Any, Any, int]) -> int:
    try:
        return asyncio.run(command)
    except PerdureError as error:
        print(f"perdure op: {error}", file=sys.stderr)
        return REFUSED
