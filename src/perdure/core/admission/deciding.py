"""Decides what becomes of starts, and which waiting runs are admitted next."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, TypeVar

import msgspec

from perdure.core.admission.rules import Rules

T = TypeVar("T")


class Fate(StrEnum):
    """What becomes of a start."""

    ADMIT = "admit"
    """It begins now, and holds a slot."""
    WAIT = "wait"
    """It is pending."""
    DELAY = "delay"
    """It is pending, and takes its place in the line later."""
    REJECT = "reject"
    JOIN = "join"
    """It becomes the run that holds the slot, and no run is made."""
    REPLACE = "replace"
    """It is pending, and what holds the slot or waits for it is cancelled."""


class Standing(msgspec.Struct):
    """A slot of a limit as a transaction sees it: how many runs hold it, are ready for it, and wait for it in any way;
    and when the rate has the next one due."""

    running: int = 0
    ready: int = 0
    waiting: int = 0
    arrival_us: int = 0


class Verdict(NamedTuple):
    """A fate. `retry_ms` is how long a refused caller should wait, or how long a delay lasts."""

    fate: Fate
    retry_ms: int = 0


def judge(rules: Rules, standing: Standing, now_ms: int, *, is_ready: bool) -> Verdict:
    """What becomes of the next start. `standing` is as the starts before it left it, and is changed to what this one
    leaves.

    A start that is not ready waits for a time or an approval, and takes no slot yet.
    """
    if not is_ready:
        return _enter_line(rules, standing, Verdict(Fate.WAIT))
    wait_ms = 0 if rules.pace is None else rules.pace.wait_ms(standing.arrival_us, now_ms)
    has_room = rules.running is None or standing.running < rules.running
    if has_room and not wait_ms and not standing.ready:
        standing.running += 1
        if rules.pace is not None:
            standing.arrival_us = rules.pace.after(standing.arrival_us, now_ms, 1)
        return Verdict(Fate.ADMIT)
    retry_ms = wait_ms or rules.retry_ms
    match rules.over:
        case "reject":
            return Verdict(Fate.REJECT, retry_ms)
        case "join":
            return Verdict(Fate.JOIN, retry_ms)
        case "replace":
            standing.ready = standing.waiting = 1
            return Verdict(Fate.REPLACE)
        case "delay":
            return _enter_line(rules, standing, Verdict(Fate.DELAY, retry_ms))
        case _:
            verdict = _enter_line(rules, standing, Verdict(Fate.WAIT, retry_ms))
            standing.ready += verdict.fate is Fate.WAIT
            return verdict


def _enter_line(rules: Rules, standing: Standing, verdict: Verdict) -> Verdict:
    if rules.queued is not None and standing.waiting >= rules.queued:
        return Verdict(Fate.REJECT, verdict.retry_ms or rules.retry_ms)
    standing.waiting += 1
    return verdict


def room(rules: Rules, standing: Standing, now_ms: int, most: int) -> int:
    """How many waiting runs may be admitted now."""
    free = most if rules.running is None else min(most, max(0, rules.running - standing.running))
    if rules.pace is None:
        return free
    return rules.pace.allowed(standing.arrival_us, now_ms, free)


def round_robin(lines: Mapping[str, Sequence[T]], served: str, count: int) -> list[tuple[str, T]]:
    """The next `count` of several scopes' lines: each scope in turn, in the order of names, after the one that was
    `served` last."""
    turns = sorted(lines)
    first = next((at for at, scope in enumerate(turns) if scope > served), 0)
    turns = turns[first:] + turns[:first]
    chosen: list[tuple[str, T]] = []
    for place in range(max((len(line) for line in lines.values()), default=0)):
        for scope in turns:
            if len(chosen) == count:
                return chosen
            if place < len(lines[scope]):
                chosen.append((scope, lines[scope][place]))
    return chosen
