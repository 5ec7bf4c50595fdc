"""Postgres databases for tests: without a schema, or with empty books.

Making the schema takes a tenth of a second of the server's time, and emptying its tables a tenth of that.
"""

import asyncpg

from perdure.store.opening import open_store

ALONE = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid();
"""
"""Connections that an earlier test left open are ended first: their locks would block what follows."""

WITHOUT_SCHEMA = (
    "DROP SCHEMA IF EXISTS perdure CASCADE; DROP SCHEMA public CASCADE; CREATE SCHEMA public"
)

DELETE_ROWS = """
DO $$
DECLARE
  filled record;
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  PERFORM set_config('session_replication_role', 'replica', true);  -- no foreign key is checked
  FOR filled IN
    SELECT oid::regclass AS name, pg_relation_size(oid) AS size FROM pg_class
     WHERE relnamespace IN ('perdure'::regnamespace, 'public'::regnamespace)
       AND relkind = 'r' AND relname <> 'meta' AND pg_relation_size(oid) > 0
  LOOP
    -- A small table is deleted from in a fifth of the time.
    IF filled.size > 100000 THEN
      EXECUTE format('TRUNCATE %s CASCADE', filled.name);
    ELSE
      EXECUTE format('DELETE FROM %s', filled.name);
    END IF;
  END LOOP;
END $$;
"""

DROP_TABLES_OF_USERS = """
DO $$
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  IF EXISTS (SELECT FROM pg_depend
              WHERE refclassid = 'pg_namespace'::regclass AND refobjid = 'public'::regnamespace) THEN
    DROP SCHEMA public CASCADE;
    CREATE SCHEMA public;
  END IF;
END $$;
"""

DEFINITION = """
SELECT md5(string_agg(part, ';' ORDER BY part)) FROM (
  SELECT concat_ws(',', 'class', oid, relname, relkind, relacl, reloptions, relpersistence) AS part
    FROM pg_class WHERE relnamespace = 'perdure'::regnamespace
  UNION ALL
  SELECT concat_ws(',', 'column', attrelid, attnum, attname, atttypid, attnotnull, atthasdef)
    FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
   WHERE relnamespace = 'perdure'::regnamespace
  UNION ALL
  SELECT concat_ws(',', 'constraint', oid, conname, convalidated)
    FROM pg_constraint WHERE connamespace = 'perdure'::regnamespace
  UNION ALL
  SELECT concat_ws(',', 'trigger', pg_trigger.oid, tgname, tgenabled)
    FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid
   WHERE relnamespace = 'perdure'::regnamespace
  UNION ALL
  SELECT concat_ws(',', 'function', oid, proname)
    FROM pg_proc WHERE pronamespace = 'perdure'::regnamespace
  UNION ALL
  SELECT concat_ws(',', 'meta', key, value) FROM perdure.meta
) AS parts
"""
"""Equal only if nothing has changed the schema since: the identifiers of its objects belong to it."""


class EmptyBooks:
    """The books of one database, emptied for one test after the other."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._definition: str | None = None

    async def empty(self) -> None:
        """Empty the books, and drop all other tables. Makes the schema again if a test has changed it."""
        connection = await asyncpg.connect(self.url)
        try:
            await connection.execute(ALONE)
            if self._definition is not None and await _definition(connection) == self._definition:
                await connection.execute(DROP_TABLES_OF_USERS + DELETE_ROWS)
                return
            await connection.execute(WITHOUT_SCHEMA)
            store = await open_store(self.url)
            await store.close()
            self._definition = await _definition(connection)
        finally:
            await connection.close()

    async def drop(self) -> None:
        """Leave a database without a `perdure` schema, and with an empty `public` one."""
        connection = await asyncpg.connect(self.url)
        try:
            await connection.execute(ALONE + WITHOUT_SCHEMA)
        finally:
            await connection.close()


async def _definition(connection: "asyncpg.Connection[asyncpg.Record]") -> str | None:
    """A digest of the schema; `None` if it is not there, or is not whole."""
    try:
        found: str | None = await connection.fetchval(DEFINITION)
    except asyncpg.PostgresError:
        return None
    return found
