/* The quick way to commit a group: all of its statements from BEGIN to COMMIT, without the interpreter's lock.

   Every call into SQLite gives that lock up and has to win it back from the event loop's thread, which may be busy for
   milliseconds. So that thread looks the values of all rows up, and hands them over as one job. The thread of the
   connection waits for jobs in `serve`, does them there, and tells by a byte to a socket, which the loop watches: it
   needs the interpreter's lock at no time. A group may be written in the caller's own thread, too.

   `writing.py` is the law. What goes wrong here, or not as expected, is rolled back and done again there, so that errors
   are told in one place. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <limits.h>

#ifndef _WIN32
#include <errno.h>
#include <unistd.h>
#endif

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
    PyObject *kept; /* a tuple of the rows: whoever has the list may change it meanwhile */
    Value *values;
} Part;

/* All that one transaction writes. */
typedef struct {
    Py_ssize_t size;
    Part *parts;
    int is_done;
} Job;

typedef struct {
    PyObject_HEAD
    sqlite3 *database;
    int busy_ms;
    int log_pages; /* after the last commit; none if it was folded back since */
    int longest_log;
    Py_ssize_t count;
    sqlite3_stmt **statements;
    sqlite3_stmt *begin, *commit, *rollback;

    Job job; /* of whoever sets `has_job`, until `take` */
    int socket;
    PyThread_type_lock lock; /* for what follows; never held for long, nor while the other one is waited for */
    PyThread_type_lock bell; /* locked, but for a moment in which `serve` is called */
    int is_waiting, is_wanted, is_folding;
    int has_job, is_begun, is_over;
} Quick;

/* Looking up values, with the interpreter's lock */

/* False if it is of a kind that no column has, or too large. */
static int
look_up(PyObject *object, Value *value)
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
look_up_rows(Part *part)
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
            if (!look_up(PyTuple_GET_ITEM(row, n), value++)) {
                return 0;
            }
        }
    }
    return 1;
}

static int
make_part(Quick *quick, PyObject *object, Part *part)
{
    Py_ssize_t number;
    PyObject *rows;
    if (!PyTuple_Check(object) || !PyArg_ParseTuple(object, "nOn", &number, &rows, &part->expected)) {
        PyErr_Clear();
        return 0;
    }
    if (number < 0 || number >= quick->count || !PyList_Check(rows)) {
        return 0;
    }
    part->statement = quick->statements[number];
    part->width = parameters_of(part->statement);
    part->kept = PyList_AsTuple(rows);
    if (part->kept == NULL) {
        PyErr_Clear();
        return 0;
    }
    part->rows = PyTuple_GET_SIZE(part->kept);
    return look_up_rows(part);
}

/* Writing, without it */

/* Afterwards the values are still bound, and gone: whoever runs the statement next binds all of them first. */
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
run_part(sqlite3 *database, const Part *part)
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
commit_parts(Quick *quick, const Part *parts, Py_ssize_t count)
{
    if (!run(quick->begin)) {
        return NOT_DONE;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!run_part(quick->database, &parts[i])) {
            return NOT_DONE;
        }
    }
    return run(quick->commit);
}

