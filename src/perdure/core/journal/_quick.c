/* The quick way to append to a journal: ordinary events in ordinary states.

   `journal.py` is the law: it judges every event, folds it in and seals it. This module does the same for what the
   steps of programs are made of, and only ever accepts what the law accepts. Whatever it does not know goes to the
   functions of `journal.py`, event by event, before anything of it has changed; so refusals are worded there alone.

   Objects are read and written in their slots, which `adopt` looks up once. The interpreter's lock is held throughout. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include "_sha256.h"

#define NONCE_BYTES 16
#define PREFIX_BYTES (SHA256_BYTES + 16 + SHA256_BYTES)
#define MOST_POSTINGS 4

#define LEG1 100000000000LL
#define COUNTER 100000000LL

#define SLOT(object, offset) (*(PyObject **)((char *)(object) + (offset)))

/* What a step of the way says: taken, not known here and nothing changed, or an exception is set. */
enum { TAKEN = 1, UNKNOWN = 0, FAILED = -1 };

typedef struct {
    PyTypeObject *type;
    Py_ssize_t allocated, attempts, balances, cancel_requested, completed, open_steps, paused, scheduled, semaphore,
        started, status, timers, undo, wait;
} StateSlots;

typedef struct {
    PyTypeObject *type;
    Py_ssize_t run_id, state, seq, head;
} JournalSlots;

typedef struct {
    PyTypeObject *type;
    Py_ssize_t promise_id, attempt, ok, guid, staged, claim;
} CompletedSlots;

typedef struct {
    PyTypeObject *type;
    Py_ssize_t promise_id, function_name, kind, retry_policy, staged;
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
    Py_ssize_t program, component_digest, root, version, parent_id, idempotency_key, trigger, guid, continues, inherited;
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
    PyObject *function_kind, *single, *any, *all;
    PyObject *pending, *approved, *running, *blocked, *cancelling, *over;
    PyObject *plainly, *body_of, *absent, *remedy;
    PyObject *step_prefix, *message_prefix, *take_back, *admit;
    long long most_open, first_leg, leg1_done, entry_digit, work_done, whole_message;
} K;

