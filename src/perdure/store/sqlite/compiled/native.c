/* Commits a group natively: all of its statements, from BEGIN to COMMIT, without the interpreter's lock.

   Every call into SQLite from Python releases that lock and must win it back from the event loop's thread, which may be
   busy for milliseconds. So the loop's thread converts the values of all rows and submits them as one job. The
   connection's thread waits for jobs in `serve`, executes them there, and reports the end of each with a byte on a
   socket that the loop watches: it never needs the interpreter's lock. A group may also be written in the caller's
   thread.

   `writing.py` is the reference implementation. A group that fails here in any way is rolled back and written again by
   `writing.py`, statement by statement, so that errors are raised in one place. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <limits.h>

#ifndef _WIN32
#include <errno.h>
#include <unistd.h>
#endif

#include "audit.h"
#include "locks.h"
#include "sqlite.h"

enum { NOT_DONE = 0, DONE = 1 };

#define ANY_COUNT (-1)

typedef struct {
    enum { NOTHING, INTEGER, TEXT, BYTES } kind;
    int size;
    union {
        int64_t number;
        const char *data;
    };
} Value;

/* One statement and its rows. */
typedef struct {
    sqlite3_stmt *statement;
    int width;
    Py_ssize_t rows;
    Py_ssize_t expected;
    PyObject *kept; /* a tuple of the rows, because the caller may change its list meanwhile */
    Value *values;
} StatementRows;

/* The statements of one transaction. */
typedef struct {
    Py_ssize_t size;
    StatementRows *parts;
    int is_done;
} Job;

typedef struct {
    PyObject_HEAD
    sqlite3 *database;
    int busy_ms;
    int wal_pages; /* length of the write-ahead log after the last commit; 0 after a checkpoint */
    int max_wal_pages;
    Py_ssize_t count;
    sqlite3_stmt **statements;
    sqlite3_stmt *begin, *commit, *rollback;

    Job job; /* submitted while `has_job` is set, until `take_result` */
    int socket;
    PyThread_type_lock lock; /* guards the flags below; held briefly, and never while waiting for `bell` */
    PyThread_type_lock bell; /* always locked; released once to wake up `serve` */
    int is_waiting, is_stopped, is_checkpointing;
    int has_job, is_started, is_finished;
} NativeWriter;

/* Converting values, with the interpreter's lock */

/* False if the value is too large or of a type that no column has. */
static int
convert_value(PyObject *object, Value *value)
{
    if (object == Py_None) {
        value->kind = NOTHING;
        return 1;
    }
    if (PyLong_CheckExact(object) || PyBool_Check(object)) {
        int overflow;
        value->kind = INTEGER;
        value->number = PyLong_AsLongLongAndOverflow(object, &overflow);
        return !overflow;
    }
    Py_ssize_t size;
    if (PyBytes_CheckExact(object)) {
        value->kind = BYTES;
        value->data = PyBytes_AS_STRING(object);
        size = PyBytes_GET_SIZE(object);
    }
    else if (PyUnicode_Check(object)) {
        value->kind = TEXT;
        value->data = PyUnicode_AsUTF8AndSize(object, &size);
        if (value->data == NULL) {
            PyErr_Clear();
            return 0;
        }
    }
    else {
        return 0;
    }
    value->size = (int)size;
    return size <= INT_MAX;
}

static int
convert_rows(StatementRows *part)
{
    part->values = PyMem_New(Value, (size_t)part->rows * (size_t)part->width);
    Value *value = part->values;
    if (value == NULL) {
        return 0;
    }
    for (Py_ssize_t i = 0; i < part->rows; i++) {
        PyObject *row = PyTuple_GET_ITEM(part->kept, i);
        if (!PyTuple_Check(row) || PyTuple_GET_SIZE(row) != part->width) {
            return 0;
        }
        for (int n = 0; n < part->width; n++) {
            if (!convert_value(PyTuple_GET_ITEM(row, n), value++)) {
                return 0;
            }
        }
    }
    return 1;
}

