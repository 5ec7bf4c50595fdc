"""Forks a run: stores a new run that begins like it, and takes another way from one of its steps on."""

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Self, TypeVar

import msgspec

from perdure.authoring.graphs.program import GraphProgram
from perdure.authoring.texts import require_user_text
from perdure.client.runs.acts import ActOptions, Acts
from perdure.client.runs.fork_requests import (
    ForkPreview,
    encoded_values,
    find_forked_step,
    lost_child,
    preview_of,
    require_kept_payloads,
)
from perdure.client.runs.rows import require_run
from perdure.core.errors import (
    CorruptJournal,
    InputError,
    RunExists,
    SignalReused,
    StaleFence,
    StoreUnavailable,
    UnknownStep,
)
from perdure.core.ids import RunId, StepId, is_run_id, parse_run_id
from perdure.core.journal import events as e
from perdure.core.journal.entry import Entry
from perdure.core.journal.events import ActType
from perdure.core.limits import MAX_KEY_LENGTH
from perdure.core.messages import AT_ONCE, Message
from perdure.core.runs.acts import Act, Actor, act_guid, act_message
from perdure.core.runs.forking import (
    START,
    ForkPlan,
    ForkRequest,
    fork_id,
    own_guid,
    plan_fork,
    step_of_signal,
)
from perdure.engine.programs.forking import fork_bundle
from perdure.host.host import Host
from perdure.store.commit.bundle import Bundle
from perdure.store.commit.fence import Fence
from perdure.store.rows.records import Run

T = TypeVar("T")

LONG_JOURNAL: Final = 2_000
"""Entries from which on a fork is planned and replayed in a thread: that takes about 20 ms for each 1,000 entries."""

_MOST_TRIES = 10


class Forks(Acts):
    """The forks of a handle: new runs that begin like its run."""

    async def fork(
        self,
        step: str = START,
        *,
        set: Mapping[str, Any] | None = None,  # noqa: A002 - what users call it
        input: Mapping[str, Any] | None = None,  # noqa: A002 - as in start_graph
        signals: bool = True,
        reason: str = "",
        by: Actor | None = None,
        id: str | None = None,  # noqa: A002 - as in signal
    ) -> Self:
        """Start a new run that has done what this one had done when `step` ended, and executes the step again.

        `step` is a step's id, or the name of a task that the run called once; without it the fork begins at the start.
        Of a chain the last run is forked, or the one that `step` names: `"r_.../root.0"`.
        `set` gives outcomes for steps that were open at that moment, which are not executed; `input` changes arguments,
        at the start only. Other steps of that moment keep the results that they had later. Signals that the run
        received later are sent to the fork, unless `signals` is false. This run is not changed, and may have ended.

        This process must have the program, which must repeat what the fork keeps, else `ForkDiverged` is raised. Forks
        with one `id` are one.
        """
        options = ForkOptions.checked(step, set, input, signals=signals)
        kind = ActType.RETRY_RUN if step == START and not set and input is None else ActType.FORK
        end, act = await self._authorized(kind, ActOptions(reason, by, id))
        return self._like(await fork_run(self._host, end, options, act))

    async def preview_fork(
        self,
        step: str = START,
        *,
        set: Mapping[str, Any] | None = None,  # noqa: A002 - as above
        input: Mapping[str, Any] | None = None,  # noqa: A002 - as above
        signals: bool = True,
        id: str | None = None,  # noqa: A002 - as above
    ) -> ForkPreview:
        """What `fork` would do: which steps it would execute again, under which keys. Stores nothing.

        The keys are those of the fork that is made with the `id` of the preview.
        """
        entropy = self._host.dispatcher.sources.entropy(16).hex()
        name = require_user_text("the id of an act", entropy if id is None else id, MAX_KEY_LENGTH)
        options = ForkOptions.checked(step, set, input, signals=signals)
        return await preview_fork(self._host, await self._receiver(), options, name)

    async def retry(
        self,
        reason: str = "",
        *,
        by: Actor | None = None,
        id: str | None = None,  # noqa: A002 - as above
    ) -> Self:
        """Start a new run with this run's input: `fork` at the start."""
        return await self.fork(reason=reason, by=by, id=id)

    @abstractmethod
    def _like(self, run_id: RunId) -> Self:
        """A handle of another run of the program."""


