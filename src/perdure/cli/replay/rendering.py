"""Prints the steps of a replay, and the program's local variables."""

import linecache
from collections.abc import Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import msgspec
from rich.text import Text

from perdure.authoring.values.failures import failure_text
from perdure.cli.output import Column, cell, console, printable, table_of
from perdure.core.codec import Codec
from perdure.core.errors import PerdureError
from perdure.core.ids import StepId
from perdure.core.replay.recorded import RecordedStep, StepOutcome
from perdure.engine.programs.walkthrough import SourceLine

LONGEST = 200
"""Characters of a value that are shown."""

_COLOURS = {StepOutcome.FAILED: "red", StepOutcome.OPEN: "yellow", StepOutcome.SKIPPED: "dim"}


class ReplayedStep(msgspec.Struct, kw_only=True):
    """A step as it is printed."""

    step: StepId
    what: str
    outcome: StepOutcome
    attempts: int
    value: str
    file: str | None = None
    line: int | None = None
    source: str = ""


class LocalsAt:
    """Keeps the local variables of the program at a step, and of a program that raised."""

    def __init__(self, at: StepId | None) -> None:
        self._at = at
        self.names: dict[str, str] = {}
        self.where = ""
        self.error = ""

    def step_begins(self, step: StepId, frames: Sequence[FrameType]) -> bool:
        if step == self._at:
            self._keep(frames[0])
            return False
        return True

    def replay_ends(self, frames: Sequence[FrameType]) -> None:
        if frames:
            self._keep(frames[0])

    def program_raised(self, error: BaseException, traceback: TracebackType | None) -> None:
        self.error = f"{type(error).__name__}: {error}"
        while traceback is not None:
            self._keep(traceback.tb_frame, traceback.tb_lineno)
            traceback = traceback.tb_next

    def _keep(self, frame: FrameType, line: int | None = None) -> None:
        code = frame.f_code
        self.where = f"{_short(code.co_filename)}:{line or frame.f_lineno} in {code.co_name}"
        self.names = {name: _repr(value) for name, value in frame.f_locals.items()}


def _repr(value: object) -> str:
    try:
        return _cut(repr(value))
    except Exception as error:  # a user's class may do anything
        return f"<{type(value).__name__}, whose repr raised {type(error).__name__}>"


def replayed_step(step: RecordedStep, line: SourceLine | None, codec: Codec) -> ReplayedStep:
    shown = ReplayedStep(
        step=step.step,
        what=step.what,
        outcome=step.outcome,
        attempts=step.attempts,
        value=value_text(step, codec),
    )
    if line is not None:
        shown.file, shown.line = line.file, line.line
        shown.source = linecache.getline(line.file, line.line).strip()
    return shown


def value_text(step: RecordedStep, codec: Codec) -> str:
    if step.is_erased:
        return "(erased)"
    if step.outcome is StepOutcome.FAILED:
        failure = failure_text(codec, step.value)
        return f"{failure.type_name}: {failure.message}"
    return step.text if step.value is None else payload_text(step.value, codec)


def payload_text(payload: bytes, codec: Codec) -> str:
    """A stored value as JSON, abridged."""
    try:
        decoded: Any = codec.decode(payload, object)
    except PerdureError:
        return f"({len(payload)} bytes)"
    return _cut(msgspec.json.encode(decoded).decode())


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _short(file: str) -> str:
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else path.name


def _line(step: ReplayedStep) -> Text:
    if step.file is None:
        return Text("")
    return Text.assemble(
        (f"{_short(step.file)}:{step.line}", "cyan"), f"  {printable(step.source)}"
    )


def _outcome(step: ReplayedStep) -> Text:
    text = Text(step.outcome.value, style=_COLOURS.get(step.outcome, "green"))
    return text.append(f", attempt {step.attempts}") if step.attempts > 1 else text


_COLUMNS: list[Column[ReplayedStep]] = [
    Column("step", lambda step: step.step),
    Column("what", lambda step: cell(step.what)),
    Column("outcome", _outcome),
    Column("value", lambda step: cell(step.value), is_cut=True),
    Column("line", _line, is_cut=True),
]


def print_steps(steps: list[ReplayedStep], printer: LocalsAt) -> None:
    screen = console()
    columns = [each for each in _COLUMNS if each.name != "line" or any(step.file for step in steps)]
    screen.print(table_of(steps, columns))
    if printer.where:
        raised = f", raised {printer.error}" if printer.error else ""
        screen.print(f"\nat {printable(printer.where)}{printable(raised)}", soft_wrap=True)
        for name, value in printer.names.items():
            screen.print(Text(f"  {name} = {printable(value)}"), soft_wrap=True)
