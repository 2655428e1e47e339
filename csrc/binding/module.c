/* attsvm._core: the module, and what the binding files share. */
#define BIND_IMPORTS_NUMPY
#include "bind.h"

#include <math.h>

#include "blas.h"

void *bind_array(PyObject *object, const char *name, int type, int optional, int ndim, ptrdiff_t d0, ptrdiff_t d1,
                 ptrdiff_t d2)
{
    if (optional && object == Py_None)
        return NULL;
    if (!PyArray_Check(object)) {
        PyErr_Format(PyExc_TypeError, "%s must be an array", name);
        return NULL;
    }
    PyArrayObject *array = (PyArrayObject *)object;
    if (PyArray_TYPE(array) != type || !PyArray_ISCARRAY_RO(array)) { /* C order, aligned, native byte order */
        PyErr_Format(PyExc_TypeError, "%s has the wrong type or layout", name);
        return NULL;
    }
    const ptrdiff_t wanted[3] = {d0, d1, d2};
    int fits = PyArray_NDIM(array) == ndim;
    for (int i = 0; fits && i < ndim; ++i)
        fits = wanted[i] == BIND_ANY || PyArray_DIM(array, i) == wanted[i];
    if (!fits) {
        PyErr_Format(PyExc_ValueError, "%s has the wrong shape", name);
        return NULL;
    }
    return PyArray_DATA(array);
}

PyObject *bind_new_doubles(double **data, ptrdiff_t d0, ptrdiff_t d1)
{
    npy_intp dims[2] = {d0, d1};
    PyObject *array = PyArray_SimpleNew(d1 < 0 ? 1 : 2, dims, NPY_DOUBLE);
    *data = array != NULL ? PyArray_DATA((PyArrayObject *)array) : NULL;
    return array;
}

int bind_count(const char *function, Py_ssize_t n, Py_ssize_t wanted)
{
    if (n == wanted)
        return 0;
    PyErr_Format(PyExc_TypeError, "%s takes %zd arguments, got %zd", function, wanted, n);
    return -1;
}

/* Threads of one call.  Many small instances side by side are the usual load; whoever has one large problem asks for
 * more. */
static atomic_int bind_threads = 1;

#define REPORT_INTERVAL 0.1 /* seconds: smooth for the eye */

static int poll_signals(void *context)
{
    struct bind_call *call = context;
    PyEval_RestoreThread(call->thread);
    int interrupted = PyErr_CheckSignals();
    double now = stop_clock();
    if (!interrupted && call->report != NULL && now >= call->reported + REPORT_INTERVAL) {
        PyObject *done = PyObject_CallFunction(call->report, "nd", (Py_ssize_t)call->stop.iterations, call->stop.gap);
        interrupted = done == NULL;
        Py_XDECREF(done);
        call->reported = now;
    }
    call->thread = PyEval_SaveThread();
    return interrupted;
}

void bind_begin(struct bind_call *call)
{
    *call = (struct bind_call){.stop = {.poll = poll_signals, .context = call, .gap = INFINITY}};
    crew_take(&call->crew, atomic_load(&bind_threads), &call->arena);
    call->thread = PyEval_SaveThread();
}

static const char *sentence(int status)
{
    switch (status) {
#define STATUS_SENTENCE(name, code, word, sentence) \
    case code: \
        return sentence;
        STATUS_LIST(STATUS_SENTENCE)
#undef STATUS_SENTENCE
    default:
        return "unknown status";
    }
}

int bind_end(struct bind_call *call, int status, PyObject **exception)
{
    crew_dismiss(&call->crew);
    arena_free(&call->arena);
    PyEval_RestoreThread(call->thread);
    *exception = NULL;
    if (PyErr_Occurred()) { /* set by a poll, though the answer may have been final by then */
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        PyErr_NormalizeException(&type, &value, &traceback);
        if (traceback != NULL)
            PyException_SetTraceback(value, traceback);
        *exception = value;
        Py_XDECREF(type);
        Py_XDECREF(traceback);
    }
    if (*exception == NULL)
        *exception = Py_NewRef(Py_None);
    if (status >= 0)
        return 0;
    if (*exception != Py_None) {
        PyErr_SetObject((PyObject *)Py_TYPE(*exception), *exception);
        Py_CLEAR(*exception);
        return -1;
    }
    Py_CLEAR(*exception);
    if (status == STATUS_NO_MEMORY)
        PyErr_NoMemory();
    else
        PyErr_SetString(PyExc_ArithmeticError, sentence(status));
    return -1;
}

static PyObject *set_num_threads(PyObject *module, PyObject *argument)
{
    (void)module;
    long threads = PyLong_AsLong(argument);
    if (threads == -1 && PyErr_Occurred())
        return NULL;
    atomic_store(&bind_threads, (int)threads);
    Py_RETURN_NONE;
}

static PyObject *config(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return Py_BuildValue("{s:s, s:i}", "blas", blas_config(), "threads", atomic_load(&bind_threads));
}

static PyMethodDef module_methods[] = {
    {"set_num_threads", set_num_threads, METH_O, "set_num_threads(k)"},
    {"config", config, METH_NOARGS, "config() -> {'blas': str, 'threads': int}"},
    {NULL, NULL, 0, NULL},
};

static int add_status(PyObject *module)
{
    PyObject *words = Py_BuildValue("{"
#define STATUS_FORMAT(name, code, word, sentence) "is"
                                    STATUS_LIST(STATUS_FORMAT)
#undef STATUS_FORMAT
                                        "}"
#define STATUS_PAIR(name, code, word, sentence) , code, word
                                    STATUS_LIST(STATUS_PAIR));
#undef STATUS_PAIR
    int failed = words == NULL || PyModule_AddObjectRef(module, "STATUS", words) < 0;
    Py_XDECREF(words);
    return failed ? -1 : 0;
}

static int execute(PyObject *module)
{
    if (PyArray_ImportNumPyAPI() < 0)
        return -1;
    PyMethodDef *tables[] = {module_methods,   bind_windows_methods, bind_train_methods,
                             bind_svm_methods, bind_path_methods,    bind_output_methods};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; ++i)
        if (PyModule_AddFunctions(module, tables[i]) < 0)
            return -1;
    blas_use_one_thread();
    return add_status(module);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, execute},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "attsvm._core",
    .m_doc = "C kernels of attsvm.  Private: arguments are positional and already checked.",
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__core(void)
{
    return PyModuleDef_Init(&definition);
}
