"""Errors of the store, and of stopped engines."""

from perdure.core.errors.base import PerdureError


class EngineClosed(PerdureError):
    code = "engine-closed"


class UsedAfterFork(PerdureError):
    """An object that the parent process opened before it forked this one. Nothing was changed."""

    code = "used-after-fork"


class StoreError(PerdureError):
    code = "store"


class StoreUnavailable(StoreError):
    code = "store-unavailable"


class StoreDamaged(StoreError):
    code = "store-damaged"


class SchemaTooNew(StoreError):
    code = "schema-too-new"


class StoreMoved(SchemaTooNew):
    """The store was moved, or is being moved: engines must not use it."""

    code = "store-moved"


class SchemaTooOld(StoreError):
    code = "schema-too-old"


class NotOurDatabase(StoreError):
    code = "not-our-database"


class ForeignSqlite(StoreError):
    code = "foreign-sqlite"


class StoreClosed(StoreError):
    code = "store-closed"


class ArtifactDamaged(StoreError):
    """The bytes of an artifact are not those that were stored."""

    code = "artifact-damaged"


class ArtifactMissing(StoreError):
    """The artifact is not in its store: it expired, was erased, or the store is another one."""

    code = "artifact-missing"
