/* Binds the functions of windows: logits, softmax, attended vectors and scores. */
#include "binding/bind.h"

#include "attention/softmax.h"
#include "linalg/matrix.h"

static int reference_copy(struct bind_call *call)
{
    PyObject *given = call->in[1].object, *object = PyList_CheckExact(given) ? PyArray_FROM_O(given) : Py_NewRef(given);
    PyArrayObject *array = (PyArrayObject *)object;
    int fits = object != NULL && PyArray_CheckExact(object) && PyArray_TYPE(array) == NPY_INTP
               && PyArray_NDIM(array) == 1 && PyArray_DIM(array, 0) == call->w->n_queries && PyArray_ISCARRAY_RO(array);
    call->out[0].object = fits ? PyArray_NewCopy(array, NPY_CORDER) : Py_NewRef(Py_None);
    if (object == NULL)
        PyErr_Clear();
    Py_XDECREF(object);
    return STATUS_DONE;
}

/* Computes the logits of W, one for each entry.  If the binding has an argument `reference` (M), computes the margins
 * instead: (x_reference - x_t) . W z for every token t that a query z sees. */
static int logits(struct bind_call *call)
{
    const struct windows *w = call->w;
    const ptrdiff_t *reference = call->in[2].data;
    double *out = call->out[0].data;
    /* If the keys are the identity, the logits are the transformed queries U = Z W^T. */
    int in_place = windows_identity(w) && reference == NULL;
    double *U = in_place ? out : arena_doubles(&call->arena, w->n_queries, w->dk);
    double *scratch = arena_doubles(&call->arena, windows_scratch(w), 1);
    if (call->arena.failed)
        return STATUS_NO_MEMORY;
    matrix_rows_times_rows(U, w->queries, call->in[1].data, w->n_queries, w->dk, w->dz);
    if (reference != NULL)
        windows_margins(out, w, U, reference, scratch);
    else if (!in_place)
        windows_logits(out, w, U, scratch);
    return STATUS_DONE;
}

static int probabilities(struct bind_call *call)
{
    const struct windows *w = call->w;
    int status = logits(call);
    double *out = call->out[0].data;
    for (ptrdiff_t q = 0; status == STATUS_DONE && q < w->n_queries; ++q)
        softmax_probabilities(out + w->indptr[q], out + w->indptr[q], windows_length(w, q));
    return status;
}

static int top(struct bind_call *call)
{
    const double *entry = call->in[1].data;
    ptrdiff_t *out = call->out[0].data;
    for (ptrdiff_t q = 0; q < call->w->n_queries; ++q)
        out[q] = softmax_top(entry + call->w->indptr[q], windows_length(call->w, q));
    return STATUS_DONE;
}

static int attended(struct bind_call *call)
{
    windows_attended(call->out[0].data, call->w, call->in[1].data, call->size['v'], call->in[2].data);
    return STATUS_DONE;
}

static int scores(struct bind_call *call)
{
    const struct windows *w = call->w;
    int shared = call->size['i'] == 1;
    /* If all queries share the vector v of the linear head, every token is scored once, unless the windows have fewer
     * entries than there are tokens. */
    int each_token_once = shared && w->tokens <= windows_entries(w);
    double *scratch = each_token_once ? arena_doubles(&call->arena, w->tokens, 1) : NULL;
    ptrdiff_t dv = call->size['v'];
    if (call->arena.failed)
        return STATUS_NO_MEMORY;
    if (!shared && call->size['i'] != w->n_queries)
        return bind_refuse(call, "v must be one for all queries, or one for each");
    windows_scores(call->out[0].data, w, call->in[1].data, bind_single(&call->in[1]), dv, call->in[2].data,
                   call->in[3].data, shared ? 0 : dv, scratch);
    return STATUS_DONE;
}

struct bind_entry bind_windows_table[] = {
    /* Result: a copy of an array or list that the solvers can use as `reference`, or None for any other object. */
    BIND(reference, reference_copy, "windows, object object -> object"),
    BIND(logits, logits, "windows, double W[k,z] -> double[E]"),
    BIND(probabilities, probabilities, "windows, double W[k,z] -> double[E]"),
    BIND(margins, logits, "windows, double W[k,z], reference reference[M] -> double[E]"),
    /* Result: the position of the largest entry within each window, the lowest position on a tie. */
    BIND(top, top, "windows, double entries[E] -> index[M]"),
    BIND(attended, attended, "windows, double values[N,v], double probabilities[E] -> double[M,v]"),
    BIND(scores, scores, "windows, tokens values[N,v], double y[M], double v[1i,v] -> double[E]"),
    {.function = NULL},
};
