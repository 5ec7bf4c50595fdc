"""The store itself, and engines that were stopped."""

from perdure.core.errors.base import PerdureError


class EngineClosed(PerdureError):
    code = "engine-closed"


class StoreError(PerdureError):
    code = "store"


class StoreUnavailable(StoreError):
    code = "store-unavailable"


class SchemaTooNew(StoreError):
    code = "schema-too-new"


class SchemaTooOld(StoreError):
    code = "schema-too-old"


class NotOurDatabase(StoreError):
    code = "not-our-database"


class ForeignSqlite(StoreError):
    code = "foreign-sqlite"


class StoreClosed(StoreError):
    code = "store-closed"
