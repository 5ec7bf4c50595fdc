"""Messages to runs that were continued: they belong to the run that goes on, under the same GUID."""

import msgspec

from perdure.core.messages import Message
from perdure.store.bundle import Bundle
from perdure.store.primitives import Fence
from perdure.store.records import Run
from perdure.store.store import Store


def is_asked_for(message: Message) -> bool:
    """Whether somebody sent it, who wants it to arrive; others belong to a step, and end with it."""
    return message.kind.startswith(("signal:", "cancel"))


async def forward(store: Store, run: Run, message: Message) -> Message | None:
    """Commits: a message to `run`, which was continued, is for the end of its chain. Returns it as that has it.

    `None` if some run of the chain has taken it in before, or the chain is over. Any other message is there yet,
    for this run or a later one: it goes when it is taken in, and not before.
    """
    end = await store.chain_end(run.origin)
    # Asked after the end was found: what a run took in before it was continued is seen.
    taken = await store.taken_in_chain(run.origin, [message.guid])
    bundle, fence = Bundle(), Fence(run.run_id, run.epoch)
    if taken:
        bundle.mark(fence, message.guid, "stale", "it came late, or again")
    elif end is None or end.closed_at_ms is not None:
        what = "gone" if end is None else f"{end.status}"
        bundle.mark(fence, message.guid, "dead", f"the run that goes on for it is {what}")
    else:
        bundle.forward(run.run_id, message.guid, end.run_id)
        await store.commit(bundle)
        return msgspec.structs.replace(message, run_id=end.run_id)
    await store.commit(bundle)
    return None
