"""Error output and exit codes of `perdure graph`."""

import sys
import traceback

from perdure.cli.exit_codes import FAILED, REFUSED
from perdure.cli.graph.source import GraphSource
from perdure.cli.importing import CodeFailed
from perdure.core.errors import PerdureError


def print_problems(source: GraphSource) -> int:
    for problem in source.problems:
        prefix = "" if problem.where is not None else f"{source.name}: "
        print(f"{prefix}{problem}", file=sys.stderr)
    return FAILED


def print_refusal(error: PerdureError) -> int:
    if isinstance(error, CodeFailed):
        traceback.print_exception(error.__cause__)
    print(f"perdure graph: {error}", file=sys.stderr)
    return REFUSED
