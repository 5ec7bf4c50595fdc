"""The fence: the right to write one run."""

import msgspec

from perdure.core.ids import RunId


class Fence(msgspec.Struct, eq=False, gc=False):
    """The epoch under which an owner writes a run. Broken as soon as one bundle under it is rejected.

    A takeover raises the epoch in the store, so that the store rejects every bundle under the old one: the statement
    `advance_runs` changes no row then, and `unfit_heads` in `rejections.py` finds the bundles to refuse. A rejected
    bundle breaks the fence because the journal in memory is then ahead of the store: the host must load the run
    again, under a new fence.
    """

    run_id: RunId
    epoch: int
    broken: bool = False
