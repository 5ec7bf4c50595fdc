/* File locks that survive when something else in this process closes the file.

   SQLite uses POSIX locks, which belong to the process: `close` of any descriptor on a file drops all locks that the
   process has on it. So a second SQLite library in the process, or a backup that copies the file, silently drops the
   locks of an open store. Then another process may write at the same time, or remove the write-ahead log.

   Locks of an open file description (F_OFD_SETLK) belong to one descriptor, conflict with POSIX locks of every process
   including this one, and are released only with that descriptor. SQLite lets an extension replace the system calls that it
   uses. So for the files of a store:

   - `open` also opens a second descriptor, one per file, on which nothing but locks is done;
   - `fcntl` sets and tests locks on that descriptor, as locks of the open file description;
   - `close` closes it together with SQLite's last descriptor on the file.

   One descriptor per file, because SQLite shares a file's locks among all its connections in a process, and may release
   through one of them what it took through another. All other files, and all other calls, go to the system as before.

   A child of `fork` shares open file descriptions: it would hold the locks of a parent that died. So it closes its
   copies of the lock descriptors. */

#if !defined(_WIN32) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* for F_OFD_SETLK */
#endif

#include "locks.h"

#ifndef _WIN32
#include <fcntl.h>
#endif

#if defined(F_OFD_SETLK) && defined(F_OFD_SETLKW) && defined(F_OFD_GETLK)

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef void (*SystemCall)(void);

/* As SQLite lays it out; its interface guarantees the order. */
struct sqlite3_vfs {
    int version;
    int file_size;
    int longest_path;
    sqlite3_vfs *next;
    const char *name;
    void *data;
    SystemCall open, delete_, access;
    int (*full_path)(sqlite3_vfs *, const char *, int, char *);
    SystemCall dl_open, dl_error, dl_sym, dl_close, randomness, sleep, current_time, last_error;
    SystemCall current_time_64;
    int (*set_call)(sqlite3_vfs *, const char *, SystemCall);
    SystemCall (*get_call)(sqlite3_vfs *, const char *);
    SystemCall next_call;
};

enum { HAS_SYSTEM_CALLS = 3, SQLITE_OK = 0, NO_FILE = -1, CLOSED = -1, FIRST_FREE_DESCRIPTOR = 3 };

typedef int (*Open)(const char *, int, int);
typedef int (*Close)(int);
typedef int (*Fcntl)(int, int, ...);

static Open system_open;
static Close system_close;
static Fcntl system_fcntl;

/* A file of a store that SQLite has open. An entry of the table is free if it has no users. */
typedef struct {
    dev_t device;
    ino_t inode;
    int users; /* descriptors of SQLite on it */
    int lock_descriptor;
    int flags;
    char *path;
} File;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards the tables below; not held while waiting for a lock */
static File *files;
static int file_count;
static int *file_of; /* by descriptor: an index into `files`, or NO_FILE */
static int descriptor_count;
static char **paths; /* of files whose locks this module manages */
static int path_count;

static int
is_same(const File *file, const struct stat *status)
{
    return file->device == status->st_dev && file->inode == status->st_ino;
}

/* Opens above the standard streams: output written to those must never reach a database. */
static int
open_high(const char *path, int flags)
{
    int low = system_open(path, flags, 0);
    if (low < 0 || low >= FIRST_FREE_DESCRIPTOR) {
        return low;
    }
    int high = system_fcntl(low, F_DUPFD_CLOEXEC, FIRST_FREE_DESCRIPTOR);
    system_close(low);
    return high;
}

/* The descriptor that has the file's locks, or -1 with errno set. */
static int
lock_descriptor_of(File *file)
{
    struct stat status;
    if (file->lock_descriptor != CLOSED) {
        return file->lock_descriptor;
    }
    int descriptor = open_high(file->path, file->flags);
    if (descriptor < 0) {
        return -1;
    }
    if (fstat(descriptor, &status) != 0 || !is_same(file, &status)) {
        /* The path names another file by now. */
        system_close(descriptor);
        errno = EIO;
        return -1;
    }
    return file->lock_descriptor = descriptor;
}