/* Setting up */

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
adopt_types(PyObject *names)
{
    const Wanted state[] = {
        {&K.state.allocated, "allocated"}, {&K.state.attempts, "attempts"},
        {&K.state.balances, "balances"},   {&K.state.cancel_requested, "cancel_requested"},
        {&K.state.completed, "completed"}, {&K.state.open_steps, "open_steps"},
        {&K.state.paused, "paused"},       {&K.state.scheduled, "scheduled"},
        {&K.state.semaphore, "semaphore"}, {&K.state.started, "started"},
        {&K.state.status, "status"},       {&K.state.timers, "timers"},
        {&K.state.undo, "undo"},           {&K.state.wait, "wait"},
        {NULL, NULL},
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
        {NULL, NULL},
    };
    const Wanted scheduled[] = {
        {&K.scheduled.promise_id, "promise_id"}, {&K.scheduled.function_name, "function_name"},
        {&K.scheduled.kind, "kind"},             {&K.scheduled.retry_policy, "retry_policy"},
        {&K.scheduled.staged, "staged"},         {NULL, NULL},
    };
    const Wanted started[] = {
        {&K.started.promise_id, "promise_id"}, {&K.started.attempt, "attempt"}, {NULL, NULL},
    };
    const Wanted awaiting[] = {
        {&K.awaiting.waiting_on, "waiting_on"}, {&K.awaiting.kind, "kind"},
        {&K.awaiting.signal, "signal"},         {NULL, NULL},
    };
    const Wanted beginning[] = {
        {&K.beginning.program, "program"},     {&K.beginning.component_digest, "component_digest"},
        {&K.beginning.root, "root"},           {&K.beginning.version, "version"},
        {&K.beginning.parent_id, "parent_id"}, {&K.beginning.idempotency_key, "idempotency_key"},
        {&K.beginning.trigger, "trigger"},     {&K.beginning.guid, "guid"},
        {&K.beginning.continues, "continues"}, {&K.beginning.inherited, "inherited"},
        {NULL, NULL},
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
    const Wanted carrier[] = {{&K.payload, "payload"}, {NULL, NULL}};
    if (take_type(names, "State", &K.state.type, state) < 0
        || take_type(names, "Journal", &K.journal.type, journal) < 0
        || take_type(names, "InvokeCompleted", &K.completed.type, completed) < 0
        || take_type(names, "InvokeScheduled", &K.scheduled.type, scheduled) < 0
        || take_type(names, "InvokeStarted", &K.started.type, started) < 0
        || take_type(names, "ExecutionAwaiting", &K.awaiting.type, awaiting) < 0
        || take_type(names, "ExecutionStarted", &K.beginning.type, beginning) < 0
        || take_type(names, "ExecutionCompleted", &K.end.type, end) < 0
        || take_type(names, "Posted", &K.posted.type, posted) < 0
        || take_type(names, "Posting", &K.posting.type, posting) < 0
        || take_type(names, "ExecutionResumed", &K.resumed, NULL) < 0
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
        {&K.single, "single"},
        {&K.any, "any"},
        {&K.all, "all"},
        {&K.pending, "pending"},
        {&K.approved, "approved"},
        {&K.running, "running"},
        {&K.blocked, "blocked"},
        {&K.cancelling, "cancelling"},
        {&K.over, "completed"},
        {&K.plainly, "append_plainly"},
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
    if (adopt_types(names) < 0 || adopt_values(names) < 0) {
        return NULL;
    }
    int has_instructions = truth(names, "instructions");
    if (has_instructions < 0) {
        return NULL;
    }
    K.compress = has_instructions ? sha256_best() : sha256_compress_plainly;
    K.is_adopted = 1;
    Py_RETURN_NONE;
}

/* Slots */

static inline void
set_slot(PyObject *object, Py_ssize_t offset, PyObject *value)
{
    PyObject *old = SLOT(object, offset);
    SLOT(object, offset) = Py_NewRef(value);
    Py_XDECREF(old);
}

static int
set_number(PyObject *object, Py_ssize_t offset, long long number)
{
    PyObject *value = PyLong_FromLongLong(number);
    if (value == NULL) {
        return FAILED;
    }
    set_slot(object, offset, value);
    Py_DECREF(value);
    return TAKEN;
}

/* A whole number that fits; -1 for anything else, which nothing here accepts. */
static long long
number_of(PyObject *object)
{
    if (object == NULL || !PyLong_CheckExact(object)) {
        return -1;
    }
    int overflow = 0;
    long long number = PyLong_AsLongLongAndOverflow(object, &overflow);
    return overflow ? -1 : number;
}

static inline int
has(PyObject *state, Py_ssize_t index, PyObject *key)
{
    return PyDict_Contains(SLOT(state, index), key);
}

static inline int
is_open(PyObject *status)
{
    return status == K.running || status == K.blocked || status == K.cancelling;
}

static inline int
program_runs(PyObject *state)
{
    PyObject *status = SLOT(state, K.state.status);
    return SLOT(state, K.state.wait) == Py_None && SLOT(state, K.state.paused) == Py_False
        && (status == K.running || status == K.cancelling);
}

/* Whether everything is in its slot, and of its kind. */
static int
is_sound(PyObject *state)
{
    if (state == NULL || !Py_IS_TYPE(state, K.state.type)) {
        return 0;
    }
    const Py_ssize_t values[] = {K.state.cancel_requested, K.state.open_steps, K.state.paused,
                                 K.state.semaphore,        K.state.status,     K.state.wait};
    const Py_ssize_t indexes[] = {K.state.allocated, K.state.attempts,  K.state.balances, K.state.completed,
                                  K.state.scheduled, K.state.started,   K.state.timers};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        if (SLOT(state, values[i]) == NULL) {
            return 0;
        }
    }
    for (size_t i = 0; i < sizeof indexes / sizeof indexes[0]; i++) {
        PyObject *index = SLOT(state, indexes[i]);
        if (index == NULL || !PyDict_CheckExact(index)) {
            return 0;
        }
    }
    PyObject *undo = SLOT(state, K.state.undo);
    return undo != NULL && PyList_CheckExact(undo);
}

/* The ledger: the quick tests of `posting.py` */

static int
is_ordinary_activity(long long balance, long long increment)
{
    long long held = balance / LEG1, added = increment / LEG1, after = held + added;
    long long counted = balance % LEG1, counting = increment % LEG1;
    if (held % 10 > 1 || held == 1) {
        return 0;
    }
    if (added != 0 && added != 1 && added != 10 && added != 11 && added != 2000 && added != 2001 && added != 2011) {
        return 0;
    }
    if (held % 10 + added % 10 > 1 || after % 1000 < held || (after % 10 != 0 && after % 1000 < 10)
        || (after % 10 != 1 && after >= 1000) || counted + counting >= COUNTER) {
        return 0;
    }
    return held % 10 == 1 || (counted == 0 && (counting == 0 || added % 10 == 1));
}

static inline int
is_stage(long long digits)
{
    return digits == 0 || digits == 100 || digits == 110 || digits == 1110 || digits == 1111;
}

static int
is_ordinary_message(long long balance, long long increment)
{
    long long held = balance / COUNTER, after = held + increment / COUNTER;
    if (!is_stage(held) || !is_stage(after) || (held == 110 && after != 110)) {
        return 0;
    }
    return balance == 0 || increment % COUNTER == 0;
}

static int
begins_with(PyObject *text, const char *prefix, Py_ssize_t size)
{
    return PyUnicode_IS_COMPACT_ASCII(text) && PyUnicode_GET_LENGTH(text) > size
        && memcmp(PyUnicode_1BYTE_DATA(text), prefix, (size_t)size) == 0;
}

typedef struct {
    PyObject *account, *balance; /* owned; the balance is what results */
    long long increment;
} Posting;

typedef struct {
    Posting each[MOST_POSTINGS];
    int count;
    long long delta; /* of the semaphore */
} Effect;

static void
drop_effect(Effect *effect)
{
    for (int i = 0; i < effect->count; i++) {
        Py_CLEAR(effect->each[i].account);
        Py_CLEAR(effect->each[i].balance);
    }
    effect->count = 0;
}

static int
add_posting(Effect *effect, PyObject *account, long long increment)
{
    if (account == NULL) {
        return FAILED;
    }
    effect->each[effect->count++] = (Posting){account, NULL, increment};
    return TAKEN;
}

static int
add_named(Effect *effect, PyObject *prefix, PyObject *name, long long increment)
{
    if (!PyUnicode_CheckExact(name) || PyUnicode_GET_LENGTH(name) == 0) {
        return UNKNOWN;
    }
    return add_posting(effect, PyUnicode_Concat(prefix, name), increment);
}

/* The balance that results from a posting. Nothing changes yet. */
static int
judge(PyObject *balances, Posting *posting)
{
    PyObject *account = posting->account, *held = PyDict_GetItemWithError(balances, account);
    if (held == NULL && PyErr_Occurred()) {
        return FAILED;
    }
    long long balance = held == NULL ? 0 : number_of(held);
    if (balance < 0 || posting->increment < 0) {
        return UNKNOWN;
    }
    if ((begins_with(account, "step:", 5) && is_ordinary_activity(balance, posting->increment))
        || (begins_with(account, "message:", 8) && is_ordinary_message(balance, posting->increment))) {
        posting->balance = PyLong_FromLongLong(balance + posting->increment);
        return posting->balance == NULL ? FAILED : TAKEN;
    }
    return UNKNOWN;
}

/* Whether all that an event posts is ordinary; then it is posted. */
static int
post(PyObject *state, Effect *effect, PyObject *postings)
{
    PyObject *balances = SLOT(state, K.state.balances);
    long long semaphore = number_of(SLOT(state, K.state.semaphore));
    long long after = semaphore + effect->delta;
    if (semaphore < 0 || after < 0 || after > K.most_open) {
        return UNKNOWN;
    }
    for (int i = 0; i < effect->count; i++) {
        for (int j = 0; j < i; j++) {
            if (PyUnicode_Compare(effect->each[i].account, effect->each[j].account) == 0) {
                return UNKNOWN;
            }
        }
        int judged = judge(balances, &effect->each[i]);
        if (judged <= 0) {
            return judged;
        }
    }
    for (int i = 0; i < effect->count; i++) {
        Posting *posting = &effect->each[i];
        PyObject *before = PyDict_GetItemWithError(postings, posting->account);
        if (before == NULL && PyErr_Occurred()) {
            return FAILED;
        }
        PyObject *sum = PyLong_FromLongLong(posting->increment + (before == NULL ? 0 : number_of(before)));
        if (sum == NULL) {
            return FAILED;
        }
        int failed = PyDict_SetItem(balances, posting->account, posting->balance) < 0
                  || PyDict_SetItem(postings, posting->account, sum) < 0;
        Py_DECREF(sum);
        if (failed) {
            return FAILED;
        }
    }
    return effect->delta == 0 ? TAKEN : set_number(state, K.state.semaphore, after);
}

/* Events: may it stand, what does it post, what follows for the state. Each asks everything before it changes anything. */

static int
take_beginning(PyObject *state, PyObject *event, Effect *effect, PyObject *postings)
{
    PyObject *status = SLOT(state, K.state.status);
    if ((status != K.pending && status != K.approved) || SLOT(event, K.beginning.trigger) != Py_None
        || SLOT(event, K.beginning.guid) != Py_None) {
        return UNKNOWN;
    }
    effect->delta = 1;
    int posted = post(state, effect, postings);
    if (posted > 0) {
        set_slot(state, K.state.status, K.running);
    }
    return posted;
}

static int
take_end(PyObject *state, PyObject *event, Effect *effect, PyObject *postings)
{
    long long released = number_of(SLOT(event, K.end.released));
    if (!program_runs(state) || released != 1 || number_of(SLOT(state, K.state.semaphore)) != 1
        || number_of(SLOT(state, K.state.open_steps)) != 0 || SLOT(event, K.end.guid) != Py_None
        || SLOT(event, K.end.step) != Py_None) {
        return UNKNOWN;
    }
    effect->delta = -1;
    int posted = post(state, effect, postings);
    if (posted > 0) {
        set_slot(state, K.state.status, K.over);
        set_slot(state, K.state.wait, Py_None);
    }
    return posted;
}

static int
take_scheduled(PyObject *state, PyObject *event, Effect *effect, PyObject *postings)
{
    PyObject *step = SLOT(event, K.scheduled.promise_id), *staged = SLOT(event, K.scheduled.staged);
    if (!program_runs(state) || !PyUnicode_CheckExact(step) || !PyBool_Check(staged)) {
        return UNKNOWN;
    }
    const Py_ssize_t places[] = {K.state.scheduled, K.state.timers, K.state.allocated, K.state.completed};
    for (int i = 0; i < 4; i++) {
        int taken = has(state, places[i], step);
        if (taken != 0) {
            return taken < 0 ? FAILED : UNKNOWN;
        }
    }
    int is_staged = staged == Py_True;
    effect->delta = is_staged ? 0 : 1;
    int added = add_named(effect, K.step_prefix, step, is_staged ? K.leg1_done : K.first_leg);
    int posted = added <= 0 ? added : post(state, effect, postings);
    if (posted <= 0 || PyDict_SetItem(SLOT(state, K.state.scheduled), step, staged) < 0) {
        return posted <= 0 ? posted : FAILED;
    }
    return is_staged ? TAKEN
                     : set_number(state, K.state.open_steps, number_of(SLOT(state, K.state.open_steps)) + 1);
}

static int
take_started(PyObject *state, PyObject *event)
{
    PyObject *step = SLOT(event, K.started.promise_id), *started = SLOT(state, K.state.started);
    long long attempt = number_of(SLOT(event, K.started.attempt));
    int is_scheduled = has(state, K.state.scheduled, step);
    int is_completed = is_scheduled <= 0 ? 0 : has(state, K.state.completed, step);
    if (is_scheduled < 0 || is_completed < 0) {
        return FAILED;
    }
    PyObject *last = PyDict_GetItemWithError(started, step);
    if (last == NULL && PyErr_Occurred()) {
        return FAILED;
    }
    if (!is_scheduled || is_completed || attempt < 1 || attempt != (last == NULL ? 0 : number_of(last)) + 1) {
        return UNKNOWN;
    }
    PyObject *undone = PyTuple_Pack(3, started, step, last == NULL ? K.absent : last);
    PyObject *key = PyTuple_Pack(2, step, SLOT(event, K.started.attempt));
    int failed = undone == NULL || key == NULL || PyList_Append(SLOT(state, K.state.undo), undone) < 0
              || PyDict_SetItem(started, step, SLOT(event, K.started.attempt)) < 0
              || PyDict_SetItem(SLOT(state, K.state.attempts), key, Py_True) < 0;
    Py_XDECREF(undone);
    Py_XDECREF(key);
    return failed ? FAILED : TAKEN;
}

static int
take_completed(PyObject *state, PyObject *event, Effect *effect, PyObject *postings)
{
    PyObject *step = SLOT(event, K.completed.promise_id), *staged = SLOT(event, K.completed.staged);
    PyObject *guid = SLOT(event, K.completed.guid);
    PyObject *manner = PyDict_GetItemWithError(SLOT(state, K.state.scheduled), step);
    PyObject *last = manner == NULL ? NULL : PyDict_GetItemWithError(SLOT(state, K.state.started), step);
    if (PyErr_Occurred()) {
        return FAILED;
    }
    long long attempt = number_of(SLOT(event, K.completed.attempt));
    if (last == NULL || attempt < 0 || number_of(last) != attempt || !PyBool_Check(staged) || manner != staged) {
        return UNKNOWN;
    }
    int is_completed = has(state, K.state.completed, step);
    if (is_completed != 0) {
        return is_completed < 0 ? FAILED : UNKNOWN;
    }
    int is_staged = staged == Py_True, added = TAKEN;
    if (is_staged && guid != Py_None) {
        added = add_named(effect, K.message_prefix, guid, K.work_done);
    }
    else {
        effect->delta = -1;
        added = add_named(effect, K.step_prefix, step, K.entry_digit);
        if (added > 0 && guid != Py_None) {
            added = add_named(effect, K.message_prefix, guid, K.entry_digit + K.whole_message);
        }
    }
    int posted = added <= 0 ? added : post(state, effect, postings);
    if (posted <= 0 || PyDict_SetItem(SLOT(state, K.state.completed), step, Py_True) < 0) {
        return posted <= 0 ? posted : FAILED;
    }
    return is_staged ? TAKEN
                     : set_number(state, K.state.open_steps, number_of(SLOT(state, K.state.open_steps)) - 1);
}

static int
take_awaiting(PyObject *state, PyObject *event)
{
    PyObject *waiting_on = SLOT(event, K.awaiting.waiting_on), *kind = SLOT(event, K.awaiting.kind);
    if (!program_runs(state) || !PyTuple_CheckExact(waiting_on) || PyTuple_GET_SIZE(waiting_on) == 0
        || SLOT(event, K.awaiting.signal) != Py_None || (kind != K.single && kind != K.any && kind != K.all)) {
        return UNKNOWN;
    }
    set_slot(state, K.state.wait, event);
    if (SLOT(state, K.state.status) != K.cancelling) {
        set_slot(state, K.state.status, K.blocked);
    }
    return TAKEN;
}

static int
take_resumed(PyObject *state)
{
    PyObject *wait = SLOT(state, K.state.wait);
    if (!Py_IS_TYPE(wait, K.awaiting.type)) {
        return UNKNOWN;
    }
    PyObject *waiting_on = SLOT(wait, K.awaiting.waiting_on);
    int is_any = SLOT(wait, K.awaiting.kind) == K.any, is_satisfied = !is_any;
    if (!PyTuple_CheckExact(waiting_on)) {
        return UNKNOWN;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(waiting_on) && is_satisfied == !is_any; i++) {
        is_satisfied = has(state, K.state.completed, PyTuple_GET_ITEM(waiting_on, i));
        if (is_satisfied < 0) {
            return FAILED;
        }
    }
    if (!is_satisfied) {
        return UNKNOWN;
    }
    set_slot(state, K.state.wait, Py_None);
    if (SLOT(state, K.state.status) != K.cancelling) {
        set_slot(state, K.state.status, K.running);
    }
    return TAKEN;
}

static int
take_posted(PyObject *state, PyObject *event, Effect *effect, PyObject *postings)
{
    PyObject *given = SLOT(event, K.posted.postings), *delta = SLOT(event, K.posted.semaphore);
    if (!PyTuple_CheckExact(given) || PyTuple_GET_SIZE(given) > MOST_POSTINGS || !PyLong_CheckExact(delta)) {
        return UNKNOWN;
    }
    int overflow = 0;
    effect->delta = PyLong_AsLongLongAndOverflow(delta, &overflow);
    if (overflow || effect->delta < -K.most_open || effect->delta > K.most_open) {
        return UNKNOWN;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(given); i++) {
        PyObject *each = PyTuple_GET_ITEM(given, i);
        if (!Py_IS_TYPE(each, K.posting.type) || !PyUnicode_CheckExact(SLOT(each, K.posting.account))) {
            return UNKNOWN;
        }
        if (add_posting(effect, Py_NewRef(SLOT(each, K.posting.account)), number_of(SLOT(each, K.posting.increment))) < 0) {
            return FAILED;
        }
    }
    return post(state, effect, postings);
}

static int
take(PyObject *state, PyObject *event, PyObject *postings)
{
    PyTypeObject *type = Py_TYPE(event);
    Effect effect = {.count = 0, .delta = 0};
    int taken = UNKNOWN;
    if (type == K.beginning.type) {
        taken = take_beginning(state, event, &effect, postings);
    }
    else if (!is_open(SLOT(state, K.state.status))) {
        return UNKNOWN;
    }
    else if (type == K.completed.type) {
        taken = take_completed(state, event, &effect, postings);
    }
    else if (type == K.resumed) {
        taken = take_resumed(state);
    }
    else if (type == K.scheduled.type) {
        taken = take_scheduled(state, event, &effect, postings);
    }
    else if (type == K.awaiting.type) {
        taken = take_awaiting(state, event);
    }
    else if (type == K.started.type) {
        taken = take_started(state, event);
    }
    else if (type == K.posted.type) {
        taken = take_posted(state, event, &effect, postings);
    }
    else if (type == K.end.type) {
        taken = take_end(state, event, &effect, postings);
    }
    drop_effect(&effect);
    return taken;
}

/* JSON: the form that msgspec gives an event without its payload, of texts that need no escape */

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
write_beginning(Text *text, PyObject *event)
{
    PyObject *version = SLOT(event, K.beginning.version);
    if (number_of(SLOT(event, K.beginning.inherited)) != 0 || !PyUnicode_CheckExact(version)) {
        return UNKNOWN;
    }
    TRY(WRITE(text, "{\"type\":\"ExecutionStarted\""));
    TEXT_FIELD(text, "program", SLOT(event, K.beginning.program));
    TEXT_FIELD(text, "component_digest", SLOT(event, K.beginning.component_digest));
    TEXT_FIELD(text, "root", SLOT(event, K.beginning.root));
    if (PyUnicode_GET_LENGTH(version) > 0) {
        TEXT_FIELD(text, "version", version);
    }
    OPTIONAL_FIELD(text, "parent_id", SLOT(event, K.beginning.parent_id));
    OPTIONAL_FIELD(text, "idempotency_key", SLOT(event, K.beginning.idempotency_key));
    OPTIONAL_FIELD(text, "trigger", SLOT(event, K.beginning.trigger));
    OPTIONAL_FIELD(text, "guid", SLOT(event, K.beginning.guid));
    OPTIONAL_FIELD(text, "continues", SLOT(event, K.beginning.continues));
    return WRITE(text, "}");
}

static int
write_end(Text *text, PyObject *event)
{
    TRY(WRITE(text, "{\"type\":\"ExecutionCompleted\""));
    NUMBER_FIELD(text, "released", SLOT(event, K.end.released));
    OPTIONAL_FIELD(text, "guid", SLOT(event, K.end.guid));
    OPTIONAL_FIELD(text, "step", SLOT(event, K.end.step));
    return WRITE(text, "}");
}

static int
write_scheduled(Text *text, PyObject *event)
{
    PyObject *staged = SLOT(event, K.scheduled.staged);
    if (SLOT(event, K.scheduled.kind) != K.function_kind || SLOT(event, K.scheduled.retry_policy) != Py_None
        || !PyBool_Check(staged)) {
        return UNKNOWN;
    }
    TRY(WRITE(text, "{\"type\":\"InvokeScheduled\""));
    TEXT_FIELD(text, "promise_id", SLOT(event, K.scheduled.promise_id));
    TEXT_FIELD(text, "function_name", SLOT(event, K.scheduled.function_name));
    if (staged == Py_True) {
        TRY(WRITE(text, ",\"staged\":true"));
    }
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
    if (!PyBool_Check(ok) || !PyBool_Check(staged)) {
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
    if (type == K.posted.type) {
        return write_posted(text, event);
    }
    if (type == K.beginning.type) {
        return write_beginning(text, event);
    }
    return type == K.end.type ? write_end(text, event) : UNKNOWN;
}

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
        return PyObject_Vectorcall(K.plainly, arguments, 4, NULL);
    }
    PyObject *events = PySequence_Tuple(arguments[1]); /* ours, whatever becomes of the list */
    if (events == NULL) {
        return NULL;
    }
    if (PyBytes_GET_SIZE(entropy) < NONCE_BYTES * PyTuple_GET_SIZE(events) || !has_plain_payloads(events)) {
        Py_DECREF(events);
        return PyObject_Vectorcall(K.plainly, arguments, 4, NULL);
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
    {"adopt", adopt, METH_O, "Look up the classes and the values that appending needs."},
    {"admit", (PyCFunction)(void (*)(void))admit, METH_FASTCALL,
     "admit(state, event, postings): fold an ordinary event in. Whether it was one; if not, nothing changed."},
    {"append", (PyCFunction)(void (*)(void))append, METH_FASTCALL,
     "append(journal, events, at_ms, entropy): what `append_plainly` does."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "perdure.core.journal._quick",
    .m_doc = "The quick way to append to a journal.",
    .m_size = -1,
    .m_methods = methods,
};

PyMODINIT_FUNC
PyInit__quick(void)
{
    return PyModule_Create(&definition);
}
