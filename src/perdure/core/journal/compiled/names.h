/* What the native append takes from the reference implementation: classes and their slots, statuses, digits.
   `adopt` looks them up. */

#ifndef PERDURE_NAMES_H
#define PERDURE_NAMES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include "sha256.h"

#define SLOT(object, offset) (*(PyObject **)((char *)(object) + (offset)))

/* Results: the event was taken; not handled here, and nothing changed; or an exception is set. */
enum { TAKEN = 1, UNKNOWN = 0, FAILED = -1 };

typedef struct {
    PyTypeObject *type;
    Py_ssize_t allocated, attempts, balances, cancel_requested, completed, open_steps, paused, scheduled, semaphore,
        set_counts, started, status, timers, undo, wait;
} StateSlots;

typedef struct {
    PyTypeObject *type;
    Py_ssize_t run_id, state, seq, head;
} JournalSlots;

typedef struct {
    PyTypeObject *type;
    Py_ssize_t promise_id, attempt, ok, guid, staged, claim, artifacts;
} CompletedSlots;

typedef struct {
    PyTypeObject *type;
    Py_ssize_t promise_id, function_name, kind, retry_policy, staged, place, queue;
} ScheduledSlots;

typedef struct {
    PyTypeObject *type;
    Py_ssize_t promise_id, attempt;
} AttemptSlots;

typedef struct {
    PyTypeObject *type;
    Py_ssize_t waiting_on, kind, signal;
} AwaitingSlots;

typedef struct {
    PyTypeObject *type;
    Py_ssize_t trigger, guid;
} BeginningSlots;

typedef struct {
    PyTypeObject *type;
    Py_ssize_t released, guid, step;
} EndSlots;

typedef struct {
    PyTypeObject *type;
    Py_ssize_t label, postings, semaphore;
} PostedSlots;

typedef struct {
    PyTypeObject *type;
    Py_ssize_t account, increment;
} PostingSlots;

static struct {
    int is_adopted;
    sha256_compress compress;
    StateSlots state;
    JournalSlots journal;
    CompletedSlots completed;
    ScheduledSlots scheduled;
    AttemptSlots started;
    AwaitingSlots awaiting;
    BeginningSlots beginning;
    EndSlots end;
    PostedSlots posted;
    PostingSlots posting;
    PyTypeObject *resumed, *carrier, *entry, *appended;
    Py_ssize_t payload;
    PyObject *function_kind, *on_queue, *single, *any, *all;
    PyObject *pending, *approved, *running, *blocked, *cancelling, *over;
    PyObject *reference_append, *body_of, *absent, *remedy;
    PyObject *step_prefix, *message_prefix, *take_back, *admit;
    long long most_open, first_leg, leg1_done, entry_digit, work_done, whole_message;
} K;

static Py_ssize_t
offset_of(PyTypeObject *type, const char *name)
{
    PyObject *found = PyObject_GetAttrString((PyObject *)type, name);
    if (found == NULL) {
        return -1;
    }
    Py_ssize_t offset = -1;
    if (Py_IS_TYPE(found, &PyMemberDescr_Type)) {
        PyMemberDef *member = ((PyMemberDescrObject *)found)->d_member;
        if (member->type == T_OBJECT_EX || member->type == T_OBJECT) {
            offset = member->offset;
        }
    }
    Py_DECREF(found);
    if (offset < 0) {
        PyErr_Format(PyExc_TypeError, "%s.%s is not a slot", type->tp_name, name);
    }
    return offset;
}

typedef struct {
    Py_ssize_t *where;
    const char *name;
} Wanted;

static int
find_slots(PyTypeObject *type, const Wanted *wanted)
{
    for (; wanted->where != NULL; wanted++) {
        *wanted->where = offset_of(type, wanted->name);
        if (*wanted->where < 0) {
            return FAILED;
        }
    }
    return TAKEN;
}

/* What is taken is kept for the life of the process. */
static int
take_type(PyObject *names, const char *name, PyTypeObject **type, const Wanted *wanted)
{
    PyObject *found = PyMapping_GetItemString(names, name);
    if (found == NULL) {
        return FAILED;
    }
    if (!PyType_Check(found)) {
        PyErr_Format(PyExc_TypeError, "%s is not a class", name);
        return FAILED;
    }
    *type = (PyTypeObject *)found;
    return wanted == NULL ? TAKEN : find_slots(*type, wanted);
}

