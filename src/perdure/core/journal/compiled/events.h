/* Events: checks, postings and state changes. Each function makes all checks before it changes anything. */

#ifndef PERDURE_EVENTS_H
#define PERDURE_EVENTS_H

#include "ledger.h"

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
    if (PyDict_GET_SIZE(SLOT(state, K.state.set_counts)) > 0) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(waiting_on); i++) {
            int is_set = has(state, K.state.set_counts, PyTuple_GET_ITEM(waiting_on, i));
            if (is_set != 0) {
                return is_set < 0 ? FAILED : UNKNOWN;
            }
        }
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
    if (SLOT(state, K.state.paused) != Py_False || !Py_IS_TYPE(wait, K.awaiting.type)) {
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

#endif