class ForkOptions(msgspec.Struct, frozen=True):
    """What the caller of `Handle.fork` asks for, besides the act."""

    step: str
    values: Mapping[str, Any] = {}
    arguments: Mapping[str, Any] | None = None
    signals: bool = True

    @classmethod
    def checked(cls, step: str, values: Any, arguments: Any, *, signals: bool) -> Self:
        for what, given in (("set", values), ("input", arguments)):
            if given is not None and not isinstance(given, Mapping):
                raise InputError(
                    f"a fork with {what} = {given!r:.100}", "pass a dict of values by name"
                )
        return cls(step, values or {}, arguments, signals)


async def preview_fork(host: Host, source: Run, options: ForkOptions, act_id: str) -> ForkPreview:
    """What the fork of that id would do. Replays it on the registered code, and stores nothing."""
    act = Act(act_id, ActType.FORK)
    forked, options = await _run_named(host, source, options)
    plan, _ = await prepare_fork(host, forked, options, act)
    fork = fork_id(source.origin, act.id)
    return preview_of(forked.run_id, fork, act.id, plan, signals=options.signals)


async def fork_run(host: Host, source: Run, options: ForkOptions, act: Act) -> RunId:
    """Commits: the fork, the later signals to it, and the act in the source. The same act makes the same run."""
    fork = fork_id(source.origin, act.id)
    dispatcher = host.dispatcher
    if await dispatcher.store.run(fork) is not None:
        return fork
    await _require_own_id(host, source, act)
    for _ in range(_MOST_TRIES):
        forked, chosen = await _run_named(host, source, options)
        _, bundle = await prepare_fork(host, forked, chosen, act)
        with suppress(StaleFence):
            return await _commit_fork(host, source, fork, act, bundle)
        source = await require_run(dispatcher.store, source.run_id)
    raise StoreUnavailable(
        f"run {source.run_id!r} changed its owner again and again", "fork it again"
    )


async def _commit_fork(host: Host, source: Run, fork: RunId, act: Act, bundle: Bundle) -> RunId:
    """Commits the bundle and the act. Raises `StaleFence` if the source has another owner, or was erased."""
    dispatcher = host.dispatcher
    recorded = act_message(source.origin, act, dispatcher.sources.arrival(source.origin))
    bundle.enqueue(recorded)
    if source.chain is not None:
        bundle.forward(source.origin, recorded.guid, source.run_id)
    try:
        await dispatcher.store.commit(bundle)
    except RunExists as taken:
        if taken.run_id != fork:
            raise
        return fork  # another process stored it in the meantime
    host.runs_added()
    delivered = msgspec.structs.replace(recorded, run_id=source.run_id)
    host.message_sent(delivered, source.owner)
    return fork


async def _require_own_id(host: Host, source: Run, act: Act) -> None:
    """Raise if another act has the id: the fork would be recorded nowhere."""
    store, guid = host.dispatcher.store, act_guid(source.origin, act.id)
    sent = {each.guid for each in await store.act_messages(source.run_id)}
    if guid in sent or await store.taken_in_chain(source.origin, [guid]):
        raise SignalReused(
            f"the id {act.id!r} of a fork of run {source.run_id!r} is that of another act",
            "use another id",
        )


async def _run_named(host: Host, end: Run, options: ForkOptions) -> tuple[Run, ForkOptions]:
    """The run of the chain that the step names, and the step without it; the chain's last run if it names none."""
    name, slash, step = options.step.partition("/")
    if not slash or not is_run_id(name):
        return end, options
    run = await host.dispatcher.store.run(parse_run_id(name))
    if run is None or run.origin != end.origin:
        raise UnknownStep(
            f"run {name!r} is not in the chain of run {end.origin!r}",
            "see `Handle.runs` for the runs of the chain",
        )
    return run, msgspec.structs.replace(options, step=step)


async def prepare_fork(
    host: Host, source: Run, options: ForkOptions, act: Act
) -> tuple[ForkPlan, Bundle]:
    dispatcher = host.dispatcher
    codec, sources, programs = dispatcher.codec, dispatcher.sources, dispatcher.programs
    entries = await _journal(host, source)
    if not entries:
        raise InputError(
            f"run {source.run_id!r} has not begun, and has nothing to fork", "start another run"
        )
    is_long = len(entries) > LONG_JOURNAL
    plan, step = await _apart(_planned, host, source, entries, options, act, is_long=is_long)
    plan = msgspec.structs.replace(plan, signals=(*plan.signals, *await _waiting(host, source)))
    require_kept_payloads(source, entries, plan, signals=options.signals)
    if options.arguments is not None:
        plan = _with_arguments(host, source, plan, step, options.arguments)
    await dispatcher.catalogue.find_version(source.program, source.version)
    fork = fork_id(source.origin, act.id)
    enrolments = dispatcher.context.enrolments.of(fork, source.program, sources.now_ms())
    names = source, fork, plan.events
    how = codec, sources, programs, enrolments
    bundle = await _apart(fork_bundle, *names, *how, is_long=is_long)
    # Rejected if the source is erased or removed meanwhile, which changes its epoch.
    bundle.require(Fence(source.run_id, source.epoch))
    if plan.is_paused:
        resume = Act(f"{act.id}/resume", ActType.RESUME, act.by, act.role, act.reason)
        bundle.enqueue(act_message(fork, resume, sources.now_ms()))
    if options.signals:
        for message in _later_signals(fork, plan, sources.now_ms()):
            bundle.enqueue(message)
    return plan, bundle


