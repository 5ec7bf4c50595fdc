"""Operator acts on a run: sent through its handle, decided by its owner."""

import asyncio
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

import msgspec

from perdure.authoring.durations import Duration, milliseconds
from perdure.authoring.texts import require_user_text
from perdure.client.runs.parameters import encoded_parameters
from perdure.client.runs.pending import send_to_pending
from perdure.core.codec import is_same_payload
from perdure.core.errors import Denied, InputError, PayloadTooLarge, TooManyActs
from perdure.core.ids import Guid, RunId, StepId
from perdure.core.journal import events as e
from perdure.core.journal.events import ActType
from perdure.core.journal.state import Status
from perdure.core.limits import MAX_KEY_LENGTH, MAX_NAME_LENGTH, MAX_PAYLOAD_BYTES, MAX_STEP_BYTES
from perdure.core.messages import AT_ONCE
from perdure.core.replay.identity import cancel_guid, next_run_id
from perdure.core.runs.acts import (
    ACCEPTED,
    EXPLANATIONS,
    Act,
    Actor,
    Code,
    Decision,
    act_message,
)
from perdure.core.runs.authority import ActedRun, AllowAll
from perdure.host.host import Host
from perdure.store.rows.records import Run
from perdure.store.store import Store

ENTRIES_PER_READ: Final = 1000

_SHORTEST_LOOK_S, _LONGEST_LOOK_S = 0.02, 1.0
"""How often a waiting receipt looks for a decision that no entry records: soon at first, then less often."""

_NOBODY: Final = Actor("")
NO_VALUE: Final[Any] = object()
"""Stands for a value that the caller did not give."""


class ActOptions(NamedTuple):
    """What the caller says about an act besides its type."""

    reason: str = ""
    by: Actor | None = None
    id: str | None = None
    descends: bool = False
    step: StepId | None = None
    value: bytes | None = None