static int
make_room(int descriptor)
{
    if (descriptor < descriptor_count) {
        return 1;
    }
    int count = 2 * descriptor + 16;
    int *larger = realloc(file_of, (size_t)count * sizeof(int));
    if (larger == NULL) {
        return 0;
    }
    for (int each = descriptor_count; each < count; each++) {
        larger[each] = NO_FILE;
    }
    file_of = larger;
    descriptor_count = count;
    return 1;
}

/* The file's index, with one user more; NO_FILE if memory is short. */
static int
use_file(const struct stat *status, const char *path, int flags)
{
    int place = NO_FILE;
    for (int each = 0; each < file_count; each++) {
        if (files[each].users > 0 && is_same(&files[each], status)) {
            files[each].users++;
            return each;
        }
        if (files[each].users == 0) {
            place = each;
        }
    }
    char *copy = strdup(path);
    if (copy != NULL && place == NO_FILE) {
        File *more = realloc(files, (size_t)(file_count + 1) * sizeof(File));
        if (more != NULL) {
            files = more;
            place = file_count++;
            files[place].users = 0;
        }
    }
    if (copy == NULL || place == NO_FILE) {
        free(copy);
        return NO_FILE;
    }
    files[place] = (File){status->st_dev, status->st_ino, 1, CLOSED, flags, copy};
    return place;
}

/* Returns the lock descriptor if it has to be closed, else CLOSED. */
static int
leave_file(int place)
{
    File *file = &files[place];
    if (--file->users > 0) {
        return CLOSED;
    }
    free(file->path);
    file->path = NULL;
    return file->lock_descriptor;
}

static int
track(int descriptor, const char *path, int flags)
{
    struct stat status;
    if (fstat(descriptor, &status) != 0) {
        return 0;
    }
    if (!make_room(descriptor)) {
        errno = ENOMEM;
        return 0;
    }
    int place = use_file(&status, path, flags);
    if (place == NO_FILE) {
        errno = ENOMEM;
        return 0;
    }
    if (lock_descriptor_of(&files[place]) < 0) {
        leave_file(place);
        return 0;
    }
    file_of[descriptor] = place;
    return 1;
}

static int
has_own_locks(const char *path)
{
    for (int each = 0; each < path_count; each++) {
        if (strcmp(paths[each], path) == 0) {
            return 1;
        }
    }
    return 0;
}

static int
open_tracked(const char *path, int flags, int mode)
{
    int descriptor = system_open(path, flags, mode);
    if (descriptor < 0) {
        return descriptor;
    }
    int reason = 0;
    pthread_mutex_lock(&mutex);
    if (has_own_locks(path) && !track(descriptor, path, flags & ~(O_CREAT | O_EXCL | O_TRUNC))) {
        reason = errno;
    }
    pthread_mutex_unlock(&mutex);
    if (reason != 0) {
        system_close(descriptor);
        errno = reason;
        return -1;
    }
    return descriptor;
}

static int
close_tracked(int descriptor)
{
    int lock_descriptor = CLOSED;
    pthread_mutex_lock(&mutex);
    if (descriptor >= 0 && descriptor < descriptor_count && file_of[descriptor] != NO_FILE) {
        lock_descriptor = leave_file(file_of[descriptor]);
        file_of[descriptor] = NO_FILE;
    }
    pthread_mutex_unlock(&mutex);
    if (lock_descriptor != CLOSED) {
        system_close(lock_descriptor);
    }
    return system_close(descriptor);
}

/* -1 with errno set if the descriptor can't be opened; NO_LOCKS if the file is not a store's. */
enum { NO_LOCKS = -2 };

static int
descriptor_for_locks(int descriptor)
{
    int found = NO_LOCKS;
    pthread_mutex_lock(&mutex);
    if (descriptor >= 0 && descriptor < descriptor_count && file_of[descriptor] != NO_FILE) {
        found = lock_descriptor_of(&files[file_of[descriptor]]);
    }
    pthread_mutex_unlock(&mutex);
    return found;
}

static int
own_command(int command)
{
    return command == F_SETLK ? F_OFD_SETLK : command == F_SETLKW ? F_OFD_SETLKW : F_OFD_GETLK;
}