static int
make_statement_rows(NativeWriter *writer, PyObject *object, StatementRows *part)
{
    Py_ssize_t number;
    PyObject *rows;
    if (!PyTuple_Check(object) || !PyArg_ParseTuple(object, "nOn", &number, &rows, &part->expected)) {
        PyErr_Clear();
        return 0;
    }
    if (number < 0 || number >= writer->count || !PyList_Check(rows)) {
        return 0;
    }
    part->statement = writer->statements[number];
    part->width = parameters_of(part->statement);
    part->kept = PyList_AsTuple(rows);
    if (part->kept == NULL) {
        PyErr_Clear();
        return 0;
    }
    part->rows = PyTuple_GET_SIZE(part->kept);
    return convert_rows(part);
}

/* Writing, without the interpreter's lock */

/* Leaves the values bound although their memory is freed later: the next run of the statement binds all of them first. */
static int
run(sqlite3_stmt *statement)
{
    int code = step(statement);
    reset(statement);
    return code == SQLITE_DONE;
}

static int
bind(sqlite3_stmt *statement, int place, const Value *value)
{
    switch (value->kind) {
    case INTEGER:
        return bind_integer(statement, place, value->number);
    case TEXT:
        return bind_text(statement, place, value->data, value->size);
    case BYTES:
        return bind_blob(statement, place, value->data, value->size);
    default:
        return bind_null(statement, place);
    }
}

static int
run_rows(sqlite3 *database, const StatementRows *part)
{
    const Value *value = part->values;
    Py_ssize_t changed = 0;
    for (Py_ssize_t i = 0; i < part->rows; i++) {
        for (int place = 1; place <= part->width; place++) {
            if (bind(part->statement, place, value++) != SQLITE_OK) {
                return NOT_DONE;
            }
        }
        if (!run(part->statement)) {
            return NOT_DONE;
        }
        if (part->expected != ANY_COUNT) {
            changed += changes(database);
        }
    }
    return part->expected == ANY_COUNT || changed == part->expected ? DONE : NOT_DONE;
}

static int
commit_job(NativeWriter *writer, const StatementRows *parts, Py_ssize_t count)
{
    if (!run(writer->begin)) {
        return NOT_DONE;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!run_rows(writer->database, &parts[i])) {
            return NOT_DONE;
        }
    }
    return run(writer->commit);
}

/* Does not touch a transaction that is open already: another user of the connection began it. */
static void
do_job(NativeWriter *writer, Job *job)
{
    job->is_done = NOT_DONE;
    if (is_in_transaction(writer->database)) {
        return;
    }
    job->is_done = commit_job(writer, job->parts, job->size);
    if (!job->is_done && is_in_transaction(writer->database)) {
        run(writer->rollback);
    }
}

/* Jobs */

static void
drop_job(Job *job)
{
    for (Py_ssize_t i = 0; i < job->size; i++) {
        Py_XDECREF(job->parts[i].kept);
        PyMem_Free(job->parts[i].values);
    }
    PyMem_Free(job->parts);
    memset(job, 0, sizeof *job);
}

/* False if a value can't be converted or memory is short: then the job is empty. */
static int
make_job(NativeWriter *writer, PyObject *list, Job *job)
{
    memset(job, 0, sizeof *job);
    PyObject *plan = PyList_AsTuple(list);
    if (plan != NULL) {
        job->parts = PyMem_Calloc((size_t)PyTuple_GET_SIZE(plan) + 1, sizeof(StatementRows));
    }
    if (job->parts == NULL) {
        PyErr_Clear();
        Py_XDECREF(plan);
        return 0;
    }
    int is_made = 1;
    for (Py_ssize_t i = 0; is_made && i < PyTuple_GET_SIZE(plan); i++) {
        job->size = i + 1;
        is_made = make_statement_rows(writer, PyTuple_GET_ITEM(plan, i), &job->parts[i]);
    }
    Py_DECREF(plan);
    if (!is_made) {
        drop_job(job);
    }
    return is_made;
}

/* Whether the connection's thread runs a checkpoint: waiting for it here would take long. */
static int
is_checkpointing(NativeWriter *writer)
{
    PyThread_acquire_lock(writer->lock, WAIT_LOCK);
    int is_so = writer->is_checkpointing;
    PyThread_release_lock(writer->lock);
    return is_so;
}

