"""Graphs in YAML, one per document. All errors are reported at once, with line and column."""

from pathlib import Path

from perdure.authoring.graphs.arguments import argument_problems
from perdure.authoring.graphs.document import Document
from perdure.authoring.graphs.yaml_values import documents
from perdure.core.errors import InputError
from perdure.core.graph.checking import invalid, problems_of
from perdure.core.graph.model import Graph, Problem, SourceLocation

_SUFFIXES = (".yaml", ".yml")


def load_graph(source: str | Path) -> Graph:
    """The checked graph in a file or a text. `GraphInvalid` lists all problems in the order of lines.

    A path, or a text of one line that ends in .yaml or .yml, names a file; any other text is the graph itself.
    """
    text, file, problems = _text_of(source)
    found = _read(text, file, problems)
    if not problems and len(found) != 1:
        second = SourceLocation(file, 1, 1) if not found else found[1].place
        what = "there is no graph" if not found else "this is a second graph"
        remedy = "write one" if not found else "read several with read_graphs"
        problems.append(Problem("", "", what, remedy, second))
    return _checked(found, problems, file)[0]


def read_graphs(source: str | Path) -> list[Graph]:
    """All checked graphs in a file or a text, one per document."""
    text, file, problems = _text_of(source)
    return _checked(_read(text, file, problems), problems, file)


def _text_of(source: str | Path) -> tuple[str, str, list[Problem]]:
    if not isinstance(source, str | Path):
        raise InputError(
            f"{source!r:.80} is no text of a graph, and no path to one",
            "pass a str or a pathlib.Path; decode bytes first",
        )
    is_path = isinstance(source, Path) or (
        "\n" not in source and source.strip().endswith(_SUFFIXES)
    )
    if not is_path:
        return str(source), "<text>", []
    path = Path(str(source).strip()) if isinstance(source, str) else source
    try:
        return path.read_bytes().decode(), str(path), []
    except UnicodeDecodeError as error:
        what = f"the file is not UTF-8 (byte {error.start})"
        return (
            "",
            str(path),
            [Problem("", "", what, "save it as UTF-8", SourceLocation(str(path), 1, 1))],
        )


def _read(text: str, file: str, problems: list[Problem]) -> list[Document]:
    found = [Document(value, problems) for value in documents(text, file, problems)]
    names: dict[tuple[str, str], SourceLocation] = {}
    for document in found:
        graph = document.graph
        if graph is None:
            continue
        first = names.setdefault((graph.name, graph.version), document.place)
        if first is not document.place:
            what = f"there is a graph {graph.name!r} of that version already, in line {first.line}"
            remedy = "give one of them another name or version"
            problems.append(Problem("", "graph", what, remedy, document.place))
        problems.extend(document.judged(problems_of))
        problems.extend(document.judged(argument_problems))
    return found


def _checked(found: list[Document], problems: list[Problem], file: str) -> list[Graph]:
    if problems:
        names = [document.name for document in found if document.name]
        nowhere = SourceLocation("", 0, 0)
        ordered = sorted(dict.fromkeys(problems), key=lambda problem: problem.where or nowhere)
        raise invalid(names[0] if names else file, ordered)
    return [document.graph for document in found if document.graph is not None]
