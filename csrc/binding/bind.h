/* Shared by the binding files, the only ones that include Python.h.  Python converts and names what is wrong with what
 * a user gave (python/attsvm/common/check.py); here arrays are only asserted, so that even a wrong private call cannot
 * crash.
 *
 * A binding is a line of a table: its name, its function and its signature, the arguments and then the results,
 *
 *     BIND(attended, attended, "windows, double values[N,v], double probabilities[E] -> double[M,v]")
 *
 * each "type name[shape]".  bind_run reads the arguments by it, makes arrays for the results, calls the function
 * without the GIL and hands the results over, a single one by itself.  A length is a product of digits and letters: N
 * M E k z are tokens, queries, entries, dk and dz of the windows, H the attention heads of the objective, any other
 * letter what makes its first array fit.  "{type name, ...} record" is one argument, the items its attributes of these
 * names, each checked as an argument by itself would be.  A first length of several factors, "[RH,k,z]", may lie in
 * several axes, or in none where it is 1.
 *
 * An argument is a number or int; a loss, head, rule or ball, codes of these tables; a double, index, bool, tokens
 * (in double or single precision) or reference (a token of each window), arrays in C order; windows, or stored, with
 * keys in memory; an objective; a function; an object, anything.  "double& W" is written to; at the end "?" may be
 * None, then NULL or -1.  A result is a double or index, a new array, None
 * where a letter is not bound; a number, int or word; an exception, what a signal or a callback raised during the call
 * (raised where it is no result); an object, made by the function, which then has the GIL.
 *
 * Converting a number can run Python code, which can change an array: all numbers are read before the first array. */
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
    PyMethodDef definition; /* with the signature as its documentation */
    int (*function)(struct bind_call *call);
    const void *context;
    struct bind_item *items; /* of the signature, read when the module is made: arguments, then results */
    int given, arguments, results, keeps_gil, keeps_exception; /* given: arguments of a call; a record counts once */
};

#define BIND_WITH(name, function, context, signature) \
    {{#name, (PyCFunction)(void (*)(void))bind_run, METH_FASTCALL, signature}, function, context, NULL, 0, 0, 0, 0, 0}
#define BIND(name, function, signature) BIND_WITH(name, function, NULL, signature)

/* The function of every binding. */
PyObject *bind_run(PyObject *entry, PyObject *const *args, Py_ssize_t n);

struct bind_value {
    union {
        double number;
        ptrdiff_t integer; /* or code */
        const char *word;
        void *data; /* of an array */
    };
    PyObject *object; /* owned; the answer of a callback is borrowed */
};

enum { BIND_ARGUMENTS = 34, BIND_RESULTS = 9 }; /* most of a binding */

/* One call, which Ctrl-C can reach. */
struct bind_call {
    const struct bind_entry *entry;
    struct bind_value in[BIND_ARGUMENTS], out[BIND_RESULTS];
    ptrdiff_t size[128]; /* of each letter, -1: not bound */
    const struct windows *w;
    const struct objective *objective;
    const char *refusal; /* of a function that found its arguments not to fit together */
    PyThreadState *thread;
    PyObject *report; /* borrowed, set by the function: called with (iterations, gap); NULL: no report */
    double reported;  /* time of the last report */
    struct monitor monitor;
    struct arena arena;
    struct threads threads;
};

/* For a function to return: ValueError. */
int bind_refuse(struct bind_call *call, const char *message);

/* Reads the signature; nonzero with an exception set. */
int bind_parse(struct bind_entry *entry);

/* Steps of bind_run: all arguments; memory for the results; these as Python gets them, with the exception raised or
 * NULL.  Nonzero or NULL with an exception set. */
int bind_read_arguments(struct bind_call *call, PyObject *const *args, Py_ssize_t n);
int bind_make_results(struct bind_call *call);
PyObject *bind_hand_over(struct bind_call *call, PyObject *raised);

/* Reads one argument by its part of a signature; nonzero with an exception set. */
int bind_read(struct bind_call *call, struct bind_value *value, PyObject *object, const char *item);

/* Whether an array of tokens is in single precision. */
static inline int bind_single(const struct bind_value *tokens)
{
    return PyArray_TYPE((PyArrayObject *)tokens->object) == NPY_FLOAT;
}

/* New double array of one or two dimensions (d1 < 0: one), its data in *data. */
PyObject *bind_new_doubles(double **data, ptrdiff_t d0, ptrdiff_t d1);

/* What is behind a capsule, NULL with an exception set; *heads: those of the objective. */
const struct windows *bind_windows(PyObject *capsule);
const struct objective *bind_objective(ptrdiff_t *heads, PyObject *capsule);

/* Tables that end with an entry without a name. */
extern struct bind_entry bind_call_table[], bind_data_table[], bind_windows_table[], bind_objective_table[],
    bind_train_table[], bind_output_table[], bind_svm_table[], bind_path_table[];

#endif
