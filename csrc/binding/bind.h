/* Declarations for the files of csrc/binding, the only ones that include Python.h.  Python converts the arguments that
 * a user gave, and names the faults in them (python/attsvm/common/check.py).  A binding only asserts the types and
 * shapes of arrays, so that even a wrong private call cannot crash.
 *
 * A binding is a C function that Python can call.  It is a line of a table, with a name, a function, and a signature
 * that lists the arguments and the results:
 *
 *     BIND(attended, attended, "windows, double values[N,v], double probabilities[E] -> double[M,v]")
 *
 * Each argument is "type name[shape]".  bind_run reads the arguments by the signature, makes arrays for the results,
 * calls the function without the GIL, and returns the results, as a tuple unless there is only one.
 *
 * A length is a product of digits and letters.  N M E k z are the tokens, queries, entries, dk and dz of the windows; H
 * is the number of attention heads of the objective.  Any other letter gets the value that makes the first array with
 * it fit.  A first length of several factors, "[RH,k,z]", may be spread over several axes, or have no axis if it is 1.
 * "{type name, ...} record" is one argument; its attributes of these names are read like arguments.
 *
 * Types of arguments are number and int; loss, head, rule and ball, which are codes of these tables; double, index,
 * bool, tokens (in double or single precision) and reference (a token of each window), which are arrays in C order;
 * windows, or stored for windows with keys in memory; objective; function; and object, for anything.  "double& W" may
 * be written to.  An argument with "?" at its end may be None, which becomes NULL or -1.
 *
 * Types of results are double and index, which are new arrays, or None if a letter has no value; number, int and word;
 * exception, for the exception that a signal or a callback raised during the call (without such a result it is raised);
 * and object, which the function makes itself, holding the GIL.
 *
 * Converting a number can run Python code, and that can change an array.  So all numbers are read before the first
 * array. */
#ifndef BINDING_BIND_H
#define BINDING_BIND_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#define PY_ARRAY_UNIQUE_SYMBOL ATTSVM_ARRAY_API
#ifndef BIND_IMPORTS_NUMPY
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>

#include "attention/windows.h"
#include "base/arena.h"
#include "base/monitor.h"
#include "base/status.h"
#include "base/threads.h"

struct bind_call;
struct bind_item;
struct objective;

struct bind_entry {
    PyMethodDef definition; /* name and C function for Python; the documentation string is the signature */
    int (*function)(struct bind_call *call);
    const void *context;
    struct bind_item *items; /* items of the signature, first arguments, then results; read when the module is made */
    /* `given` is the number of arguments that a call passes, where a record counts once.  `arguments` and `results` are
     * numbers of items. */
    int given, arguments, results, keeps_gil, keeps_exception;
};

#define BIND_WITH(name, function, context, signature) \
    {{#name, (PyCFunction)(void (*)(void))bind_run, METH_FASTCALL, signature}, function, context, NULL, 0, 0, 0, 0, 0}
#define BIND(name, function, signature) BIND_WITH(name, function, NULL, signature)

/* Runs a binding.  `entry` is the capsule of its struct bind_entry, and `args` are the n arguments from Python. */
PyObject *bind_run(PyObject *entry, PyObject *const *args, Py_ssize_t n);

struct bind_value {
    union {
        double number;
        ptrdiff_t integer; /* an integer, or the code of a choice such as LOSS_LINEAR */
        const char *word;
        void *data; /* address of the numbers of an array */
    };
    PyObject *object; /* the Python object of the value; owned, except for the answer of a callback */
};

enum { BIND_ARGUMENTS = 34, BIND_RESULTS = 9 }; /* largest numbers of arguments and of results of a binding */

/* The state of one call of a binding.  Ctrl-C can stop the call. */
struct bind_call {
    const struct bind_entry *entry;
    struct bind_value in[BIND_ARGUMENTS], out[BIND_RESULTS];
    ptrdiff_t size[128]; /* length that each letter of a signature stands for, -1 while it has none */
    const struct windows *w;
    const struct objective *objective;
    const char *refusal; /* message of an error if the arguments do not fit together, else NULL */
    PyThreadState *thread;
    PyObject *report; /* Python function that shows progress, called with (iterations, gap); borrowed; NULL if none is
                         given */
    double reported;  /* time of the last call of `report` */
    struct monitor monitor;
    struct arena arena;
    struct threads threads;
};

/* Stores the message of a ValueError, and returns the status that the function of the binding must then return. */
int bind_refuse(struct bind_call *call, const char *message);

/* Reads the signature of a binding into entry->items.  Returns nonzero, with an exception set, if that fails. */
int bind_parse(struct bind_entry *entry);

/* Steps of bind_run before and after the kernel: read all arguments, allocate the results, and convert the results for
 * Python.  `raised` is the exception of the call, or NULL.  A step that fails returns nonzero, or NULL, with an
 * exception set. */
int bind_read_arguments(struct bind_call *call, PyObject *const *args, Py_ssize_t n);
int bind_make_results(struct bind_call *call);
PyObject *bind_hand_over(struct bind_call *call, PyObject *raised);

/* Reads one Python object as `item` describes it, such as "double value[M]".  Returns nonzero, with an exception set,
 * if the object does not fit. */
int bind_read(struct bind_call *call, struct bind_value *value, PyObject *object, const char *item);

/* Returns 1 if an array of tokens is in single precision. */
static inline int bind_single(const struct bind_value *tokens)
{
    return PyArray_TYPE((PyArrayObject *)tokens->object) == NPY_FLOAT;
}

/* Makes a NumPy array of doubles, [d0] or, if d1 >= 0, [d0,d1], and stores the address of its numbers in *data. */
PyObject *bind_new_doubles(double **data, ptrdiff_t d0, ptrdiff_t d1);

/* Returns the windows or the objective that a capsule holds, or NULL with an exception set.  *heads receives the
 * objective's number of attention heads. */
const struct windows *bind_windows(PyObject *capsule);
const struct objective *bind_objective(ptrdiff_t *heads, PyObject *capsule);

/* The tables of bindings, one for each file that binds functions.  A table ends with an entry without a function. */
extern struct bind_entry bind_call_table[], bind_data_table[], bind_windows_table[], bind_objective_table[],
    bind_train_table[], bind_output_table[], bind_svm_table[], bind_path_table[];

#endif
