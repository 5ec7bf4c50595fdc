"""Limits as operators see and set them."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from perdure.authoring.definition import require_name
from perdure.authoring.limits import MOST, Rate
from perdure.authoring.texts import require_user_text
from perdure.core.admission.rules import NO_SLOT, Rules, Setting, in_force, parse_slot
from perdure.core.errors import InputError
from perdure.core.ids import RunId
from perdure.core.limits import MAX_NAME_LENGTH
from perdure.host.host import Host
from perdure.store.admission_table import SlotStanding
from perdure.store.store import Store

PAGE: Final = 1000
"""Slots that one statement reads."""


class LimitInfo(msgspec.Struct, frozen=True):
    """A limit in one scope, for one key: its numbers, who holds it, and who waits.

    `scope` is `None` if it counts all scopes together. `running` and `queued` are what it allows, `rate` is so many
    starts `per_ms`; `None` where it has no such limit. `is_set` if an operator has set them.
    """

    name: str
    scope: str | None
    key: str
    holding: int
    waiting: int
    running: int | None
    queued: int | None
    rate: int | None
    per_ms: int | None
    over: str
    is_set: bool
    reason: str = ""


class StartOutcome(msgspec.Struct, frozen=True):
    """What became of a run that was admitted: "STARTED" here, "SKIPPED" for a host that has its program, or "FAILED"
    if it could not begin."""

    run_id: RunId
    status: str


class Limits:
    """The limits of an engine: `engine.limits`."""

    def __init__(self, require_host: Callable[[], Host]) -> None:
        self._require_host = require_host

    async def list(self, name: str = "") -> list[LimitInfo]:
        """Limits in each scope and for each key, those of one name or all. A limit is known once a run was started."""
        return await read_limits(self._require_host().dispatcher.store, name)

    async def set(
        self,
        name: str,
        *,
        running: int | None = None,
        queued: int | None = None,
        rate: Rate | None = None,
        reason: str = "",
        by: str = "",
    ) -> None:
        """Replace numbers of a limit, in all scopes and for all keys, until `reset`. The others stay the code's."""
        host = self._require_host()
        values = LimitValues(running, queued, rate, reason, by)
        setting = setting_from(require_name("limit", name), values)
        now = host.dispatcher.sources.now_ms()
        await host.dispatcher.store.admission.set_limit(name, setting, now)
        host.admissions.look_soon()

    async def reset(self, name: str) -> bool:
        """Let the code's numbers hold again. False if none were set."""
        host = self._require_host()
        was_set = await host.dispatcher.store.admission.reset_limit(require_name("limit", name))
        host.admissions.look_soon()
        return was_set

    async def dequeue_and_start(self) -> Sequence[StartOutcome]:
        """Admit the runs that may begin now, and begin those of programs that this process has.

        Engines do so by themselves. It may be called at any time, by any number of processes: a run begins once.
        """
        host = self._require_host()
        return [
            StartOutcome(run_id, status) for run_id, status in await host.admissions.start_waiting()
        ]


async def read_limits(store: Store, name: str = "") -> list[LimitInfo]:
    require_user_text("the name of a limit", name, MAX_NAME_LENGTH, 0)
    settings = {each.name: each.setting for each in await store.admission.settings()}
    found: list[LimitInfo] = []
    after = NO_SLOT
    while slots := await store.admission.slots(name, after, PAGE):
        for each in slots:
            limit, scope, key = parse_slot(each.slot)
            setting = settings.get(limit)
            rules = in_force(each.rules, setting)
            found.append(_info((limit, scope, key), each, rules, setting))
        after = slots[-1].slot
    return found


def _info(
    named: tuple[str, str | None, str], slot: SlotStanding, rules: Rules, setting: Setting | None
) -> LimitInfo:
    pace = rules.pace
    name, scope, key = named
    return LimitInfo(
        name,
        scope,
        key,
        slot.running,
        slot.waiting,
        rules.running,
        rules.queued,
        None if pace is None else pace.count,
        None if pace is None else pace.per_ms,
        rules.over,
        setting is not None,
        "" if setting is None else setting.reason,
    )


class LimitValues(NamedTuple):
    """What an operator sets: numbers that replace those of the code, why, and who does."""

    running: int | None = None
    queued: int | None = None
    rate: Rate | None = None
    reason: str = ""
    by: str = ""


def setting_from(name: str, given: LimitValues) -> Setting:
    """Validate what an operator sets."""
    for what, value in (("running", given.running), ("queued", given.queued)):
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if value is not None and not (is_whole and 0 <= value <= MOST):
            raise InputError(f"{what} is {value!r:.100}", f"pass a whole number from 0 to {MOST}")
    if given.rate is not None and not isinstance(given.rate, Rate):
        raise InputError(f"rate is {given.rate!r:.100}", "pass Rate(count, per=seconds)")
    if given[:3] == (None, None, None):
        raise InputError(f"nothing of limit {name!r} is set", "pass running, queued or rate")
    reason = require_user_text("a reason", given.reason, 4 * MAX_NAME_LENGTH, 0)
    by = require_user_text("the name of an operator", given.by, MAX_NAME_LENGTH, 0)
    pace = None if given.rate is None else given.rate.pace
    return Setting(given.running, given.queued, pace, reason, by)
