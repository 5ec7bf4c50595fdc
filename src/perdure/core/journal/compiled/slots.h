/* Reading and writing the slots of objects, and whether those of a state are valid. */

#ifndef PERDURE_SLOTS_H
#define PERDURE_SLOTS_H

#include "names.h"

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
                                  K.state.scheduled, K.state.set_counts, K.state.started, K.state.timers};
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

#endif
