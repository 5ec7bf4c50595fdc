"""`perdure graph draw`: draws a graph."""

from pathlib import Path

from perdure import InputError
from perdure.cli.graph.reporting import print_problems
from perdure.cli.graph.source import one_graph
from perdure.core.graph import drawing

FORMS = {"text": drawing.text, "mermaid": drawing.mermaid, "svg": drawing.svg}


def draw_one(name: str, form: str, output: Path | None) -> int:
    """Writes the drawing to a file, or prints it."""
    source = one_graph(name)
    if source.problems:
        return print_problems(source)
    picture = FORMS[form](source.graphs[0]).rstrip("\n") + "\n"
    if output is None:
        print(picture, end="")
        return 0
    try:
        output.write_text(picture, encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"{output} can't be written ({error.strerror})", "pass a writable path"
        ) from None
    return 0
