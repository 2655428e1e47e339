/* Runs a binding: reads the arguments, calls the function without the GIL, and returns results or raises an
 * exception. */
#include <math.h>
#include <string.h>

#include "binding/bind.h"
#include "linalg/blas.h"

/* Returns the exception that a signal handler or a callback has set, and clears it.  The caller owns the exception.
 * There can be both an exception and a result of the kernel, since a signal may arrive after the answer was final. */
static PyObject *take_exception(void)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback != NULL)
        PyException_SetTraceback(value, traceback);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    return value;
}

static void raise_error(const struct bind_call *call, int status, PyObject *raised)
{
    if (raised != NULL)
        PyErr_SetObject((PyObject *)Py_TYPE(raised), raised);
    else if (call->refusal != NULL)
        PyErr_SetString(PyExc_ValueError, call->refusal);
    else if (status == STATUS_NO_MEMORY)
        PyErr_Format(PyExc_MemoryError,
                     "%zu MB of working memory were refused: free some, or ask for less (fewer tokens "
                     "or queries, another method=)",
                     (call->arena.refused >> 20) + 1);
    else if (status == STATUS_NOT_FINITE)
        PyErr_SetString(PyExc_FloatingPointError, "the weights or logits left the range of double precision");
    else
        PyErr_SetString(PyExc_ArithmeticError, "a matrix factorisation failed");
}

/* Number of threads of a call.  The default is one, since many small problems in parallel are the usual load.
 * set_num_threads is meant for a single large problem. */
static atomic_int bind_threads = 1;

static int set_num_threads(struct bind_call *call)
{
    ptrdiff_t threads = call->in[0].integer;
    if (threads > atomic_load(&bind_threads) && blas_map_buffers((int)threads) != 0)
        return STATUS_NO_MEMORY;
    atomic_store(&bind_threads, (int)threads);
    return STATUS_DONE;
}

static int config(struct bind_call *call)
{
    call->out[0].object = Py_BuildValue("{s:s, s:i}", "blas", blas_config(), "threads", atomic_load(&bind_threads));
    return STATUS_DONE;
}

struct bind_entry bind_call_table[] = {
    BIND(set_num_threads, set_num_threads, "int k"),
    BIND(config, config, "-> object"),
    {.function = NULL},
};

#define REPORT_INTERVAL 0.1 /* seconds between two progress reports: smooth for the eye */

static int poll_signals(void *context)
{
    struct bind_call *call = context;
    PyEval_RestoreThread(call->thread);
    int interrupted = PyErr_CheckSignals();
    double now = monitor_clock();
    if (!interrupted && call->report != NULL && now >= call->reported + REPORT_INTERVAL) {
        PyObject *done = PyObject_CallFunction(call->report, "nd", (Py_ssize_t)call->monitor.iterations,
                                               call->monitor.gap);
        interrupted = done == NULL;
        Py_XDECREF(done);
        call->reported = now;
    }
    call->thread = PyEval_SaveThread();
    return interrupted;
}

int bind_refuse(struct bind_call *call, const char *message)
{
    call->refusal = message;
    return STATUS_NOT_FINITE;
}

/* Calls the function of a binding and returns its status.  Afterwards the memory of the call is free, and its threads
 * have ended. */
static int compute(struct bind_call *call)
{
    int keeps_gil = call->entry->keeps_gil;
    call->monitor = (struct monitor){.poll = poll_signals, .context = call, .gap = INFINITY};
    threads_init(&call->threads, atomic_load(&bind_threads), &call->arena);
    call->thread = keeps_gil ? NULL : PyEval_SaveThread();
    int status = call->entry->function(call);
    threads_end(&call->threads);
    arena_free(&call->arena);
    if (!keeps_gil)
        PyEval_RestoreThread(call->thread);
    return status;
}

PyObject *bind_run(PyObject *capsule, PyObject *const *args, Py_ssize_t n)
{
    struct bind_call call = {.entry = PyCapsule_GetPointer(capsule, NULL)};
    if (call.entry == NULL)
        return NULL;
    memset(call.size, -1, sizeof call.size);
    PyObject *result = NULL;
    if (bind_read_arguments(&call, args, n) == 0 && bind_make_results(&call) == 0) {
        int status = compute(&call);
        PyObject *raised = PyErr_Occurred() ? take_exception() : NULL;
        if (status >= 0 && (raised == NULL || call.entry->keeps_exception))
            result = bind_hand_over(&call, raised);
        else
            raise_error(&call, status, raised);
        Py_XDECREF(raised);
    }
    for (int i = 0; i < BIND_ARGUMENTS + BIND_RESULTS; ++i)
        Py_XDECREF(i < BIND_ARGUMENTS ? call.in[i].object : call.out[i - BIND_ARGUMENTS].object);
    return result;
}
