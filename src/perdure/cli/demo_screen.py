"""The output of the demo: live in a terminal, line by line in a pipe."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.rule import Rule
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from perdure.cli.demo_progress import JournalLine, RunProgress, StepProgress, StepState
from perdure.core.journal import events as e
from perdure.core.ledger import ACTIVITY, MESSAGE, digits_of, spell_balance, step_account
from perdure.store.inspection import Report

WIDEST = 120

_LOOK = {
    StepState.SCHEDULED: ("·", "dim"),
    StepState.WAITING: ("", "yellow"),
    StepState.RUNNING: ("", "yellow"),
    StepState.RETRYING: ("", "magenta"),
    StepState.DOUBT: ("?", "red"),
    StepState.DONE: ("✓", "green"),
    StepState.FAILED: ("✗", "red"),
}
"""Sign and colour. States without a sign are in progress and show a spinner."""


class Screen:
    """Prints the demo. `is_live`: the terminal can redraw lines."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._spinners: dict[str, Spinner] = {}
        self.is_live = console.is_terminal and not console.is_dumb_terminal

    def say(self, text: str, style: str = "") -> None:
        self._console.print(_indented(Text.from_markup(text, style=style)))

    def head(self, text: str) -> None:
        self._console.print()
        self.say(f"[bold]{text}[/bold]")

    @contextmanager
    def following(self, progress: RunProgress) -> Iterator[None]:
        """Redraws the steps of a run while they change; their last state stays on the screen."""
        if not self.is_live:
            yield
            return
        with Live(self._steps(progress), console=self._console, refresh_per_second=12) as live:
            self._live = live
            try:
                yield
            finally:
                live.update(self._steps(progress, is_still=True), refresh=True)
                self._live = None

    def show(self, progress: RunProgress, lines: Sequence[JournalLine]) -> None:
        """Shows the progress that `lines` made."""
        if self._live is not None:
            self._live.update(self._steps(progress))
            return
        for line in lines:
            step = line.step
            if step is not None and step.state is not StepState.SCHEDULED:
                self._console.print(f"    {step.id}  {step.name:<8} {step}", highlight=False)

    def _steps(self, progress: RunProgress, *, is_still: bool = False) -> RenderableType:
        table = Table(box=None, show_header=False, padding=(0, 1), pad_edge=False)
        for step in progress.steps.values():
            sign, colour = _LOOK[step.state]
            state = Text(str(step), style=colour)
            mark: RenderableType = Text(sign or "●", style=colour)
            if not sign and not is_still:
                mark = self._spinner(step, colour)
            table.add_row(mark, Text(step.id, style="dim"), Text(step.name, style="bold"), state)
        return _indented(table, 4)

    def _spinner(self, step: StepProgress, colour: str) -> Spinner:
        spinner = self._spinners.setdefault(step.id, Spinner("dots"))
        spinner.style = colour
        return spinner

    def journal(self, progress: RunProgress, killed_at: int) -> None:
        """Prints the entries, each with the digits that it changed in the account of its step."""
        before, after = progress.lines[:killed_at], progress.lines[killed_at:]
        self._console.print(_entries(before, "", is_headed=True))
        self._console.print(Padding(Rule(Text("kill -9", "bold red"), style="red"), (0, 2)))
        self._console.print(_entries(after, "cyan"))

    def ledger(self, progress: RunProgress) -> None:
        """Prints the accounts and the meaning of their digits."""
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True)
        for step in progress.steps.values():
            style = "bold red" if step.is_doubted else ""
            balance = progress.balances.get(step_account(step.id), 0)
            spelled = spell_balance(balance, ACTIVITY)
            table.add_row(f"{step.id} {step.name}", spelled, style=style)
            for account, step_id in progress.messages.items():
                if step_id == step.id:
                    spelled = spell_balance(progress.balances[account], MESSAGE)
                    table.add_row("  message", spelled, style="dim")
        self._console.print(_indented(table))

    def counts(self, progress: RunProgress, effects: dict[str, list[str]]) -> None:
        """Prints how often each task started, by its effects outside the store, and how often it finished."""
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        table.add_column("task", no_wrap=True)
        table.add_column("started", justify="right")
        table.add_column("finished", justify="right")
        table.add_column("")
        for step in progress.steps.values():
            if step.id not in effects:
                continue
            keys = effects[step.id]
            note, style = "", ""
            if step.is_doubted:
                note, style = "in doubt after the kill, retried", "bold red"
                if len(set(keys)) == 1:
                    note = f"{note} with the same key"
            elif len(keys) > 1:
                note, style = "failed, retried by its retry policy", "magenta"
            finished = str(int(step.state is StepState.DONE))
            table.add_row(step.name, str(len(keys)), finished, note, style=style)
        self._console.print(_indented(table))

    def report(self, name: str, report: Report) -> None:
        if report.is_clean:
            extent = f"{report.entries} entries, {report.accounts} accounts"
            self.say(f"{name:<7} [bold green]clean[/bold green] ({extent})")
        else:
            self._console.print(str(report), style="bold red", markup=False)


def _indented(shown: RenderableType, by: int = 2) -> Padding:
    return Padding(shown, (0, 0, 0, by), expand=False)


def _entries(lines: Sequence[JournalLine], style: str, *, is_headed: bool = False) -> Padding:
    """A table with fixed column widths, so that the tables before and after the kill line up."""
    table = Table(
        box=None,
        show_header=is_headed,
        header_style="dim",
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    table.add_column("seq", justify="right", style="dim", width=3)
    table.add_column("event", width=18, no_wrap=True)
    table.add_column("step", width=14, no_wrap=True)
    table.add_column("account", width=15, no_wrap=True)
    table.add_column("change", width=22, no_wrap=True)
    for line in lines:
        table.add_row(*_journal_row(line, style))
    return _indented(table)


def _journal_row(line: JournalLine, style: str) -> tuple[RenderableType, ...]:
    event, step = line.entry.event, line.step
    name = type(event).__name__
    if step is None:
        return str(line.entry.seq), Text(name, style=f"dim {style}"), "", "", ""
    if isinstance(event, e.Posted):
        name, style = event.label, "bold red"
    change, account = Text(_noted(event), style="dim"), Text()
    if line.after != line.before:
        change = Text(_changed_words(line), style=style)
        account = _changed_digits(line, style)
    where = Text(f"{step.id} {step.name}", style=style)
    return str(line.entry.seq), Text(name, style=style), where, account, change


def _noted(event: e.Event) -> str:
    """The note for an entry that posts nothing."""
    if isinstance(event, e.InvokeStarted):
        return f"(attempt {event.attempt} starts)"
    return "(failed, will retry)" if isinstance(event, e.InvokeRetrying) else ""


def _changed_words(line: JournalLine) -> str:
    """The parts of the account's meaning that the entry changed."""
    before, after = (
        spell_balance(b, ACTIVITY).partition("  ")[2].split(" · ") for b in _both(line)
    )
    return " · ".join(word for word in after if word not in before)


def _changed_digits(line: JournalLine, style: str) -> Text:
    before, after = map(digits_of, _both(line))
    digits = Text()
    for old, new in zip(before, after, strict=True):
        digits.append(new, style="dim" if new == old else f"bold {style}")
    return digits


def _both(line: JournalLine) -> tuple[int, int]:
    return line.before, line.after
