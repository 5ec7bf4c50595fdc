/* JSON: the form that msgspec gives an event without its payload, of texts that need no escape.

   Only for the events that every step has; the others go to `body_of`. */

#ifndef PERDURE_TEXTS_H
#define PERDURE_TEXTS_H

#include "slots.h"

typedef struct {
    char *data;
    size_t size, room;
    char here[1024];
} Text;

static void
begin_text(Text *text)
{
    text->data = text->here;
    text->room = sizeof text->here;
    text->size = 0;
}

static void
end_text(Text *text)
{
    if (text->data != text->here) {
        PyMem_Free(text->data);
    }
}

static int
write_bytes(Text *text, const char *data, size_t size)
{
    if (text->room - text->size < size) {
        size_t room = 2 * (text->size + size);
        char *data_before = text->data == text->here ? NULL : text->data;
        char *grown = PyMem_Realloc(data_before, room);
        if (grown == NULL) {
            PyErr_NoMemory();
            return FAILED;
        }
        if (data_before == NULL) {
            memcpy(grown, text->here, text->size);
        }
        text->data = grown;
        text->room = room;
    }
    memcpy(text->data + text->size, data, size);
    text->size += size;
    return TAKEN;
}

#define WRITE(text, literal) write_bytes(text, literal, sizeof literal - 1)

static int
write_quoted(Text *text, PyObject *value)
{
    if (!PyUnicode_CheckExact(value) || !PyUnicode_IS_COMPACT_ASCII(value)) {
        return UNKNOWN;
    }
    const char *data = (const char *)PyUnicode_1BYTE_DATA(value);
    Py_ssize_t size = PyUnicode_GET_LENGTH(value);
    for (Py_ssize_t i = 0; i < size; i++) {
        if (data[i] < ' ' || data[i] == '"' || data[i] == '\\' || data[i] == 0x7f) {
            return UNKNOWN;
        }
    }
    if (WRITE(text, "\"") < 0 || write_bytes(text, data, (size_t)size) < 0) {
        return FAILED;
    }
    return WRITE(text, "\"");
}

static int
write_number(Text *text, PyObject *value)
{
    char digits[24], *end = digits + sizeof digits, *at = end;
    if (!PyLong_CheckExact(value)) {
        return UNKNOWN;
    }
    int overflow = 0;
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow || number == LLONG_MIN) {
        return UNKNOWN;
    }
    unsigned long long rest = (unsigned long long)(number < 0 ? -number : number);
    do {
        *--at = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest != 0);
    if (number < 0) {
        *--at = '-';
    }
    return write_bytes(text, at, (size_t)(end - at));
}

/* Every writer's answer must be that it was taken. */
#define TRY(call)                  \
    do {                           \
        int tried = (call);        \
        if (tried <= 0) {          \
            return tried;          \
        }                          \
    } while (0)

#define TEXT_FIELD(text, name, value)               \
    do {                                            \
        TRY(WRITE(text, ",\"" name "\":"));         \
        TRY(write_quoted(text, value));             \
    } while (0)

#define NUMBER_FIELD(text, name, value)             \
    do {                                            \
        TRY(WRITE(text, ",\"" name "\":"));         \
        TRY(write_number(text, value));             \
    } while (0)

#define OPTIONAL_FIELD(text, name, value)           \
    do {                                            \
        PyObject *optional = (value);               \
        if (optional != Py_None) {                  \
            TEXT_FIELD(text, name, optional);       \
        }                                           \
    } while (0)

static int
write_scheduled(Text *text, PyObject *event)
{
    PyObject *staged = SLOT(event, K.scheduled.staged);
    PyObject *place = SLOT(event, K.scheduled.place), *queue = SLOT(event, K.scheduled.queue);
    if (SLOT(event, K.scheduled.kind) != K.function_kind || SLOT(event, K.scheduled.retry_policy) != Py_None
        || !PyBool_Check(staged) || (place == Py_None ? queue != Py_None : place != K.on_queue)) {
        return UNKNOWN;
    }
    TRY(WRITE(text, "{\"type\":\"InvokeScheduled\""));
    TEXT_FIELD(text, "promise_id", SLOT(event, K.scheduled.promise_id));
    TEXT_FIELD(text, "function_name", SLOT(event, K.scheduled.function_name));
    if (staged == Py_True) {
        TRY(WRITE(text, ",\"staged\":true"));
    }
    if (place == K.on_queue) {
        TRY(WRITE(text, ",\"place\":\"queue\""));
    }
    OPTIONAL_FIELD(text, "queue", queue);
    return WRITE(text, "}");
}