/* Whether the fields of a class are the wanted ones and a payload, and no others. */
static int
has_only(PyTypeObject *type, const Wanted *wanted)
{
    PyObject *fields = PyObject_GetAttrString((PyObject *)type, "__struct_fields__");
    if (fields == NULL || !PyTuple_Check(fields)) {
        Py_XDECREF(fields);
        return FAILED;
    }
    int is_known = 1;
    for (Py_ssize_t i = 0; is_known && i < PyTuple_GET_SIZE(fields); i++) {
        PyObject *field = PyTuple_GET_ITEM(fields, i);
        is_known = PyUnicode_CompareWithASCIIString(field, "payload") == 0;
        for (const Wanted *each = wanted; !is_known && each->where != NULL; each++) {
            is_known = PyUnicode_CompareWithASCIIString(field, each->name) == 0;
        }
    }
    Py_DECREF(fields);
    return is_known;
}

/* A class whose events are written here, field by field. If it has other fields, which would be lost, the reference
   implementation takes all its events, and the class is named in `left`. */
static int
take_written(PyObject *names, const char *name, PyTypeObject **type, const Wanted *wanted, PyObject *left)
{
    if (take_type(names, name, type, wanted) < 0) {
        return FAILED;
    }
    int is_known = has_only(*type, wanted);
    if (is_known == 0) {
        *type = NULL;
        PyObject *text = PyUnicode_FromString(name);
        is_known = text == NULL || PyList_Append(left, text) < 0 ? FAILED : TAKEN;
        Py_XDECREF(text);
    }
    return is_known < 0 ? FAILED : TAKEN;
}

static int
take_number(PyObject *names, const char *name, long long *number)
{
    PyObject *found = PyMapping_GetItemString(names, name);
    if (found == NULL) {
        return FAILED;
    }
    *number = PyLong_AsLongLong(found);
    Py_DECREF(found);
    return *number == -1 && PyErr_Occurred() ? FAILED : TAKEN;
}

static int
adopt_types(PyObject *names, PyObject *left)
{
    const Wanted state[] = {
        {&K.state.allocated, "allocated"}, {&K.state.attempts, "attempts"},
        {&K.state.balances, "balances"},   {&K.state.cancel_requested, "cancel_requested"},
        {&K.state.completed, "completed"}, {&K.state.open_steps, "open_steps"},
        {&K.state.paused, "paused"},       {&K.state.scheduled, "scheduled"},
        {&K.state.semaphore, "semaphore"}, {&K.state.set_counts, "set_counts"},
        {&K.state.started, "started"},     {&K.state.status, "status"},
        {&K.state.timers, "timers"},       {&K.state.undo, "undo"},
        {&K.state.wait, "wait"},           {NULL, NULL},
    };
    const Wanted journal[] = {
        {&K.journal.run_id, "run_id"}, {&K.journal.state, "state"},
        {&K.journal.seq, "seq"},       {&K.journal.head, "head"},
        {NULL, NULL},
    };
    const Wanted completed[] = {
        {&K.completed.promise_id, "promise_id"}, {&K.completed.attempt, "attempt"},
        {&K.completed.ok, "ok"},                 {&K.completed.guid, "guid"},
        {&K.completed.staged, "staged"},         {&K.completed.claim, "claim"},
        {&K.completed.artifacts, "artifacts"},   {NULL, NULL},
    };
    const Wanted scheduled[] = {
        {&K.scheduled.promise_id, "promise_id"}, {&K.scheduled.function_name, "function_name"},
        {&K.scheduled.kind, "kind"},             {&K.scheduled.retry_policy, "retry_policy"},
        {&K.scheduled.staged, "staged"},         {&K.scheduled.place, "place"},
        {&K.scheduled.queue, "queue"},           {NULL, NULL},
    };
    const Wanted started[] = {
        {&K.started.promise_id, "promise_id"}, {&K.started.attempt, "attempt"}, {NULL, NULL},
    };
    const Wanted awaiting[] = {
        {&K.awaiting.waiting_on, "waiting_on"}, {&K.awaiting.kind, "kind"},
        {&K.awaiting.signal, "signal"},         {NULL, NULL},
    };
    const Wanted beginning[] = {
        {&K.beginning.trigger, "trigger"}, {&K.beginning.guid, "guid"}, {NULL, NULL},
    };
    const Wanted end[] = {
        {&K.end.released, "released"}, {&K.end.guid, "guid"}, {&K.end.step, "step"}, {NULL, NULL},
    };
    const Wanted posted[] = {
        {&K.posted.label, "label"}, {&K.posted.postings, "postings"},
        {&K.posted.semaphore, "semaphore"}, {NULL, NULL},
    };
    const Wanted posting[] = {
        {&K.posting.account, "account"}, {&K.posting.increment, "increment"}, {NULL, NULL},
    };
    const Wanted resumed[] = {{NULL, NULL}};
    const Wanted carrier[] = {{&K.payload, "payload"}, {NULL, NULL}};
    if (take_type(names, "State", &K.state.type, state) < 0
        || take_type(names, "Journal", &K.journal.type, journal) < 0
        || take_written(names, "InvokeCompleted", &K.completed.type, completed, left) < 0
        || take_written(names, "InvokeScheduled", &K.scheduled.type, scheduled, left) < 0
        || take_written(names, "InvokeStarted", &K.started.type, started, left) < 0
        || take_written(names, "ExecutionAwaiting", &K.awaiting.type, awaiting, left) < 0
        || take_type(names, "ExecutionStarted", &K.beginning.type, beginning) < 0
        || take_type(names, "ExecutionCompleted", &K.end.type, end) < 0
        || take_written(names, "Posted", &K.posted.type, posted, left) < 0
        || take_written(names, "Posting", &K.posting.type, posting, left) < 0
        || take_written(names, "ExecutionResumed", &K.resumed, resumed, left) < 0
        || take_type(names, "Carrier", &K.carrier, carrier) < 0
        || take_type(names, "Entry", &K.entry, NULL) < 0
        || take_type(names, "Appended", &K.appended, NULL) < 0) {
        return FAILED;
    }
    return TAKEN;
}

