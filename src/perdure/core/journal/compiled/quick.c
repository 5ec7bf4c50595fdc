/* The native append to a journal, for common events in common states; built as the module `_quick`.

   `journal.py` is the reference implementation: it checks every event, folds it in and seals it. This module does the
   same for the events of ordinary steps, and accepts only what the reference implementation accepts. Any other event
   goes to the functions of `journal.py` before anything has changed, so all error texts are there.

   Objects are read and written in their slots, which `adopt` looks up once. The interpreter's lock is held throughout. */

#include "events.h"
#include "texts.h"

#define NONCE_BYTES 16
#define PREFIX_BYTES (SHA256_BYTES + 16 + SHA256_BYTES)

/* Sealing */

static void
write_big_endian(uint8_t *where, long long number)
{
    for (int i = 0; i < 8; i++) {
        where[i] = (uint8_t)((unsigned long long)number >> (56 - 8 * i));
    }
}

/* The body's text, written here or by `body_of`. */
static PyObject *
body_text(PyObject *event, PyObject *seq)
{
    Text text;
    begin_text(&text);
    int written = write_event(&text, event);
    PyObject *body = NULL;
    if (written > 0) {
        body = PyUnicode_New((Py_ssize_t)text.size, 127);
        if (body != NULL) {
            memcpy(PyUnicode_1BYTE_DATA(body), text.data, text.size);
        }
    }
    else if (written == 0) {
        PyObject *arguments[] = {event, seq};
        body = PyObject_Vectorcall(K.body_of, arguments, 2, NULL);
        if (body != NULL && !PyUnicode_CheckExact(body)) {
            PyErr_SetString(PyExc_TypeError, "a body is a text");
            Py_CLEAR(body);
        }
    }
    end_text(&text);
    return body;
}

/* One entry after the hash `head`, which becomes its own. */
static PyObject *
seal(PyObject *event, long long number, PyObject *at_ms, const char *nonce, PyObject **head)
{
    uint8_t prefix[PREFIX_BYTES];
    PyObject *entry = NULL, *body = NULL, *sealed = Py_NewRef(Py_None);
    PyObject *seq = PyLong_FromLongLong(number);
    PyObject *hash = PyBytes_FromStringAndSize(NULL, SHA256_BYTES);
    if (seq == NULL || hash == NULL) {
        goto done;
    }
    memcpy(prefix, PyBytes_AS_STRING(*head), SHA256_BYTES);
    write_big_endian(prefix + SHA256_BYTES, number);
    write_big_endian(prefix + SHA256_BYTES + 8, number_of(at_ms));
    memset(prefix + SHA256_BYTES + 16, 0, SHA256_BYTES);
    PyObject *payload = PyType_IsSubtype(Py_TYPE(event), K.carrier) ? SLOT(event, K.payload) : Py_None;
    if (payload != Py_None) {
        const uint8_t *data = (const uint8_t *)PyBytes_AS_STRING(payload);
        size_t size = (size_t)PyBytes_GET_SIZE(payload);
        Py_SETREF(sealed, PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size + NONCE_BYTES));
        if (sealed == NULL) {
            goto done;
        }
        memcpy(PyBytes_AS_STRING(sealed), nonce, NONCE_BYTES);
        memcpy(PyBytes_AS_STRING(sealed) + NONCE_BYTES, data, size);
        sha256_of_two(K.compress, (const uint8_t *)nonce, NONCE_BYTES, data, size, prefix + SHA256_BYTES + 16);
    }
    body = body_text(event, seq);
    Py_ssize_t size;
    const char *utf8 = body == NULL ? NULL : PyUnicode_AsUTF8AndSize(body, &size);
    if (utf8 == NULL) {
        goto done;
    }
    sha256_of_two(K.compress, prefix, PREFIX_BYTES, (const uint8_t *)utf8, (size_t)size,
                  (uint8_t *)PyBytes_AS_STRING(hash));
    PyObject *fields[] = {seq, at_ms, body, *head, sealed};
    entry = PyObject_Vectorcall((PyObject *)K.entry, fields, 5, NULL);
    if (entry != NULL) {
        Py_SETREF(*head, Py_NewRef(hash));
    }
