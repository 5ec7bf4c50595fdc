/* File locks that belong to the store's own descriptors instead of to the process. */

#ifndef PERDURE_LOCKS_H
#define PERDURE_LOCKS_H

/* SQLite's table of operating system functions. */
typedef struct sqlite3_vfs sqlite3_vfs;

/* From now on, locks on this database and its -shm file belong to an open file description. Call it before the first
   connection to the database is opened. Returns 1 if they do, 0 if the operating system or this SQLite can't, and -1
   if there is no memory. */
int own_locks(sqlite3_vfs *vfs, const char *path);

#endif