async def _journal(host: Host, source: Run) -> list[Entry]:
    """All entries of the run, read in pages: the event loop has its turn between them."""
    entries: list[Entry] = []
    while len(entries) < source.seq:
        end = min(len(entries) + LONG_JOURNAL, source.seq)
        page = await host.dispatcher.store.entries(source.run_id, len(entries), end)
        entries += page
        if len(entries) < end:
            raise CorruptJournal(
                f"entry {len(entries)} of run {source.run_id!r} is missing", "see the audit"
            )
    return entries


async def _apart(work: Callable[..., T], *args: Any, is_long: bool) -> T:
    """Call `work`: for a long journal in a thread, so that the event loop does not wait for it."""
    return await asyncio.to_thread(work, *args) if is_long else work(*args)


def _planned(
    host: Host, source: Run, entries: Sequence[Entry], options: ForkOptions, act: Act
) -> tuple[ForkPlan, StepId]:
    dispatcher = host.dispatcher
    codec = dispatcher.codec
    journal = [entry.event for entry in entries]
    step = find_forked_step(source.run_id, options.step, journal)
    request = ForkRequest(
        source.run_id,
        source.origin,
        fork_id(source.origin, act.id),
        step,
        encoded_values(source.run_id, options.values, journal, codec, dispatcher.programs),
        act.id,
        act.reason,
        dispatcher.sources.now_ms(),
        lost_child(codec, source.run_id),
    )
    return plan_fork(request, journal, [entry.at_ms for entry in entries]), step


async def _waiting(host: Host, source: Run) -> list[e.SignalDelivered]:
    """The signals to a run that it has not taken in: they wait for its owner, or for the end of a pause."""
    return [
        e.SignalDelivered(message.kind.partition(":")[2], 1, message.guid, payload=message.payload)
        for message, state, _ in await host.dispatcher.store.messages(source.run_id)
        if state == "pending" and message.kind.startswith("signal:") and message.step is None
    ]


def _with_arguments(
    host: Host, source: Run, plan: ForkPlan, step: str, arguments: Mapping[str, Any]
) -> ForkPlan:
    """The fork with other arguments, which only a fork at the start may have."""
    codec = host.dispatcher.codec
    if step != START:
        raise InputError(
            f"a fork of run {source.run_id!r} at step {step!r} can't have other arguments",
            "fork at 'root' to change the input, or set the outcome of a step",
        )
    first = plan.events[0]
    if not isinstance(first, e.ExecutionStarted):
        raise CorruptJournal(
            f"the first entry of run {source.run_id!r} is no start", "see the audit"
        )
    given = codec.decode(first.payload or b"{}", dict[str, Any])
    payload = codec.encode({**given, **arguments})
    program = host.dispatcher.programs.find(source.program, source.version, source.digest)
    if program is not None:
        names = {name for name, _ in program.signature.shape}
        unknown = sorted(arguments.keys() - names - given.keys())
        if unknown and not isinstance(program, GraphProgram):  # graphs check their input themselves
            raise InputError(
                f"{program.name!r} has no argument {unknown[0]!r}",
                f"name one of its arguments: {', '.join(sorted(names)) or 'it has none'}",
            )
        program.check_input(codec, payload)
    return msgspec.structs.replace(
        plan, events=(msgspec.structs.replace(first, payload=payload), *plan.events[1:])
    )


def _later_signals(fork: RunId, plan: ForkPlan, now_ms: int) -> list[Message]:
    """The signals to send to the fork, in their order."""
    messages = []
    for number, event in enumerate(plan.signals):
        assert event.guid is not None  # noqa: S101 - the plan has no other
        step = step_of_signal(event)
        name = event.signal_name if step is None else event.signal_name.partition("@")[0]
        guid, arrival = own_guid(event.guid, fork), now_ms + number
        kind = f"signal:{name}"
        messages.append(Message(fork, guid, kind, AT_ONCE, arrival, step, event.payload))
    return messages