static PyObject *
write_here(PyObject *self, PyObject *list)
{
    NativeWriter *writer = (NativeWriter *)self;
    Job job;
    if (!PyList_Check(list)) {
        PyErr_SetString(PyExc_TypeError, "write takes a list of statements");
        return NULL;
    }
    if (writer->database == NULL || is_checkpointing(writer) || !make_job(writer, list, &job)) {
        Py_RETURN_FALSE;
    }
    Py_BEGIN_ALLOW_THREADS
    set_busy_timeout(writer->database, 0);
    do_job(writer, &job);
    set_busy_timeout(writer->database, writer->busy_ms);
    Py_END_ALLOW_THREADS
    PyObject *is_done = PyBool_FromLong(job.is_done);
    drop_job(&job);
    return is_done;
}

static void
wake(NativeWriter *writer)
{
    if (writer->is_waiting) {
        writer->is_waiting = 0;
        PyThread_release_lock(writer->bell);
    }
}

static void
report(NativeWriter *writer)
{
#ifdef _WIN32
    (void)writer; /* no socket on Windows, and therefore no job */
#else
    const char byte = 1;
    while (write(writer->socket, &byte, 1) < 0 && errno == EINTR) {
    }
#endif
}

static PyObject *
submit(PyObject *self, PyObject *list)
{
    NativeWriter *writer = (NativeWriter *)self;
    Job job;
    if (!PyList_Check(list)) {
        PyErr_SetString(PyExc_TypeError, "submit takes a list of statements");
        return NULL;
    }
    /* Only the submitting thread sets and resets `has_job`. */
    if (writer->database == NULL || writer->socket < 0 || writer->has_job || !make_job(writer, list, &job)) {
        Py_RETURN_FALSE;
    }
    PyThread_acquire_lock(writer->lock, WAIT_LOCK);
    writer->job = job;
    writer->has_job = 1;
    writer->is_started = 0;
    writer->is_finished = 0;
    wake(writer);
    PyThread_release_lock(writer->lock);
    Py_RETURN_TRUE;
}

static PyObject *
take_result(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    NativeWriter *writer = (NativeWriter *)self;
    PyThread_acquire_lock(writer->lock, WAIT_LOCK);
    int is_finished = writer->has_job && writer->is_finished;
    Job job = writer->job;
    if (is_finished) {
        memset(&writer->job, 0, sizeof writer->job);
        writer->has_job = 0;
    }
    PyThread_release_lock(writer->lock);
    if (!is_finished) {
        PyErr_SetString(PyExc_RuntimeError, "no job has finished");
        return NULL;
    }
    PyObject *is_done = PyBool_FromLong(job.is_done);
    drop_job(&job);
    return is_done;
}

static void
serve_jobs(NativeWriter *writer)
{
    PyThread_acquire_lock(writer->lock, WAIT_LOCK);
    for (;;) {
        if (writer->has_job && !writer->is_started) {
            writer->is_started = 1;
            PyThread_release_lock(writer->lock);
            do_job(writer, &writer->job);
            int is_long = writer->wal_pages >= writer->max_wal_pages;
            if (is_long) {
                writer->wal_pages = 0; /* before the loop's thread sees the length and asks for a checkpoint itself */
            }
            PyThread_acquire_lock(writer->lock, WAIT_LOCK);
            writer->is_finished = 1;
            writer->is_checkpointing = is_long;
            report(writer);
            if (is_long) {
                PyThread_release_lock(writer->lock);
                checkpoint_passive(writer->database);
                PyThread_acquire_lock(writer->lock, WAIT_LOCK);
                writer->is_checkpointing = 0;
            }
        }
        else if (writer->is_stopped) {
            break;
        }
        else {
            writer->is_waiting = 1;
            PyThread_release_lock(writer->lock);
            PyThread_acquire_lock(writer->bell, WAIT_LOCK);
            PyThread_acquire_lock(writer->lock, WAIT_LOCK);
        }
    }
    writer->is_stopped = 0;
    PyThread_release_lock(writer->lock);
}

