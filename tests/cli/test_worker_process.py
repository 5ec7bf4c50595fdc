"""What a worker's process sets up before it imports its program."""

import gc
import json
import logging
import socket

import pytest

from perdure import Engine, InputError
from perdure.cli.worker.command import worker
from perdure.cli.worker.logs import JsonFormatter, configure_logging
from perdure.cli.worker.policy import BAD_CONFIG
from perdure.cli.worker.process import GC_THRESHOLDS, WorkerConfig, run_worker


def test_gc_thresholds_are_set_before_user_code_which_may_override_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = gc.get_threshold()
    found = []

    def look(_: WorkerConfig) -> Engine:
        found.append(gc.get_threshold())
        raise InputError("nothing to do", "look elsewhere")

    monkeypatch.setattr(WorkerConfig, "engine", look)
    ours, theirs = socket.socketpair()
    try:
        with ours, theirs:
            assert run_worker(WorkerConfig("nothing"), ours) == BAD_CONFIG
    finally:
        gc.set_threshold(*before)
    assert found == [GC_THRESHOLDS]


def bare_root(monkeypatch: pytest.MonkeyPatch, *handlers: logging.Handler) -> logging.Logger:
    """The root logger with these handlers alone, until the test is over."""
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", list(handlers))
    monkeypatch.setattr(root, "level", root.level)
    return root


def test_logging_configured_by_the_program_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    own = logging.NullHandler()
    root = bare_root(monkeypatch, own)
    configure_logging(None, None)
    assert root.handlers == [own]


@pytest.mark.parametrize(("level", "form"), [("debug", None), (None, "json")])
def test_log_options_override_the_programs_configuration(
    level: str | None, form: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = bare_root(monkeypatch, logging.NullHandler())
    configure_logging(level, form)
    (handler,) = root.handlers
    assert isinstance(handler.formatter, JsonFormatter) is (form == "json")
    assert root.level == (logging.DEBUG if level else logging.INFO)


def test_extra_field_does_not_overwrite_a_standard_field() -> None:
    record = logging.makeLogRecord(
        {"msg": "said", "levelname": "INFO", "level": 9, "order": 7, "odd": {1, 2}}
    )
    line = json.loads(JsonFormatter().format(record))
    assert (line["message"], line["level"], line["level_"]) == ("said", "info", 9)
    assert (line["order"], line["odd"]) == (7, "{1, 2}")


@pytest.mark.parametrize(
    ("option", "value"), [("log_level", "loud"), ("log_format", "xml"), ("log_level", "")]
)
def test_unknown_level_or_format_is_refused(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options: dict[str, str] = {option: value}
    assert worker("tests.cli.worker_app:engine", **options) == BAD_CONFIG  # type: ignore[arg-type]
    said = capsys.readouterr().err
    assert f"--{option.replace('_', '-')} is {value!r}: pass" in said
