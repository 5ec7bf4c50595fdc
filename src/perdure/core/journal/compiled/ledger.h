/* The ledger: the fast checks of `core/ledger/posting.py`, and posting what they accept. */

#ifndef PERDURE_LEDGER_H
#define PERDURE_LEDGER_H

#include "slots.h"

#define MOST_POSTINGS 4

#define LEG1 100000000000LL
#define COUNTER 100000000LL

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

#endif