static int
write_started(Text *text, PyObject *event)
{
    TRY(WRITE(text, "{\"type\":\"InvokeStarted\""));
    TEXT_FIELD(text, "promise_id", SLOT(event, K.started.promise_id));
    NUMBER_FIELD(text, "attempt", SLOT(event, K.started.attempt));
    return WRITE(text, "}");
}

static int
write_completed(Text *text, PyObject *event)
{
    PyObject *ok = SLOT(event, K.completed.ok), *staged = SLOT(event, K.completed.staged);
    PyObject *artifacts = SLOT(event, K.completed.artifacts);
    if (!PyBool_Check(ok) || !PyBool_Check(staged) || !PyTuple_CheckExact(artifacts)
        || PyTuple_GET_SIZE(artifacts) != 0) {
        return UNKNOWN;
    }
    TRY(WRITE(text, "{\"type\":\"InvokeCompleted\""));
    TEXT_FIELD(text, "promise_id", SLOT(event, K.completed.promise_id));
    NUMBER_FIELD(text, "attempt", SLOT(event, K.completed.attempt));
    if (ok == Py_False) {
        TRY(WRITE(text, ",\"ok\":false"));
    }
    OPTIONAL_FIELD(text, "guid", SLOT(event, K.completed.guid));
    if (staged == Py_True) {
        TRY(WRITE(text, ",\"staged\":true"));
    }
    if (number_of(SLOT(event, K.completed.claim)) != 1) {
        NUMBER_FIELD(text, "claim", SLOT(event, K.completed.claim));
    }
    return WRITE(text, "}");
}

static int
write_awaiting(Text *text, PyObject *event)
{
    PyObject *waiting_on = SLOT(event, K.awaiting.waiting_on), *kind = SLOT(event, K.awaiting.kind);
    if (!PyTuple_CheckExact(waiting_on) || SLOT(event, K.awaiting.signal) != Py_None
        || (kind != K.single && kind != K.any && kind != K.all)) {
        return UNKNOWN;
    }
    TRY(WRITE(text, "{\"type\":\"ExecutionAwaiting\",\"waiting_on\":["));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(waiting_on); i++) {
        if (i > 0) {
            TRY(WRITE(text, ","));
        }
        TRY(write_quoted(text, PyTuple_GET_ITEM(waiting_on, i)));
    }
    TRY(WRITE(text, "]"));
    if (kind == K.any) {
        TRY(WRITE(text, ",\"kind\":\"any\""));
    }
    else if (kind == K.all) {
        TRY(WRITE(text, ",\"kind\":\"all\""));
    }
    return WRITE(text, "}");
}

static int
write_posted(Text *text, PyObject *event)
{
    PyObject *postings = SLOT(event, K.posted.postings), *semaphore = SLOT(event, K.posted.semaphore);
    if (!PyTuple_CheckExact(postings) || !PyLong_CheckExact(semaphore)) {
        return UNKNOWN;
    }
    TRY(WRITE(text, "{\"type\":\"Posted\""));
    TEXT_FIELD(text, "label", SLOT(event, K.posted.label));
    TRY(WRITE(text, ",\"postings\":["));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(postings); i++) {
        PyObject *each = PyTuple_GET_ITEM(postings, i);
        if (!Py_IS_TYPE(each, K.posting.type)) {
            return UNKNOWN;
        }
        TRY(i > 0 ? WRITE(text, ",[") : WRITE(text, "["));
        TRY(write_quoted(text, SLOT(each, K.posting.account)));
        TRY(WRITE(text, ","));
        TRY(write_number(text, SLOT(each, K.posting.increment)));
        TRY(WRITE(text, "]"));
    }
    TRY(WRITE(text, "]"));
    if (number_of(semaphore) != 0) {
        NUMBER_FIELD(text, "semaphore", semaphore);
    }
    return WRITE(text, "}");
}

static int
write_event(Text *text, PyObject *event)
{
    PyTypeObject *type = Py_TYPE(event);
    if (type == K.completed.type) {
        return write_completed(text, event);
    }
    if (type == K.resumed) {
        return WRITE(text, "{\"type\":\"ExecutionResumed\"}");
    }
    if (type == K.scheduled.type) {
        return write_scheduled(text, event);
    }
    if (type == K.awaiting.type) {
        return write_awaiting(text, event);
    }
    if (type == K.started.type) {
        return write_started(text, event);
    }
    return type == K.posted.type ? write_posted(text, event) : UNKNOWN;
}

#endif