done:
    Py_XDECREF(seq);
    Py_XDECREF(hash);
    Py_XDECREF(body);
    Py_XDECREF(sealed);
    return entry;
}

/* Whether every payload is bytes, as they are all over the engine. */
static int
has_plain_payloads(PyObject *events)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(events); i++) {
        PyObject *event = PyTuple_GET_ITEM(events, i);
        if (PyType_IsSubtype(Py_TYPE(event), K.carrier)) {
            PyObject *payload = SLOT(event, K.payload);
            if (payload != Py_None && !PyBytes_CheckExact(payload)) {
                return 0;
            }
        }
    }
    return 1;
}

/* Appending */

typedef struct {
    PyObject *status, *wait, *paused, *cancel_requested, *open_steps, *semaphore;
    Py_ssize_t scheduled, attempts, completed;
} Mark;

static void
make_mark(PyObject *state, Mark *mark)
{
    mark->status = Py_NewRef(SLOT(state, K.state.status));
    mark->wait = Py_NewRef(SLOT(state, K.state.wait));
    mark->paused = Py_NewRef(SLOT(state, K.state.paused));
    mark->cancel_requested = Py_NewRef(SLOT(state, K.state.cancel_requested));
    mark->open_steps = Py_NewRef(SLOT(state, K.state.open_steps));
    mark->semaphore = Py_NewRef(SLOT(state, K.state.semaphore));
    mark->scheduled = PyDict_GET_SIZE(SLOT(state, K.state.scheduled));
    mark->attempts = PyDict_GET_SIZE(SLOT(state, K.state.attempts));
    mark->completed = PyDict_GET_SIZE(SLOT(state, K.state.completed));
}

static void
drop_mark(Mark *mark)
{
    Py_DECREF(mark->status);
    Py_DECREF(mark->wait);
    Py_DECREF(mark->paused);
    Py_DECREF(mark->cancel_requested);
    Py_DECREF(mark->open_steps);
    Py_DECREF(mark->semaphore);
}

/* Undo what happened since the mark, with the exception that is set. */
static void
take_back(PyObject *journal, Mark *mark, PyObject *postings)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *point = Py_BuildValue("(OOOOOOnnn)", mark->status, mark->wait, mark->paused, mark->cancel_requested,
                                    mark->open_steps, mark->semaphore, mark->scheduled, mark->attempts, mark->completed);
    PyObject *done = point == NULL ? NULL : PyObject_CallMethodObjArgs(journal, K.take_back, point, postings, NULL);
    Py_XDECREF(point);
    if (done == NULL) {
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(traceback);
        return;
    }
    Py_DECREF(done);
    PyErr_Restore(type, value, traceback);
}

/* Judge all events and fold them in. */
static int
admit_all(PyObject *journal, PyObject *state, PyObject *events, long long seq, PyObject *postings)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(events); i++) {
        PyObject *event = PyTuple_GET_ITEM(events, i);
        int taken = take(state, event, postings);
        if (taken == UNKNOWN) {
            PyObject *number = PyLong_FromLongLong(seq + i);
            PyObject *done = number == NULL ? NULL
                                            : PyObject_CallMethodObjArgs(journal, K.admit, event, number, postings,
                                                                         K.remedy, NULL);
            Py_XDECREF(number);
            taken = done == NULL ? FAILED : TAKEN;
            Py_XDECREF(done);
        }
        if (taken == FAILED) {
            return FAILED;
        }
    }
    return TAKEN;
}

static PyObject *
seal_all(PyObject *events, long long seq, PyObject *at_ms, PyObject *entropy, PyObject **head)
{
    Py_ssize_t count = PyTuple_GET_SIZE(events);
    PyObject *entries = PyTuple_New(count);
    for (Py_ssize_t i = 0; entries != NULL && i < count; i++) {
        const char *nonce = PyBytes_AS_STRING(entropy) + i * NONCE_BYTES;
        PyObject *entry = seal(PyTuple_GET_ITEM(events, i), seq + i, at_ms, nonce, head);
        if (entry == NULL) {
            Py_CLEAR(entries);
        }
        else {
            PyTuple_SET_ITEM(entries, i, entry);
        }
    }
    return entries;
}