static PyObject *
serve(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    Py_BEGIN_ALLOW_THREADS
    serve_jobs((NativeWriter *)self);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *
stop_serving(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    NativeWriter *writer = (NativeWriter *)self;
    PyThread_acquire_lock(writer->lock, WAIT_LOCK);
    writer->is_stopped = 1;
    wake(writer);
    PyThread_release_lock(writer->lock);
    Py_RETURN_NONE;
}

/* The type */

static int
wal_grew(void *writer, sqlite3 *Py_UNUSED(database), const char *Py_UNUSED(name), int pages)
{
    ((NativeWriter *)writer)->wal_pages = pages;
    return SQLITE_OK;
}

static void
release_all(NativeWriter *writer)
{
    if (writer->database == NULL) {
        return;
    }
    set_wal_hook(writer->database, NULL, NULL);
    for (Py_ssize_t i = 0; i < writer->count; i++) {
        finalize(writer->statements[i]); /* which does nothing for NULL */
    }
    finalize(writer->begin);
    finalize(writer->commit);
    finalize(writer->rollback);
    writer->database = NULL;
}

static int
prepare_all(NativeWriter *writer, PyObject *texts)
{
    for (Py_ssize_t i = 0; i < writer->count; i++) {
        const char *sql = PyUnicode_AsUTF8(PyTuple_GET_ITEM(texts, i));
        if (sql == NULL) {
            return -1;
        }
        if (prepare(writer->database, sql, &writer->statements[i]) != SQLITE_OK) {
            PyErr_Format(PyExc_ValueError, "SQLite does not understand %s", sql);
            return -1;
        }
    }
    if (prepare(writer->database, "BEGIN IMMEDIATE", &writer->begin) != SQLITE_OK
        || prepare(writer->database, "COMMIT", &writer->commit) != SQLITE_OK
        || prepare(writer->database, "ROLLBACK", &writer->rollback) != SQLITE_OK) {
        PyErr_SetString(PyExc_ValueError, "SQLite can't prepare a transaction");
        return -1;
    }
    return 0;
}

static PyObject *
make_writer(PyTypeObject *type, PyObject *arguments, PyObject *Py_UNUSED(names))
{
    unsigned long long pointer;
    int busy_ms, max_wal_pages, socket;
    PyObject *texts;
    if (!PyArg_ParseTuple(arguments, "KiiiO!", &pointer, &busy_ms, &max_wal_pages, &socket, &PyTuple_Type, &texts)) {
        return NULL;
    }
    if (routines == NULL || pointer == 0) {
        PyErr_SetString(PyExc_ValueError, "load this module into the connection first");
        return NULL;
    }
    NativeWriter *writer = (NativeWriter *)type->tp_alloc(type, 0);
    if (writer == NULL) {
        return NULL;
    }
    writer->statements = PyMem_Calloc((size_t)PyTuple_GET_SIZE(texts) + 1, sizeof(sqlite3_stmt *));
    writer->lock = PyThread_allocate_lock();
    writer->bell = PyThread_allocate_lock();
    if (writer->statements == NULL || writer->lock == NULL || writer->bell == NULL) {
        Py_DECREF(writer);
        return PyErr_NoMemory();
    }
    PyThread_acquire_lock(writer->bell, WAIT_LOCK);
#ifdef _WIN32
    socket = -1;
#endif
    writer->socket = socket;
    writer->count = PyTuple_GET_SIZE(texts);
    writer->busy_ms = busy_ms;
    writer->max_wal_pages = max_wal_pages;
    writer->database = (sqlite3 *)(uintptr_t)pointer;
    if (prepare_all(writer, texts) < 0) {
        Py_DECREF(writer);
        return NULL;
    }
    set_wal_hook(writer->database, wal_grew, writer);
    return (PyObject *)writer;
}

static void
drop_writer(PyObject *self)
{
    NativeWriter *writer = (NativeWriter *)self;
    release_all(writer);
    drop_job(&writer->job);
    PyMem_Free(writer->statements);
    if (writer->lock != NULL) {
        PyThread_free_lock(writer->lock);
    }
    if (writer->bell != NULL) {
        PyThread_release_lock(writer->bell);
        PyThread_free_lock(writer->bell);
    }
    Py_TYPE(self)->tp_free(self);
}

static PyObject *
close_writer(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    release_all((NativeWriter *)self);
    Py_RETURN_NONE;
}

static PyObject *
checkpoint_wal(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    NativeWriter *writer = (NativeWriter *)self;
    writer->wal_pages = 0;
    if (writer->database != NULL) {
        Py_BEGIN_ALLOW_THREADS
        checkpoint_passive(writer->database);
        Py_END_ALLOW_THREADS
    }
    Py_RETURN_NONE;
}

static PyObject *
get_is_checkpointing(PyObject *self, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(is_checkpointing((NativeWriter *)self));
}

static PyObject *
get_wal_pages(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromLong(((NativeWriter *)self)->wal_pages);
}

static PyMethodDef writer_methods[] = {
    {"write", write_here, METH_O,
     "Commit all statements in the calling thread, or change nothing. A statement is its number, its rows, and how many "
     "rows it must change, or -1 for any. False if the group was not committed for any reason, a lock held by another "
     "process included."},
    {"submit", submit, METH_O,
     "Let the serving thread commit the statements; it waits for locks. False if it can't, or if it has a job already."},
    {"take_result", take_result, METH_NOARGS, "Whether the submitted job was committed, after the socket reported its end."},
    {"serve", serve, METH_NOARGS, "Execute jobs until `stop_serving`."},
    {"stop_serving", stop_serving, METH_NOARGS,
     "Make `serve` return after its current job; if it is not running, its next call returns."},
    {"checkpoint_wal", checkpoint_wal, METH_NOARGS,
     "Copy the pages of the write-ahead log into the database, as far as readers allow."},
    {"close", close_writer, METH_NOARGS, "Release the statements and the hook, before the connection is closed."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef writer_properties[] = {
    {"is_checkpointing", get_is_checkpointing, NULL, "Whether the serving thread runs a checkpoint now.", NULL},
    {"wal_pages", get_wal_pages, NULL,
     "The length of the write-ahead log after the last commit; 0 after a checkpoint.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject NativeWriterType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "perdure.store.sqlite._native.NativeWriter",
    .tp_doc = "NativeWriter(connection, busy_ms, max_wal_pages, socket, statements): writes groups on a connection, given "
              "as a pointer. Reports the end of a submitted job on the socket, given as a descriptor, or -1 for none. "
              "The serving thread checkpoints a write-ahead log of at least `max_wal_pages`.",
    .tp_basicsize = sizeof(NativeWriter),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = make_writer,
    .tp_dealloc = drop_writer,
    .tp_methods = writer_methods,
    .tp_getset = writer_properties,
};

/* Called by SQLite when this module is loaded into a connection. */
#ifdef _WIN32
__declspec(dllexport)
#else
__attribute__((visibility("default")))
#endif
int
sqlite3_perdure_init(sqlite3 *Py_UNUSED(database), char **Py_UNUSED(message), const void *given)
{
    routines = given;
    return SQLITE_OK;
}

static PyObject *
get_version(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing))
{
    return PyLong_FromLong(routines == NULL ? 0 : library_version());
}

static PyObject *
own_locks_of(PyObject *Py_UNUSED(module), PyObject *path)
{
    PyObject *bytes;
    if (routines == NULL) {
        Py_RETURN_FALSE;
    }
    if (!PyUnicode_FSConverter(path, &bytes)) {
        return NULL;
    }
    int result = own_locks(find_vfs(), PyBytes_AS_STRING(bytes));
    Py_DECREF(bytes);
    return result < 0 ? PyErr_NoMemory() : PyBool_FromLong(result);
}

static PyMethodDef methods[] = {
    {"own_locks", own_locks_of, METH_O,
     "From the next connection on, locks on the database at this path belong to descriptors of their own. False if the "
     "system does not support that, or if this module is not loaded into SQLite yet."},
    {"watch_events", watch_events, METH_VARARGS,
     "watch_events(names, hook): from now on, call the hook with the name and the arguments of audit events of these "
     "names. Once in a process."},
    {"version", get_version, METH_NOARGS, "SQLite's version number; 0 before this module is loaded into SQLite."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "perdure.store.sqlite._native",
    .m_doc = "Commits groups to SQLite without the interpreter's lock.",
    .m_size = -1,
    .m_methods = methods,
};

PyMODINIT_FUNC
PyInit__native(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL || PyModule_AddType(module, &NativeWriterType) < 0) {
        Py_XDECREF(module);
        return NULL;
    }
    return module;
}
