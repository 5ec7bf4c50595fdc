/* The SQLite routines in use, called through the table that SQLite passes to an extension.

   The library is the one inside the connection's driver: there is nothing to link to, and no header of the same version
   need be installed. Positions in the table are part of SQLite's interface and never change; new routines are added at
   its end. */

#ifndef PERDURE_SQLITE_H
#define PERDURE_SQLITE_H

#include <stdint.h>

#include "locks.h"

typedef struct sqlite3 sqlite3;
typedef struct sqlite3_stmt sqlite3_stmt;
typedef void (*Routine)(void);

enum { SQLITE_OK = 0, SQLITE_ROW = 100, SQLITE_DONE = 101 };

/* Checkpoints as far as readers and writers allow, without waiting for any. */
enum { CHECKPOINT_PASSIVE = 0 };

/* The statement lives as long as the connection. */
enum { PREPARE_PERSISTENT = 1 };

enum {
    BIND_BLOB = 2,
    BIND_INT64 = 5,
    BIND_NULL = 6,
    BIND_PARAMETER_COUNT = 7,
    BIND_TEXT = 10,
    BUSY_TIMEOUT = 14,
    CHANGES = 15,
    FINALIZE = 57,
    GET_AUTOCOMMIT = 60,
    LIBVERSION_NUMBER = 67,
    RESET = 77,
    STEP = 94,
    VFS_FIND = 141,
    WAL_HOOK = 175,
    WAL_CHECKPOINT_V2 = 191,
    PREPARE_V3 = 217
};

/* Set by SQLite when the extension is loaded; the same for all connections of one library. */
static const Routine *routines;

#define CALL(place, type) ((type)routines[place])

/* SQLite need not copy the bytes: they stay in place until the statement has run. */
#define IN_PLACE ((void (*)(void *))0)

static inline int
bind_blob(sqlite3_stmt *statement, int place, const void *data, int size)
{
    return CALL(BIND_BLOB, int (*)(sqlite3_stmt *, int, const void *, int, void (*)(void *)))(
        statement, place, data, size, IN_PLACE);
}

static inline int
bind_text(sqlite3_stmt *statement, int place, const char *data, int size)
{
    return CALL(BIND_TEXT, int (*)(sqlite3_stmt *, int, const char *, int, void (*)(void *)))(
        statement, place, data, size, IN_PLACE);
}

static inline int
bind_integer(sqlite3_stmt *statement, int place, int64_t number)
{
    return CALL(BIND_INT64, int (*)(sqlite3_stmt *, int, int64_t))(statement, place, number);
}

static inline int
bind_null(sqlite3_stmt *statement, int place)
{
    return CALL(BIND_NULL, int (*)(sqlite3_stmt *, int))(statement, place);
}

static inline int
parameters_of(sqlite3_stmt *statement)
{
    return CALL(BIND_PARAMETER_COUNT, int (*)(sqlite3_stmt *))(statement);
}

static inline int
step(sqlite3_stmt *statement)
{
    return CALL(STEP, int (*)(sqlite3_stmt *))(statement);
}

static inline int
reset(sqlite3_stmt *statement)
{
    return CALL(RESET, int (*)(sqlite3_stmt *))(statement);
}

static inline int
finalize(sqlite3_stmt *statement)
{
    return CALL(FINALIZE, int (*)(sqlite3_stmt *))(statement);
}

static inline int
prepare(sqlite3 *database, const char *sql, sqlite3_stmt **statement)
{
    return CALL(PREPARE_V3, int (*)(sqlite3 *, const char *, int, unsigned int, sqlite3_stmt **, const char **))(
        database, sql, -1, PREPARE_PERSISTENT, statement, 0);
}

static inline int
changes(sqlite3 *database)
{
    return CALL(CHANGES, int (*)(sqlite3 *))(database);
}

/* Whether a transaction is open. */
static inline int
is_in_transaction(sqlite3 *database)
{
    return !CALL(GET_AUTOCOMMIT, int (*)(sqlite3 *))(database);
}

static inline int
set_busy_timeout(sqlite3 *database, int limit_ms)
{
    return CALL(BUSY_TIMEOUT, int (*)(sqlite3 *, int))(database, limit_ms);
}

static inline int
library_version(void)
{
    return CALL(LIBVERSION_NUMBER, int (*)(void))();
}

/* The default VFS, which connections use. */
static inline sqlite3_vfs *
find_vfs(void)
{
    return CALL(VFS_FIND, sqlite3_vfs * (*)(const char *))(0);
}

typedef int (*WalHook)(void *, sqlite3 *, const char *, int);

static inline void
set_wal_hook(sqlite3 *database, WalHook hook, void *argument)
{
    CALL(WAL_HOOK, void *(*)(sqlite3 *, WalHook, void *))(database, hook, argument);
}

static inline void
checkpoint_passive(sqlite3 *database)
{
    CALL(WAL_CHECKPOINT_V2, int (*)(sqlite3 *, const char *, int, int *, int *))(database, 0, CHECKPOINT_PASSIVE, 0, 0);
}

#endif
