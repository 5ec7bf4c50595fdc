"""Forwards messages of a continued run to the last run of its chain, under the same GUID."""

import msgspec

from perdure.core.messages import SENT, Message
from perdure.core.runs.acts import act_of, closed_verdict, is_act
from perdure.store.commit.bundle import Bundle
from perdure.store.commit.fence import Fence
from perdure.store.rows.records import Run
from perdure.store.store import Store


def is_for_run(message: Message) -> bool:
    """Whether the message is a signal, a cancel or an act. Others belong to a step, and are void when it has ended."""
    return message.kind.startswith(SENT)


async def forward(store: Store, run: Run, message: Message) -> Message | None:
    """Commits: a message to `run`, which was continued, is addressed to the last run of its chain.

    Returns the message with its new address; its row stays until a run takes it in. Returns `None` if a run of the
    chain has taken it in before (it is marked stale), or if the chain has ended (it is marked dead).
    """
    end = await store.chain_end(run.origin)
    # Read after the end of the chain: so it includes all that a run took in before it was continued.
    taken = await store.taken_in_chain(run.origin, [message.guid])
    bundle, fence = Bundle(), Fence(run.run_id, run.epoch)
    if taken:
        bundle.mark(fence, message.guid, "stale", "duplicate: a run of the chain has received it")
    elif end is None or end.is_over:
        what = "gone" if end is None else f"{end.status}"
        reason = f"the run that continues this one is {what}"
        if is_act(message.kind):
            reason = closed_verdict(act_of(message), reason)
        bundle.mark(fence, message.guid, "dead", reason)
    else:
        bundle.forward(run.run_id, message.guid, end.run_id)
        await store.commit(bundle)
        return msgspec.structs.replace(message, run_id=end.run_id)
    await store.commit(bundle)
    return None
