"""What the commands say where they can't go on, and their exit codes."""

import sys
import traceback

from perdure.cli.graph.source import Source
from perdure.cli.importing import CodeFailed
from perdure.core.errors import PerdureError

WRONG = 1
"""Exit code if a graph has problems."""

REFUSED = 2
"""Exit code of what can't be done. Nothing was changed."""


def print_problems(source: Source) -> int:
    for problem in source.problems:
        place = "" if problem.where is not None else f"{source.name}: "
        print(f"{place}{problem}", file=sys.stderr)
    return WRONG


def print_refusal(error: PerdureError) -> int:
    if isinstance(error, CodeFailed):
        traceback.print_exception(error.__cause__)
    print(f"perdure graph: {error}", file=sys.stderr)
    return REFUSED
