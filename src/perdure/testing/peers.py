"""What a host does about its peers, at the mercy of an explorer."""

from typing import TYPE_CHECKING

import msgspec

from perdure.core.ids import HostId
from perdure.store.hosts import Glance, Scope
from perdure.store.records import Run

if TYPE_CHECKING:
    from perdure.testing.mortal import MortalStore
    from perdure.testing.workflows import Universe


async def fateful_takeover(
    universe: "Universe", mortal: "MortalStore", from_owner: HostId, owner: HostId, limit: int
) -> list[Run]:
    """A host may die over what it takes: then one run is a dead host's again, and the rest still are another's."""
    await mortal.require_alive()
    fates = ["is done", "crash before", "crash after one run", "crash after"]
    fate = universe.choose(f"takeover from {from_owner}", fates)
    if fate == "crash before":
        await mortal.die()
    limit = 1 if fate == "crash after one run" else limit
    runs = await universe.store.take_over(from_owner, owner, limit)
    if fate != "is done":
        await mortal.die()
    return runs


async def fateful_glance(universe: "Universe", mortal: "MortalStore", scope: Scope) -> Glance:
    """What comes again and late is due, though the store does not have it any more."""
    await mortal.require_alive()
    glance = await universe.store.glance(scope)
    return msgspec.structs.replace(glance, next_due_ms=0) if mortal.late else glance