class Acts:
    """The acts of a handle. The run's owner decides whether each applies to the run as it is: ask its receipt."""

    _host: Host
    _store: Store
    run_id: RunId

    async def pause(
        self,
        reason: str = "",
        *,
        by: Actor | None = None,
        id: str | None = None,  # noqa: A002 - what users call it
        descends: bool = False,
    ) -> "Receipt":
        """Pause the run: nothing begins, and the program does not advance, until `resume`.

        Attempts under way end, and their outcomes are kept. Signals and timers wait. Child runs continue, unless the
        act `descends` to them.
        """
        return await self._act(ActType.PAUSE, ActOptions(reason, by, id, descends))

    async def resume(
        self,
        reason: str = "",
        *,
        by: Actor | None = None,
        id: str | None = None,  # noqa: A002 - as above
        descends: bool = False,
    ) -> "Receipt":
        """End a pause: the run continues as if nothing had been."""
        return await self._act(ActType.RESUME, ActOptions(reason, by, id, descends))

    async def cancel(
        self,
        reason: str = "",
        *,
        by: Actor | None = None,
        id: str | None = None,  # noqa: A002 - as above
    ) -> "Receipt":
        """Request the run's cancellation; returns when the request is durable.

        The run cleans up before it ends, and its child runs are cancelled too.
        """
        if by is None and id is None and isinstance(self._host.authorizer, AllowAll):
            return await self._cancel(reason)
        return await self._act(ActType.CANCEL, ActOptions(reason, by, id))

    async def emergency_stop(
        self,
        reason: str = "",
        *,
        by: Actor | None = None,
        id: str | None = None,  # noqa: A002 - as above
    ) -> "Receipt":
        """End the run as cancelled at once: no clean-up step runs. Its child runs are cancelled."""
        return await self._act(ActType.EMERGENCY_STOP, ActOptions(reason, by, id))

    async def approve(
        self,
        reason: str = "",
        *,
        by: Actor | None = None,
        id: str | None = None,  # noqa: A002 - as above
    ) -> "Receipt":
        """Approve a run that waits for approval before it begins."""
        return await self._act(ActType.APPROVE, ActOptions(reason, by, id))

    async def retry_step(
        self,
        step: str,
        reason: str = "",
        *,
        by: Actor | None = None,
        id: str | None = None,  # noqa: A002 - as above
    ) -> "Receipt":
        """Begin the next logical attempt of a parked step, with new budgets of retries and doubts and a new key."""
        given = StepId(require_user_text("a step", step, MAX_STEP_BYTES))
        return await self._act(ActType.RETRY_STEP, ActOptions(reason, by, id, step=given))

    async def skip_step(
        self,
        step: str,
        reason: str = "",
        *,
        value: Any = NO_VALUE,
        by: Actor | None = None,
        id: str | None = None,  # noqa: A002 - as above
    ) -> "Receipt":
        """Settle a parked step without executing it: the program gets `value`, or `None` if none is given.

        The value must be of the step's result type.
        """
        given = StepId(require_user_text("a step", step, MAX_STEP_BYTES))
        codec = self._host.dispatcher.codec
        payload = (
            None
            if value is NO_VALUE
            else codec.encode(value, limit=self._host.context.settings.max_act_bytes)
        )
        return await self._act(ActType.SKIP_STEP, ActOptions(reason, by, id, False, given, payload))

    async def update_params(
        self,
        values: Mapping[str, Any],
        reason: str = "",
        *,
        by: Actor | None = None,
        id: str | None = None,  # noqa: A002 - as above
    ) -> "Receipt":
        """Change parameters of the run: those in `values`, by their names. The program must declare them.

        The program reads the new values from the moment at which the run accepts the act. If this process has the
        program, it refuses unknown names and values of other types before anything is stored.
        """
        end = await self._receiver()
        payload = await encoded_parameters(self._host.dispatcher, end, values)
        return await self._act(
            ActType.UPDATE_PARAMS, ActOptions(reason, by, id, False, None, payload)
        )

    @abstractmethod
    async def _receiver(self) -> Run: ...

    @abstractmethod
    async def _open_receiver(self, what: str) -> Run: ...

    @abstractmethod
    async def _send(
        self, end: Run, kind: str, guid: Guid, payload: bytes, step: StepId | None = None
    ) -> None: ...

    async def _cancel(self, reason: str) -> "Receipt":
        text = require_user_text("the reason of a cancel", reason, MAX_PAYLOAD_BYTES // 4, 0)
        end = await self._open_receiver("be cancelled")
        guid = cancel_guid(end.origin)
        if not await send_to_pending(self._host, end, "cancel", guid, text.encode()):
            await self._send(end, "cancel", guid, text.encode())
        return Receipt(self._host, end, guid)

    async def _act(self, kind: ActType, given: ActOptions) -> "Receipt":
        """Authorize the act and send it."""
        end, act = await self._authorized(kind, given)
        return await self._send_act(end, act, is_new=given.id is None)

    async def _authorized(self, kind: ActType, given: ActOptions) -> tuple[Run, Act]:
        """The act, and the run that it is for. One that is denied is sent, so that the run's history has it."""
        reason = require_user_text(
            "the reason of an act", given.reason, self._host.context.settings.max_act_bytes, 0
        )
        if not isinstance(given.descends, bool):
            raise InputError(f"descends is {given.descends!r:.100}", "pass True or False")
        actor = _NOBODY if given.by is None else given.by
        if not isinstance(actor, Actor):
            raise InputError(f"an act by {actor!r:.100}", "pass perdure.Actor(name, role)")
        for what, text in (("the name of an actor", actor.name), ("a role", actor.role)):
            require_user_text(what, text, MAX_NAME_LENGTH, 0)
        end = await self._receiver()
        entropy = self._host.dispatcher.sources.entropy(16).hex()
        name = entropy if given.id is None else given.id
        signal_id = require_user_text("the id of an act", name, MAX_KEY_LENGTH)
        act = Act(
            *(signal_id, kind, actor.name, actor.role, reason, given.step, given.value),
            descends=given.descends,
        )
        of = ActedRun(end.run_id, end.program, end.version, end.scope, end.key, str(end.status))
        refusal = await self._host.authorizer.decide(act, actor, of, reason)
        if refusal is not None:
            plain = Act(*(signal_id, kind, actor.name, actor.role, reason, given.step))
            code = require_user_text("a code", refusal, MAX_NAME_LENGTH)
            await self._send_act(end, msgspec.structs.replace(plain, refusal=code), is_new=False)
            explained = EXPLANATIONS.get(refusal, "the engine's authorizer refused")
            raise Denied(
                f"{kind} of run {end.run_id!r} by {actor.name!r} ({actor.role or 'no role'}) is denied: {refusal}",
                explained,
                refusal,
            )
        return end, act

    async def _send_act(self, end: Run, act: Act, *, is_new: bool) -> "Receipt":
        message = act_message(end.origin, act, AT_ONCE)
        payload = message.payload or b""
        most_bytes, most_acts = (
            self._host.context.settings.max_act_bytes,
            self._host.context.settings.acts_per_minute,
        )
        if len(payload) > most_bytes:
            raise PayloadTooLarge(
                f"{act.type} of run {end.run_id!r} takes {len(payload):,} bytes, over the limit of {most_bytes:,}",
                "shorten the reason or the value",
            )
        states = await self._store.act_messages(end.run_id)
        pending = [guid for guid, state, _ in states if state == "pending"]
        is_urgent = act.type in (ActType.CANCEL, ActType.EMERGENCY_STOP) and act.refusal is None
        if len(pending) >= most_acts and message.guid not in pending and not is_urgent:
            raise TooManyActs(
                f"{len(pending)} acts wait for run {end.run_id!r}",
                "send this one again in a minute",
            )
        is_denied = act.refusal is not None
        sent = message.kind, message.guid, payload
        if is_denied or not await send_to_pending(self._host, end, *sent):
            await self._send(end, *sent)
        return Receipt(self._host, end, message.guid, act, is_new=is_new)


class Receipt:
    """An act that is durable, and on its way to the run. `signal_id` names it: an act with the same id is the same."""

    def __init__(
        self, host: Host, end: Run, guid: Guid, act: Act | None = None, *, is_new: bool = False
    ) -> None:
        """`end` is the last run of the chain. An act that `is_new` is not decided in the entries that it has."""
        self.signal_id = "" if act is None else act.id
        self._act = act
        self._host = host
        self._store = host.dispatcher.store
        self._guid = guid
        self._run_id = end.run_id if is_new else end.origin
        self._read = end.seq if is_new else 0
        """Entries of the run that need no search."""

    def __repr__(self) -> str:
        return f"<Receipt {self.signal_id or 'cancel'} to {self._run_id}>"

    async def decision(self, timeout: Duration | None = None) -> Decision:  # noqa: ASYNC109 - its users expect it
        """Wait for the decision of the run's owner.

        Raises `TimeoutError` if there is none in time: the act stays on its way.
        """
        limit_s = None if timeout is None else milliseconds(timeout, "timeout") / 1000
        async with asyncio.timeout(limit_s):
            return await self._wait()

    async def _wait(self) -> Decision:
        watchers, look_s = self._host.dispatcher.watchers, _SHORTEST_LOOK_S
        while True:
            run_id = self._run_id
            grown = watchers.follow(run_id)
            self._host.follows(run_id)
            try:
                found = await self._look()
                if found is not None:
                    return found
                if run_id == self._run_id:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(grown.wait(), look_s)
                    look_s = min(2 * look_s, _LONGEST_LOOK_S)
            finally:
                watchers.unfollow(grown, run_id)

    async def _look(self) -> Decision | None:
        """The decision, from the journal of the run that took the act, else from the message's row."""
        run = await self._store.run(self._run_id)
        if run is None:
            return None
        while entries := await self._store.entries(
            run.run_id, self._read, self._read + ENTRIES_PER_READ
        ):
            for entry in entries:
                decision = self._decision_in(entry.event, entry.seq)
                if decision is not None:
                    return decision
            self._read += len(entries)
        for guid, state, reason in await self._store.act_messages(run.run_id):
            if guid == self._guid and (reason or "").startswith(ACCEPTED):
                return Decision(False, Code.ID_TAKEN, EXPLANATIONS[Code.ID_TAKEN])  # of a fork
            if guid == self._guid and state != "pending":
                code, colon, text = (reason or "").partition(": ")
                return Decision(False, code if colon else "", text if colon else code)
        if run.status is Status.CONTINUED:
            self._run_id, self._read = next_run_id(run.run_id), 0
        return None

    def _decision_in(self, event: e.Event, seq: int) -> Decision | None:
        match event:
            case e.SignalAccepted(guid=self._guid) | e.SignalRejected(guid=self._guid) if (
                self._act is not None
                and (event.signal_type, event.step) != (self._act.type, self._act.step)
            ):
                of_step = "" if event.step is None else f" of step {event.step!r}"
                text = f"{EXPLANATIONS[Code.ID_TAKEN]}: {event.signal_type}{of_step}"
                return Decision(False, Code.ID_TAKEN, text, seq)
            case e.SignalAccepted(guid=self._guid) if self._has_other_values(event):
                return Decision(False, Code.ID_TAKEN, EXPLANATIONS[Code.ID_TAKEN], seq)
            case e.SignalAccepted(guid=self._guid):
                return Decision(True, "", event.reason, seq)
            case e.SignalRejected(guid=self._guid):
                return Decision(False, event.code, event.reason, seq)
            case e.CancelRequested(guid=self._guid):
                return Decision(True, "", event.reason, seq)
            case _:
                return None

    def _has_other_values(self, event: e.SignalAccepted) -> bool:
        """Whether the act that has this id gave other values for parameters."""
        act = self._act
        if act is None or event.payload is None or act.value is None:
            return False
        return not is_same_payload(self._host.dispatcher.codec, event.payload, act.value)