static int
adopt_values(PyObject *names)
{
    const struct {
        PyObject **where;
        const char *name;
    } objects[] = {
        {&K.function_kind, "function_kind"},
        {&K.on_queue, "on_queue"},
        {&K.single, "single"},
        {&K.any, "any"},
        {&K.all, "all"},
        {&K.pending, "pending"},
        {&K.approved, "approved"},
        {&K.running, "running"},
        {&K.blocked, "blocked"},
        {&K.cancelling, "cancelling"},
        {&K.over, "completed"},
        {&K.reference_append, "append_reference"},
        {&K.body_of, "body_of"},
        {&K.absent, "absent"},
        {&K.remedy, "remedy"},
    };
    for (size_t i = 0; i < sizeof objects / sizeof objects[0]; i++) {
        *objects[i].where = PyMapping_GetItemString(names, objects[i].name);
        if (*objects[i].where == NULL) {
            return FAILED;
        }
    }
    if (take_number(names, "most_open", &K.most_open) < 0
        || take_number(names, "first_leg", &K.first_leg) < 0
        || take_number(names, "leg1_done", &K.leg1_done) < 0
        || take_number(names, "entry_digit", &K.entry_digit) < 0
        || take_number(names, "work_done", &K.work_done) < 0
        || take_number(names, "whole_message", &K.whole_message) < 0) {
        return FAILED;
    }
    K.step_prefix = PyUnicode_InternFromString("step:");
    K.message_prefix = PyUnicode_InternFromString("message:");
    K.take_back = PyUnicode_InternFromString("_take_back");
    K.admit = PyUnicode_InternFromString("_admit");
    return K.step_prefix && K.message_prefix && K.take_back && K.admit ? TAKEN : FAILED;
}

static int
truth(PyObject *names, const char *name)
{
    PyObject *found = PyMapping_GetItemString(names, name);
    int is_true = found == NULL ? FAILED : PyObject_IsTrue(found);
    Py_XDECREF(found);
    return is_true;
}

static PyObject *
adopt(PyObject *Py_UNUSED(module), PyObject *names)
{
    K.is_adopted = 0;
    PyObject *left = PyList_New(0);
    int has_instructions = left == NULL || adopt_types(names, left) < 0 || adopt_values(names) < 0
                               ? FAILED
                               : truth(names, "instructions");
    if (has_instructions < 0) {
        Py_XDECREF(left);
        return NULL;
    }
    K.compress = has_instructions ? sha256_best() : sha256_compress_portable;
    K.is_adopted = 1;
    return left;
}

#endif
