/* Audit events, filtered by name before any Python code runs.

   The interpreter raises an audit event in many cheap operations: `id`, `sys.set_asyncgen_hooks`, reading some attributes.
   A step of a workflow raises six. With a hook in Python, each calls a function, after an attempt to read an attribute of it
   that most functions lack. A hook in C compares a name. */

#include "audit.h"

#include <string.h>

#define MOST_NAMES 8

static struct {
    PyObject *hook, *kept;
    const char *names[MOST_NAMES];
    Py_ssize_t count;
    PyInterpreterState *interpreter;
} watched;

static int
on_event(const char *event, PyObject *arguments, void *Py_UNUSED(data))
{
    for (Py_ssize_t i = 0; i < watched.count; i++) {
        if (strcmp(event, watched.names[i]) == 0) {
            /* The hook belongs to one interpreter, and is gone when that ends. */
            if (!Py_IsInitialized() || PyInterpreterState_Get() != watched.interpreter) {
                return 0;
            }
            PyObject *done = PyObject_CallFunction(watched.hook, "sO", event, arguments);
            Py_XDECREF(done);
            return done == NULL ? -1 : 0;
        }
    }
    return 0;
}

PyObject *
watch_events(PyObject *Py_UNUSED(module), PyObject *given)
{
    PyObject *names, *hook;
    if (!PyArg_ParseTuple(given, "O!O", &PyTuple_Type, &names, &hook)) {
        return NULL;
    }
    if (watched.hook != NULL || PyTuple_GET_SIZE(names) > MOST_NAMES) {
        PyErr_Format(PyExc_ValueError, "events are watched once, and %d at most", MOST_NAMES);
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); i++) {
        watched.names[i] = PyUnicode_AsUTF8(PyTuple_GET_ITEM(names, i));
        if (watched.names[i] == NULL) {
            return NULL;
        }
    }
    /* Kept for the life of the process, as a hook is: the names point into the texts. */
    watched.kept = Py_NewRef(names);
    watched.hook = Py_NewRef(hook);
    watched.interpreter = PyInterpreterState_Get();
    watched.count = PyTuple_GET_SIZE(names);
    if (PySys_AddAuditHook(on_event, NULL) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}