/* A transaction that is open already is somebody else's, and stays as it is. */
static void
do_job(Quick *quick, Job *job)
{
    job->is_done = NOT_DONE;
    if (is_in_transaction(quick->database)) {
        return;
    }
    job->is_done = commit_parts(quick, job->parts, job->size);
    if (!job->is_done && is_in_transaction(quick->database)) {
        run(quick->rollback);
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

/* False if some value is not known here, or nobody has the memory: then the job is empty. */
static int
make_job(Quick *quick, PyObject *list, Job *job)
{
    memset(job, 0, sizeof *job);
    PyObject *plan = PyList_AsTuple(list);
    if (plan != NULL) {
        job->parts = PyMem_Calloc((size_t)PyTuple_GET_SIZE(plan) + 1, sizeof(Part));
    }
    if (job->parts == NULL) {
        PyErr_Clear();
        Py_XDECREF(plan);
        return 0;
    }
    int is_made = 1;
    for (Py_ssize_t i = 0; is_made && i < PyTuple_GET_SIZE(plan); i++) {
        job->size = i + 1;
        is_made = make_part(quick, PyTuple_GET_ITEM(plan, i), &job->parts[i]);
    }
    Py_DECREF(plan);
    if (!is_made) {
        drop_job(job);
    }
    return is_made;
}

/* Whether the connection's own thread folds the log: to wait for it here would take long. */
static int
is_folding(Quick *quick)
{
    PyThread_acquire_lock(quick->lock, WAIT_LOCK);
    int is_so = quick->is_folding;
    PyThread_release_lock(quick->lock);
    return is_so;
}

static PyObject *
write_here(PyObject *self, PyObject *list)
{
    Quick *quick = (Quick *)self;
    Job job;
    if (!PyList_Check(list)) {
        PyErr_SetString(PyExc_TypeError, "write takes a list of parts");
        return NULL;
    }
    if (quick->database == NULL || is_folding(quick) || !make_job(quick, list, &job)) {
        Py_RETURN_FALSE;
    }
    Py_BEGIN_ALLOW_THREADS
    set_busy_timeout(quick->database, 0);
    do_job(quick, &job);
    set_busy_timeout(quick->database, quick->busy_ms);
    Py_END_ALLOW_THREADS
    PyObject *is_done = PyBool_FromLong(job.is_done);
    drop_job(&job);
    return is_done;
}

static void
ring(Quick *quick)
{
    if (quick->is_waiting) {
        quick->is_waiting = 0;
        PyThread_release_lock(quick->bell);
    }
}

static void
tell(Quick *quick)
{
#ifdef _WIN32
    (void)quick; /* there it has no socket, and so no job */
#else
    const char byte = 1;
    while (write(quick->socket, &byte, 1) < 0 && errno == EINTR) {
    }
#endif
}

static PyObject *
submit(PyObject *self, PyObject *list)
{
    Quick *quick = (Quick *)self;
    Job job;
    if (!PyList_Check(list)) {
        PyErr_SetString(PyExc_TypeError, "submit takes a list of parts");
        return NULL;
    }
    /* Only the caller's thread sets and resets `has_job`. */
    if (quick->database == NULL || quick->socket < 0 || quick->has_job || !make_job(quick, list, &job)) {
        Py_RETURN_FALSE;
    }
    PyThread_acquire_lock(quick->lock, WAIT_LOCK);
    quick->job = job;
    quick->has_job = 1;
    quick->is_begun = 0;
    quick->is_over = 0;
    ring(quick);
    PyThread_release_lock(quick->lock);
    Py_RETURN_TRUE;
}

static PyObject *
take(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    Quick *quick = (Quick *)self;
    PyThread_acquire_lock(quick->lock, WAIT_LOCK);
    int is_over = quick->has_job && quick->is_over;
    Job job = quick->job;
    if (is_over) {
        memset(&quick->job, 0, sizeof quick->job);
        quick->has_job = 0;
    }
    PyThread_release_lock(quick->lock);
    if (!is_over) {
        PyErr_SetString(PyExc_RuntimeError, "no job is over");
        return NULL;
    }
    PyObject *is_done = PyBool_FromLong(job.is_done);
    drop_job(&job);
    return is_done;
}

static void
serve_jobs(Quick *quick)
{
    PyThread_acquire_lock(quick->lock, WAIT_LOCK);
    for (;;) {
        if (quick->has_job && !quick->is_begun) {
            quick->is_begun = 1;
            PyThread_release_lock(quick->lock);
            do_job(quick, &quick->job);
            int is_long = quick->log_pages >= quick->longest_log;
            if (is_long) {
                quick->log_pages = 0; /* before anybody sees it, and wants it folded */
            }
            PyThread_acquire_lock(quick->lock, WAIT_LOCK);
            quick->is_over = 1;
            quick->is_folding = is_long;
            tell(quick);
            if (is_long) {
                PyThread_release_lock(quick->lock);
                fold_log_of(quick->database);
                PyThread_acquire_lock(quick->lock, WAIT_LOCK);
                quick->is_folding = 0;
            }
        }
        else if (quick->is_wanted) {
            break;
        }
        else {
            quick->is_waiting = 1;
            PyThread_release_lock(quick->lock);
            PyThread_acquire_lock(quick->bell, WAIT_LOCK);
            PyThread_acquire_lock(quick->lock, WAIT_LOCK);
        }
    }
    quick->is_wanted = 0;
    PyThread_release_lock(quick->lock);
}

static PyObject *
serve(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    Py_BEGIN_ALLOW_THREADS
    serve_jobs((Quick *)self);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *
want(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    Quick *quick = (Quick *)self;
    PyThread_acquire_lock(quick->lock, WAIT_LOCK);
    quick->is_wanted = 1;
    ring(quick);
    PyThread_release_lock(quick->lock);
    Py_RETURN_NONE;
}

/* The type */

static int
log_grew(void *quick, sqlite3 *Py_UNUSED(database), const char *Py_UNUSED(name), int pages)
{
    ((Quick *)quick)->log_pages = pages;
    return SQLITE_OK;
}

static void
let_go(Quick *quick)
{
    if (quick->database == NULL) {
        return;
    }
    set_log_hook(quick->database, NULL, NULL);
    for (Py_ssize_t i = 0; i < quick->count; i++) {
        finalize(quick->statements[i]); /* which does nothing for NULL */
    }
    finalize(quick->begin);
    finalize(quick->commit);
    finalize(quick->rollback);
    quick->database = NULL;
}

static int
prepare_all(Quick *quick, PyObject *texts)
{
    for (Py_ssize_t i = 0; i < quick->count; i++) {
        const char *sql = PyUnicode_AsUTF8(PyTuple_GET_ITEM(texts, i));
        if (sql == NULL) {
            return -1;
        }
        if (prepare(quick->database, sql, &quick->statements[i]) != SQLITE_OK) {
            PyErr_Format(PyExc_ValueError, "SQLite does not understand %s", sql);
            return -1;
        }
    }
    if (prepare(quick->database, "BEGIN IMMEDIATE", &quick->begin) != SQLITE_OK
        || prepare(quick->database, "COMMIT", &quick->commit) != SQLITE_OK
        || prepare(quick->database, "ROLLBACK", &quick->rollback) != SQLITE_OK) {
        PyErr_SetString(PyExc_ValueError, "SQLite can't prepare a transaction");
        return -1;
    }
    return 0;
}

static PyObject *
make_quick(PyTypeObject *type, PyObject *arguments, PyObject *Py_UNUSED(names))
{
    unsigned long long pointer;
    int busy_ms, longest_log, socket;
    PyObject *texts;
    if (!PyArg_ParseTuple(arguments, "KiiiO!", &pointer, &busy_ms, &longest_log, &socket, &PyTuple_Type, &texts)) {
        return NULL;
    }
    if (routines == NULL || pointer == 0) {
        PyErr_SetString(PyExc_ValueError, "load this module into the connection first");
        return NULL;
    }
    Quick *quick = (Quick *)type->tp_alloc(type, 0);
    if (quick == NULL) {
        return NULL;
    }
    quick->statements = PyMem_Calloc((size_t)PyTuple_GET_SIZE(texts) + 1, sizeof(sqlite3_stmt *));
    quick->lock = PyThread_allocate_lock();
    quick->bell = PyThread_allocate_lock();
    if (quick->statements == NULL || quick->lock == NULL || quick->bell == NULL) {
        Py_DECREF(quick);
        return PyErr_NoMemory();
    }
    PyThread_acquire_lock(quick->bell, WAIT_LOCK);
#ifdef _WIN32
    socket = -1;
#endif
    quick->socket = socket;
    quick->count = PyTuple_GET_SIZE(texts);
    quick->busy_ms = busy_ms;
    quick->longest_log = longest_log;
    quick->database = (sqlite3 *)(uintptr_t)pointer;
    if (prepare_all(quick, texts) < 0) {
        Py_DECREF(quick);
        return NULL;
    }
    set_log_hook(quick->database, log_grew, quick);
    return (PyObject *)quick;
}

static void
drop_quick(PyObject *self)
{
    Quick *quick = (Quick *)self;
    let_go(quick);
    drop_job(&quick->job);
    PyMem_Free(quick->statements);
    if (quick->lock != NULL) {
        PyThread_free_lock(quick->lock);
    }
    if (quick->bell != NULL) {
        PyThread_release_lock(quick->bell);
        PyThread_free_lock(quick->bell);
    }
    Py_TYPE(self)->tp_free(self);
}

static PyObject *
close_quick(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    let_go((Quick *)self);
    Py_RETURN_NONE;
}

static PyObject *
fold_log(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    Quick *quick = (Quick *)self;
    quick->log_pages = 0;
    if (quick->database != NULL) {
        Py_BEGIN_ALLOW_THREADS
        fold_log_of(quick->database);
        Py_END_ALLOW_THREADS
    }
    Py_RETURN_NONE;
}

static PyObject *
get_is_folding(PyObject *self, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(is_folding((Quick *)self));
}

static PyObject *
get_log_pages(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromLong(((Quick *)self)->log_pages);
}

static PyMethodDef quick_methods[] = {
    {"write", write_here, METH_O,
     "Commit all parts here and now, or change nothing. A part is a statement's number, rows, and how many of them must "
     "change something, or -1. False if it did not come about, for whatever reason: if another process has the "
     "file's lock, too."},
    {"submit", submit, METH_O,
     "Let the thread that serves, or will, do the same, and wait for locks. False if it can't do it, or has another."},
    {"take", take, METH_NOARGS, "What became of the job, when the socket has told that it is over."},
    {"serve", serve, METH_NOARGS, "Do jobs until this thread is wanted."},
    {"want", want, METH_NOARGS, "Make `serve` return, when the job is done that it has; the next one, if it is not called now."},
    {"fold_log", fold_log, METH_NOARGS, "Move the log's pages into the database, as far as readers allow."},
    {"close", close_quick, METH_NOARGS, "Give everything back to SQLite, before the connection is closed."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef quick_properties[] = {
    {"is_folding", get_is_folding, NULL, "Whether the thread that serves folds the log back now.", NULL},
    {"log_pages", get_log_pages, NULL, "The length of the write-ahead log after the last commit, if it was not folded back since.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject QuickType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "perdure.store.sqlite._quick.Quick",
    .tp_doc = "Quick(connection, busy_ms, longest_log, socket, statements): the quick way of one connection, given as a "
              "pointer. The end of a job is told to the socket, given as a descriptor; -1 for none. Who serves folds a "
              "log back that is longer.",
    .tp_basicsize = sizeof(Quick),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = make_quick,
    .tp_dealloc = drop_quick,
    .tp_methods = quick_methods,
    .tp_getset = quick_properties,
};

/* Called by SQLite, when this module is loaded into a connection. */
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

static PyMethodDef methods[] = {
    {"version", get_version, METH_NOARGS, "The number of SQLite's version; 0 before this module is loaded into it."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "perdure.store.sqlite._quick",
    .m_doc = "The quick way to commit a group.",
    .m_size = -1,
    .m_methods = methods,
};

PyMODINIT_FUNC
PyInit__quick(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL || PyModule_AddType(module, &QuickType) < 0) {
        Py_XDECREF(module);
        return NULL;
    }
    return module;
}
