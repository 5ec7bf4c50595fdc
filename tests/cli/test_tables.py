"""Tables in a narrow terminal."""

from io import StringIO

from rich.console import Console

from perdure.cli.output import Column, table_of


def test_narrow_terminal_shortens_only_the_columns_that_may_be_cut() -> None:
    columns: list[Column[str]] = [
        Column("run", lambda _: "r_" + "0" * 32),
        Column("status", lambda _: "completed"),
        Column("key", lambda key: key, is_cut=True),
        Column("tags", lambda _: "", is_cut=True),
    ]
    printed = StringIO()
    Console(file=printed, width=60).print(table_of(["k" * 100, "short"], columns))
    title, long, short = printed.getvalue().splitlines()
    assert title.split()[:3] == ["RUN", "STATUS", "KEY"]
    assert long.split()[:2] == ["r_" + "0" * 32, "completed"]
    assert long.rstrip().endswith("k…")
    assert short.split()[2] == "short"
