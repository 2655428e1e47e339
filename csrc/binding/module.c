/* attsvm._core: the module, and helpers of the binding files. */
#define BIND_IMPORTS_NUMPY
#include "binding/bind.h"

#include <math.h>

#include "linalg/blas.h"
#include "svm/methods.h"
#include "training/descent.h"

const void *bind_array(PyObject *object, const char *name, int type, int optional, int ndim, ptrdiff_t d0, ptrdiff_t d1,
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

void *bind_writable(PyObject *object, const char *name, int type, int ndim, ptrdiff_t d0, ptrdiff_t d1, ptrdiff_t d2)
{
    if (bind_array(object, name, type, 0, ndim, d0, d1, d2) == NULL)
        return NULL;
    if (!PyArray_ISWRITEABLE((PyArrayObject *)object)) {
        PyErr_Format(PyExc_ValueError, "%s is read-only, and the call writes to it", name);
        return NULL;
    }
    return PyArray_DATA((PyArrayObject *)object);
}

int bind_tuple(PyObject *tuple, const char *name, PyObject **items, Py_ssize_t n)
{
    if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != n) {
        PyErr_Format(PyExc_TypeError, "%s must be a tuple of %zd", name, n);
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; ++i)
        items[i] = PyTuple_GetItem(tuple, i);
    return 0;
}

int bind_choice(PyObject *object, const char *name, int count)
{
    long code = PyLong_AsLong(object);
    if (code == -1 && PyErr_Occurred())
        return -1;
    if (code < 0 || code >= count) {
        PyErr_Format(PyExc_ValueError, "unknown %s", name);
        return -1;
    }
    return (int)code;
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

/* Threads of one call: one, since many small instances in parallel are the usual load; set_num_threads is for a single
 * large problem. */
static atomic_int bind_threads = 1;

#define REPORT_INTERVAL 0.1 /* seconds: smooth for the eye */

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

void bind_begin(struct bind_call *call)
{
    *call = (struct bind_call){.monitor = {.poll = poll_signals, .context = call, .gap = INFINITY}};
    threads_init(&call->threads, atomic_load(&bind_threads), &call->arena);
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
    threads_end(&call->threads);
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
        PyErr_SetString(status == STATUS_NOT_FINITE ? PyExc_FloatingPointError : PyExc_ArithmeticError,
                        sentence(status));
    return -1;
}

PyObject *bind_end_with(struct bind_call *call, int status, PyObject *result)
{
    PyObject *exception;
    if (bind_end(call, status, &exception) < 0)
        Py_CLEAR(result);
    else
        Py_DECREF(exception);
    return result;
}

static PyObject *set_num_threads(PyObject *module, PyObject *argument)
{
    (void)module;
    long threads = PyLong_AsLong(argument);
    if (threads == -1 && PyErr_Occurred())
        return NULL;
    if (threads > atomic_load(&bind_threads) && blas_map_buffers((int)threads) != 0)
        return PyErr_NoMemory();
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

static int add_object(PyObject *module, const char *name, PyObject *object)
{
    int failed = object == NULL || PyModule_AddObjectRef(module, name, object) < 0;
    Py_XDECREF(object);
    return failed ? -1 : 0;
}

static int add_methods(PyObject *module)
{
    return add_object(module, "METHOD",
                      Py_BuildValue("{"
#define METHOD_FORMAT(name, norm, word, problems, limit, purpose) "s(ss)"
                                    METHOD_LIST(METHOD_FORMAT)
#undef METHOD_FORMAT
                                        "}"
#define METHOD_ENTRY(name, norm, word, problems, limit, purpose) , #name, word, problems
                                    METHOD_LIST(METHOD_ENTRY)));
#undef METHOD_ENTRY
}

static int add_norms(PyObject *module)
{
    return add_object(module, "NORM",
                      Py_BuildValue("{"
#define NORM_FORMAT(more, norm, NORM, ball, singular, exponent, limit, purpose) "s(Od)"
                                    NORM_LIST(NORM_FORMAT, )
#undef NORM_FORMAT
                                        "}"
#define NORM_ENTRY(more, norm, NORM, ball, singular, exponent, limit, purpose) \
    , #norm, singular ? Py_True : Py_False, exponent
                                    NORM_LIST(NORM_ENTRY, )));
#undef NORM_ENTRY
}

static int add_status(PyObject *module)
{
    return add_object(module, "STATUS",
                      Py_BuildValue("{"
#define STATUS_FORMAT(name, code, word, sentence) "is"
                                    STATUS_LIST(STATUS_FORMAT)
#undef STATUS_FORMAT
                                        "}"
#define STATUS_PAIR(name, code, word, sentence) , code, word
                                    STATUS_LIST(STATUS_PAIR)));
#undef STATUS_PAIR
}

struct word {
    const char *word;
    int code;
};

static int add_table(PyObject *module, const char *name, const struct word *words, size_t n)
{
    PyObject *table = PyDict_New();
    int failed = table == NULL;
    for (size_t i = 0; !failed && i < n; ++i) {
        PyObject *code = PyLong_FromLong(words[i].code);
        failed = code == NULL || PyDict_SetItemString(table, words[i].word, code) < 0;
        Py_XDECREF(code);
    }
    if (failed)
        Py_CLEAR(table);
    return add_object(module, name, table);
}

/* Each table of choices as a dict of words to codes, in the order of its list. */
static int add_tables(PyObject *module)
{
#define WORD(member, word) {word, member},
    const struct word losses[] = {LOSS_LIST(WORD)}, heads[] = {HEAD_LIST(WORD)};
    const struct word rules[] = {UPDATE_RULE_LIST(WORD)}, balls[] = {BALL_LIST(WORD)};
#undef WORD
    if (add_table(module, "LOSS", losses, LOSS_COUNT) < 0 || add_table(module, "HEAD", heads, HEAD_COUNT) < 0
        || add_table(module, "UPDATE_RULE", rules, UPDATE_RULE_COUNT) < 0)
        return -1;
    return add_table(module, "BALL", balls, BALL_COUNT);
}

static int execute(PyObject *module)
{
    if (PyArray_ImportNumPyAPI() < 0)
        return -1;
    PyMethodDef *tables[] = {module_methods,     bind_data_methods, bind_windows_methods, bind_objective_methods,
                             bind_train_methods, bind_svm_methods,  bind_path_methods,    bind_output_methods};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; ++i)
        if (PyModule_AddFunctions(module, tables[i]) < 0)
            return -1;
    blas_use_one_thread();
    if (blas_map_buffers(1) != 0) {
        PyErr_NoMemory();
        return -1;
    }
    return bind_svm_types(module) < 0 || add_status(module) < 0 || add_methods(module) < 0 || add_norms(module) < 0
               ? -1
               : add_tables(module);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, execute},
#ifdef Py_GIL_DISABLED /* no state but atomics and what a call owns; arrays are the caller's to guard */
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
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
