"""Audit and verification of a store without an engine, also of a store that no engine could open."""

from collections.abc import Mapping

from perdure.host.clock import HostSources
from perdure.store import inspection
from perdure.store.inspection import Report
from perdure.store.opening import open_store


async def audit(url: str) -> Report:
    """Whether journal and ledger agree in every run of a store, and whether its database reports damaged files.

    Changes, takes over and owns nothing. The store must exist and have the schema of this version.
    """
    store = await open_store(url, as_it_is=True)
    try:
        return await inspection.audit_store(store, HostSources().now_ms())
    finally:
        await store.close()


async def verify(url: str, *, heads: Mapping[str, str] | None = None) -> Report:
    """Whether every entry is as it was written. With `heads` of an earlier report, also whether entries or runs of
    that time are missing."""
    store = await open_store(url, as_it_is=True)
    try:
        return await inspection.verify_store(store, heads)
    finally:
        await store.close()