static int
fcntl_tracked(int descriptor, int command, ...)
{
    va_list rest;
    va_start(rest, command);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    if (command != F_SETLK && command != F_SETLKW && command != F_GETLK) {
        return system_fcntl(descriptor, command, argument);
    }
    int lock_descriptor = descriptor_for_locks(descriptor);
    if (lock_descriptor == NO_LOCKS) {
        return system_fcntl(descriptor, command, argument);
    }
    if (lock_descriptor < 0) {
        return -1;
    }
    struct flock *asked = argument, own = *asked;
    own.l_pid = 0; /* the system requires it */
    int result = system_fcntl(lock_descriptor, own_command(command), &own);
    if (command == F_GETLK && result == 0) {
        *asked = own;
    }
    return result;
}

static void
before_fork(void)
{
    pthread_mutex_lock(&mutex);
}

static void
after_fork_in_parent(void)
{
    pthread_mutex_unlock(&mutex);
}

static void
after_fork_in_child(void)
{
    for (int each = 0; each < file_count; each++) {
        if (files[each].users > 0 && files[each].lock_descriptor != CLOSED) {
            system_close(files[each].lock_descriptor);
            files[each].lock_descriptor = CLOSED;
        }
    }
    pthread_mutex_unlock(&mutex);
}

/* Whether the kernel knows these locks: an old one answers EINVAL. */
static int
are_supported(const char *directory)
{
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    int descriptor = open(directory, O_RDONLY | O_CLOEXEC);
    int result = descriptor < 0 ? -1 : fcntl(descriptor, F_OFD_GETLK, &lock);
    if (descriptor >= 0) {
        close(descriptor);
    }
    return result == 0;
}

static int
replace_calls(sqlite3_vfs *vfs)
{
    if (system_open != NULL) {
        return 1;
    }
    if (vfs == NULL || vfs->version < HAS_SYSTEM_CALLS || strncmp(vfs->name, "unix", 4) != 0
        || vfs->set_call == NULL || !are_supported("/")) {
        return 0;
    }
    Open found_open = (Open)vfs->get_call(vfs, "open");
    Close found_close = (Close)vfs->get_call(vfs, "close");
    Fcntl found_fcntl = (Fcntl)vfs->get_call(vfs, "fcntl");
    if (found_open == NULL || found_close == NULL || found_fcntl == NULL
        || pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) != 0) {
        return 0;
    }
    system_open = found_open;
    system_close = found_close;
    system_fcntl = found_fcntl;
    /* Calls of other threads between these lines see only files that aren't tracked yet. */
    vfs->set_call(vfs, "fcntl", (SystemCall)fcntl_tracked);
    vfs->set_call(vfs, "close", (SystemCall)close_tracked);
    vfs->set_call(vfs, "open", (SystemCall)open_tracked);
    return 1;
}

static int
add_path(const char *path, const char *suffix)
{
    char *whole = malloc(strlen(path) + strlen(suffix) + 1);
    char **more = realloc(paths, (size_t)(path_count + 1) * sizeof(char *));
    if (more != NULL) {
        paths = more;
    }
    if (whole == NULL || more == NULL) {
        free(whole);
        return 0;
    }
    strcpy(whole, path);
    strcat(whole, suffix);
    paths[path_count++] = whole;
    return 1;
}

int
own_locks(sqlite3_vfs *vfs, const char *path)
{
    int result = 0;
    pthread_mutex_lock(&mutex);
    char *full = NULL;
    if (replace_calls(vfs)) {
        size_t size = (size_t)vfs->longest_path + 1;
        full = malloc(size);
        if (full == NULL) {
            result = -1;
        }
        else if ((vfs->full_path(vfs, path, (int)size, full) & 0xff) == SQLITE_OK) {
            result = has_own_locks(full) || (add_path(full, "-shm") && add_path(full, "")) ? 1 : -1;
        }
    }
    free(full);
    pthread_mutex_unlock(&mutex);
    return result;
}

#else

int
own_locks(sqlite3_vfs *vfs, const char *path)
{
    (void)vfs;
    (void)path;
    return 0;
}

#endif
