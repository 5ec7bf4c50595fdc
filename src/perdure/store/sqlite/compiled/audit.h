/* Audit events, filtered by name before any Python code runs. */

#ifndef PERDURE_AUDIT_H
#define PERDURE_AUDIT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* `watch_events(names, hook)`: from now on and for the life of the process, call `hook(name, arguments)` for audit events
   of these names. Takes a tuple of both; can be called once. */
PyObject *watch_events(PyObject *module, PyObject *given);

#endif
