"""The preflight of an engine: replays the open runs of its store on the code that is registered in this process."""

from collections.abc import Callable, Iterable, Sequence

from perdure.authoring.definition import require_name
from perdure.core.codec import Codec
from perdure.core.errors import InputError
from perdure.engine.known_programs import KnownPrograms
from perdure.engine.programs.preflight import Preflight, preflight
from perdure.engine.programs.rehearsal import Rehearsal
from perdure.host.clock import HostSources
from perdure.host.runs.catalogue import Catalogue
from perdure.host.runs.dispatcher import Dispatcher
from perdure.host.services import reading_codec
from perdure.store.opening import open_store
from perdure.store.store import Store


def require_program_names(programs: object) -> list[str] | None:
    """The names of programs; `None` stands for all programs."""
    if isinstance(programs, str) or not isinstance(programs, Iterable | None):
        raise InputError(f"programs is {programs!r}", f"pass a sequence: [{programs!r}]")
    return None if programs is None else [require_name("workflow", name) for name in programs]


async def preflight_open_engine(
    dispatcher: Dispatcher, programs: Sequence[str] | None, *, reveal: bool
) -> Preflight:
    """Check the store of an open engine."""
    context, known = dispatcher.context, dispatcher.programs
    codec = reading_codec(context.codec, context.services)
    return await preflight(context.store, codec, HostSources(), known, programs, reveal=reveal)


async def preflight_closed_engine(
    url: str, codec: Codec, programs: Sequence[str] | None, *, reveal: bool
) -> Preflight:
    """Open the store for the check alone, without changing it."""
    store = await open_store(url, as_it_is=True)
    try:
        return await preflight_store(store, codec, programs, reveal=reveal)
    finally:
        await store.close()


async def preflight_store(
    store: Store,
    codec: Codec,
    programs: Sequence[str] | None,
    *,
    reveal: bool,
    on_run: Callable[[Rehearsal], None] | None = None,
) -> Preflight:
    """Check a store on the programs that are registered in this process, and the graphs that are deployed to it."""
    known = await programs_known_to(store)
    sources = HostSources()
    return await preflight(store, codec, sources, known, programs, reveal=reveal, on_run=on_run)


async def programs_known_to(store: Store) -> KnownPrograms:
    """The programs that are registered in this process, and the graphs that are deployed to the store."""
    known = KnownPrograms()
    await Catalogue(store, known).refresh()
    return known