static int
clear_undo(PyObject *state)
{
    PyObject *undo = SLOT(state, K.state.undo);
    return PyList_GET_SIZE(undo) == 0 ? 0 : PyList_SetSlice(undo, 0, PyList_GET_SIZE(undo), NULL);
}

static PyObject *
append(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 4 || !K.is_adopted || !Py_IS_TYPE(arguments[0], K.journal.type)) {
        PyErr_SetString(PyExc_TypeError, "append takes a journal, events, a time and random bytes");
        return NULL;
    }
    PyObject *journal = arguments[0], *at_ms = arguments[2], *entropy = arguments[3];
    PyObject *state = SLOT(journal, K.journal.state), *appended = NULL, *entries = NULL;
    PyObject *head = SLOT(journal, K.journal.head);
    long long seq = number_of(SLOT(journal, K.journal.seq));
    if (!is_sound(state) || seq < 0 || head == NULL || !PyBytes_CheckExact(head)
        || PyBytes_GET_SIZE(head) != SHA256_BYTES || SLOT(journal, K.journal.run_id) == NULL
        || number_of(at_ms) < 0 || !PyBytes_CheckExact(entropy)) {
        return PyObject_Vectorcall(K.reference_append, arguments, 4, NULL);
    }
    PyObject *events = PySequence_Tuple(arguments[1]); /* a copy: the caller may change its list */
    if (events == NULL) {
        return NULL;
    }
    if (PyBytes_GET_SIZE(entropy) < NONCE_BYTES * PyTuple_GET_SIZE(events) || !has_plain_payloads(events)) {
        Py_DECREF(events);
        return PyObject_Vectorcall(K.reference_append, arguments, 4, NULL);
    }
    Mark mark;
    PyObject *postings = PyDict_New();
    if (postings == NULL || clear_undo(state) < 0) {
        Py_XDECREF(postings);
        Py_DECREF(events);
        return NULL;
    }
    Py_INCREF(head);
    make_mark(state, &mark);
    if (admit_all(journal, state, events, seq, postings) > 0) {
        entries = seal_all(events, seq, at_ms, entropy, &head);
    }
    if (entries != NULL) {
        PyObject *fields[] = {SLOT(journal, K.journal.run_id), entries, postings, SLOT(journal, K.journal.seq),
                              mark.semaphore, SLOT(state, K.state.semaphore), SLOT(state, K.state.status), head};
        appended = PyObject_Vectorcall((PyObject *)K.appended, fields, 8, NULL);
    }
    if (appended != NULL
        && set_number(journal, K.journal.seq, seq + PyTuple_GET_SIZE(events)) < 0) {
        Py_CLEAR(appended);
    }
    if (appended != NULL) {
        set_slot(journal, K.journal.head, head);
        if (clear_undo(state) < 0) {
            PyErr_Clear(); /* the next append clears it */
        }
    }
    else {
        take_back(journal, &mark, postings);
    }
    drop_mark(&mark);
    Py_XDECREF(entries);
    Py_DECREF(head);
    Py_DECREF(postings);
    Py_DECREF(events);
    return appended;
}

static PyObject *
admit(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 3 || !K.is_adopted || !is_sound(arguments[0]) || !PyDict_CheckExact(arguments[2])) {
        PyErr_SetString(PyExc_TypeError, "admit takes a state, an event and postings");
        return NULL;
    }
    int taken = take(arguments[0], arguments[1], arguments[2]);
    return taken == FAILED ? NULL : PyBool_FromLong(taken == TAKEN);
}

static PyMethodDef methods[] = {
    {"adopt", adopt, METH_O, "Look up the classes and the values that appending needs. Returns the names of the events that have fields unknown "
     "here: the reference implementation takes them."},
    {"admit", (PyCFunction)(void (*)(void))admit, METH_FASTCALL,
     "admit(state, event, postings): fold an ordinary event in. Whether it was one; if not, nothing changed."},
    {"append", (PyCFunction)(void (*)(void))append, METH_FASTCALL,
     "append(journal, events, at_ms, entropy): what `append_reference` does."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "perdure.core.journal._quick",
    .m_doc = "The native append to a journal.",
    .m_size = -1,
    .m_methods = methods,
};

PyMODINIT_FUNC
PyInit__quick(void)
{
    return PyModule_Create(&definition);
}
