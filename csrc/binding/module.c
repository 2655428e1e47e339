/* Makes the extension module attsvm._core: adds its functions and tables of choices, sets up OpenBLAS and checks it. */
#define BIND_IMPORTS_NUMPY
#include "binding/bind.h"

#include "linalg/blas.h"
#include "linalg/blas_check.h"
#include "svm/methods.h"
#include "training/descent.h"

PyObject *bind_new_doubles(double **data, ptrdiff_t d0, ptrdiff_t d1)
{
    npy_intp dims[2] = {d0, d1};
    PyObject *array = PyArray_SimpleNew(d1 < 0 ? 1 : 2, dims, NPY_DOUBLE);
    *data = array != NULL ? PyArray_DATA((PyArrayObject *)array) : NULL;
    return array;
}

static int add_object(PyObject *module, const char *name, PyObject *object)
{
    int failed = object == NULL || PyModule_AddObjectRef(module, name, object) < 0;
    Py_XDECREF(object);
    return failed ? -1 : 0;
}

/* Adds a binding to the module: the function bind_run, with a capsule of the binding's entry as `self`. */
static int add_function(PyObject *module, struct bind_entry *entry)
{
    PyObject *self = PyCapsule_New(entry, NULL, NULL), *name = PyUnicode_FromString("attsvm._core");
    PyObject *function = self != NULL && name != NULL && bind_parse(entry) == 0
                             ? PyCFunction_NewEx(&entry->definition, self, name)
                             : NULL;
    Py_XDECREF(self);
    Py_XDECREF(name);
    return add_object(module, entry->definition.ml_name, function);
}

/* Adds each list of choices to the module as a dict, in the order of the list.  A list is expanded twice: for the
 * format of Py_BuildValue, and for the entries of the dict. */
static int add_tables(PyObject *module)
{
#define TABLE(name, list, format, entry) add_object(module, name, Py_BuildValue("{" list(format) "}" list(entry)))
#define CODE_FORMAT(member, word) "si"
#define CODE_ENTRY(member, word) , word, (int)member
#define STATUS_FORMAT(name, code, word) "is"
#define STATUS_ENTRY(name, code, word) , code, word
#define METHOD_FORMAT(name, solve, norm, word, problems, limit, purpose) "s(ss)"
#define METHOD_ENTRY(name, solve, norm, word, problems, limit, purpose) , #name, word, problems
#define NORM_FORMAT(norm, NORM, ball, singular, exponent) "s(Od)"
#define NORM_ENTRY(norm, NORM, ball, singular, exponent) , #norm, singular ? Py_True : Py_False, exponent
    return TABLE("LOSS", LOSS_LIST, CODE_FORMAT, CODE_ENTRY) < 0
                   || TABLE("HEAD", HEAD_LIST, CODE_FORMAT, CODE_ENTRY) < 0
                   || TABLE("UPDATE_RULE", UPDATE_RULE_LIST, CODE_FORMAT, CODE_ENTRY) < 0
                   || TABLE("BALL", BALL_LIST, CODE_FORMAT, CODE_ENTRY) < 0
                   || TABLE("STATUS", STATUS_LIST, STATUS_FORMAT, STATUS_ENTRY) < 0
                   || TABLE("METHOD", METHOD_LIST, METHOD_FORMAT, METHOD_ENTRY) < 0
                   || TABLE("NORM", NORM_LIST, NORM_FORMAT, NORM_ENTRY) < 0
               ? -1
               : 0;
}

static int execute(PyObject *module)
{
    if (PyArray_ImportNumPyAPI() < 0)
        return -1;
    struct bind_entry *tables[] = {bind_call_table,  bind_data_table, bind_windows_table, bind_objective_table,
                                   bind_train_table, bind_svm_table,  bind_path_table,    bind_output_table};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; ++i)
        for (struct bind_entry *entry = tables[i]; entry->function != NULL; ++entry)
            if (add_function(module, entry) < 0)
                return -1;
    blas_use_one_thread();
    blas_survive_forks();
    if (blas_map_buffers(1) != 0) {
        PyErr_NoMemory();
        return -1;
    }
    const char *wrong = blas_check();
    if (wrong != NULL) {
        PyErr_Format(PyExc_ImportError,
                     "OpenBLAS is wrong on this processor: %s (%s).  Choose other kernels by the environment variable "
                     "OPENBLAS_CORETYPE (e.g. ARMV8, Haswell, or Prescott), set before Python starts, or build with a "
                     "system's BLAS: ATTSVM_BLAS=openblas pip install .",
                     wrong, blas_config());
        return -1;
    }
    return add_tables(module);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, execute},
/* No GIL is needed: the only state is atomics and the memory of each call, and callers guard their arrays. */
#ifdef Py_GIL_DISABLED
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
