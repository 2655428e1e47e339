/* Parses the signatures of bindings, reads arguments by a signature, and makes arrays for the results. */
#include "binding/bind.h"

#include <stdio.h>
#include <string.h>

#include "training/descent.h"

enum kind { NUMBER, INTEGER, CODE, ARRAY, REFERENCE, WINDOWS, STORED, OBJECTIVE, FUNCTION, WORD, EXCEPTION, OBJECT };

/* The types of a signature.  `detail` is the NumPy type of an array's numbers.  For an argument that names an option,
 * such as a loss, it is the number of options. */
static const struct type {
    char word[12];
    enum kind kind;
    int detail;
} types[] = {
    {"number", NUMBER, 0},
    {"int", INTEGER, 0},
    {"loss", CODE, LOSS_COUNT},
    {"head", CODE, HEAD_COUNT},
    {"ball", CODE, BALL_COUNT},
    {"rule", CODE, UPDATE_RULE_COUNT},
    {"double", ARRAY, NPY_DOUBLE},
    {"index", ARRAY, NPY_INTP},
    {"bool", ARRAY, NPY_BOOL},
    {"tokens", ARRAY, NPY_FLOAT},
    {"windows", WINDOWS, 0},
    {"reference", REFERENCE, NPY_INTP},
    {"stored", STORED, 0},
    {"objective", OBJECTIVE, 0},
    {"word", WORD, 0},
    {"function", FUNCTION, 0},
    {"exception", EXCEPTION, 0},
    {"object", OBJECT, 0},
    {"", OBJECT, 0}, /* ends the table */
};

/* One argument or result of a signature, such as "double W[k,z]?". */
struct bind_item {
    const struct type *type;
    char name[24];
    const char *shape; /* the lengths in the signature, from after the bracket; NULL if not an array */
    int written, optional;
    PyObject *attribute; /* name of the record's attribute that is this argument; NULL if no record */
    int ends;            /* 1 if the next item of the signature is read from the next argument of the call */
};

/* Reads the item of a signature that begins at `at`.  Returns the beginning of the next item. */
static const char *next_item(struct bind_item *item, const char *at)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz_ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    size_t length = strspn(at, letters);
    item->type = types;
    while (item->type->word[0] != '\0' && (strncmp(item->type->word, at, length) != 0 || item->type->word[length] != 0))
        ++item->type;
    const char *name = at;
    at += length;
    item->written = *at == '&';
    at += item->written;
    if (*at == ' ' && at[1] != '-') {
        name = at + 1;
        length = strspn(name, letters);
        at = name + length;
    }
    snprintf(item->name, sizeof item->name, "%.*s", (int)length, name);
    item->shape = *at == '[' ? at + 1 : NULL;
    at = *at == '[' ? strchr(at, ']') + 1 : at;
    item->optional = *at == '?';
    at += item->optional;
    return at + strspn(at, ", ");
}

/* Reads one length of an item of a signature.  Returns the product of its digits and of the values of its letters, and
 * moves *text to its end.  *unbound becomes a letter that has no value yet, or 0. */
static ptrdiff_t known(const struct bind_call *call, const char **text, unsigned char *unbound)
{
    ptrdiff_t product = 1;
    *unbound = 0;
    for (; **text != ',' && **text != ']'; ++*text) {
        unsigned char letter = (unsigned char)**text;
        if (letter >= '0' && letter <= '9')
            product *= letter - '0';
        else if (call->size[letter] >= 0)
            product *= call->size[letter];
        else
            *unbound = letter;
    }
    return product;
}

static int shape_fits(struct bind_call *call, PyArrayObject *array, const char *shape)
{
    int ndim = PyArray_NDIM(array), axes = 1, axis = 0;
    for (const char *at = shape; *at != ']'; ++at)
        axes += *at == ',';
    /* The first length of a shape such as [RH,k,z] may be spread over several axes of the array: here over `first`
     * axes. */
    int first = strcspn(shape, ",]") > 1 ? ndim - axes + 1 : 1;
    if (first < 0 || first + axes - 1 != ndim)
        return 0;
    for (int i = 0; i < axes; ++i, ++shape) {
        unsigned char unbound;
        ptrdiff_t product = known(call, &shape, &unbound), found = 1;
        for (; axis < first + i; ++axis)
            found *= PyArray_DIM(array, axis);
        if (unbound == 0 ? found != product : product == 0 || found % product != 0)
            return 0;
        if (unbound != 0)
            call->size[unbound] = found / product;
    }
    return 1;
}

/* Raises an error that names the array that was expected, with the lengths that are known, and the object that came. */
static int wrong_array(const struct bind_call *call, const struct bind_item *item, PyObject *object)
{
    char lengths[96] = "";
    size_t used = 0;
    int shown = (int)strcspn(item->shape, "]");
    for (int i = 0; i < shown && used < sizeof lengths; ++i) {
        unsigned char letter = (unsigned char)item->shape[i];
        if (call->size[letter] >= 0)
            used += (size_t)snprintf(lengths + used, sizeof lengths - used, ", %c = %td", letter, call->size[letter]);
    }
    PyObject *shape = PyArray_Check(object) ? PyObject_GetAttrString(object, "shape") : NULL;
    PyObject *type = PyArray_Check(object) ? PyObject_GetAttrString(object, "dtype") : PyObject_Type(object);
    char wanted[64];
    snprintf(wanted, sizeof wanted, "%s[%.*s]", item->type->word, shown, item->shape);
    PyErr_Format(shape != NULL ? PyExc_ValueError : PyExc_TypeError, "%s must be an array %s in C order%s%s, got %S %S",
                 item->name, wanted, item->written ? " that may be written to" : "", lengths, type,
                 shape != NULL ? shape : Py_None);
    Py_XDECREF(shape);
    Py_XDECREF(type);
    return -1;
}

static int read_array(struct bind_call *call, struct bind_value *value, const struct bind_item *item)
{
    PyArrayObject *array = (PyArrayObject *)value->object;
    int wanted = item->type->detail;
    if (!PyArray_Check(value->object) || !PyArray_ISCARRAY_RO(array) /* tests C order, alignment, native byte order */
        || (PyArray_TYPE(array) != wanted && (wanted != NPY_FLOAT || PyArray_TYPE(array) != NPY_DOUBLE))
        || (item->written && !PyArray_ISWRITEABLE(array)) || !shape_fits(call, array, item->shape))
        return wrong_array(call, item, value->object);
    value->data = PyArray_DATA(array);
    const ptrdiff_t *token = value->data;
    for (ptrdiff_t q = 0; item->type->kind == REFERENCE && q < call->w->n_queries; ++q)
        if (token[q] < 0 || token[q] >= windows_length(call->w, q)) {
            PyErr_Format(PyExc_IndexError, "%s: token %zd of query %zd is not in its window", item->name, token[q], q);
            return -1;
        }
    return 0;
}

/* Stores the windows in `call`, and the lengths N, M, E, k and z that they determine. */
static int read_windows(struct bind_call *call, const struct windows *w, int stored)
{
    if (w == NULL)
        return -1;
    if (stored && windows_identity(w)) {
        PyErr_SetString(PyExc_ValueError, "the keys are the identity, not in memory");
        return -1;
    }
    call->w = w;
    call->size['N'] = w->tokens;
    call->size['M'] = w->n_queries;
    call->size['E'] = windows_entries(w);
    call->size['k'] = w->dk;
    call->size['z'] = w->dz;
    return 0;
}

static int read_item(struct bind_call *call, struct bind_value *value, const struct bind_item *item)
{
    enum kind kind = item->type->kind;
    if (item->optional && value->object == Py_None) {
        *value = (struct bind_value){.object = Py_None, .data = NULL};
        if (kind == CODE)
            value->integer = -1;
        return 0;
    }
    switch (kind) {
    case NUMBER:
        value->number = PyFloat_AsDouble(value->object);
        return PyErr_Occurred() ? -1 : 0;
    case INTEGER:
    case CODE:
        value->integer = PyLong_AsSsize_t(value->object);
        if (PyErr_Occurred())
            return -1;
        if (kind == CODE && (value->integer < 0 || value->integer >= item->type->detail)) {
            PyErr_Format(PyExc_ValueError, "unknown %s: %zd", item->name, value->integer);
            return -1;
        }
        return 0;
    case ARRAY:
    case REFERENCE:
        return read_array(call, value, item);
    case WINDOWS:
    case STORED:
        return read_windows(call, bind_windows(value->object), kind == STORED);
    case OBJECTIVE:
        call->objective = bind_objective(&call->size['H'], value->object);
        return call->objective == NULL ? -1 : read_windows(call, call->objective->w, 0);
    case FUNCTION:
        if (PyCallable_Check(value->object))
            return 0;
        PyErr_Format(PyExc_TypeError, "%s must be callable, got %S", item->name, value->object);
        return -1;
    case WORD:
    case EXCEPTION:
    case OBJECT:
        break;
    }
    return 0;
}

int bind_read(struct bind_call *call, struct bind_value *value, PyObject *object, const char *item)
{
    struct bind_item one;
    next_item(&one, item);
    value->object = object;
    return read_item(call, value, &one);
}

int bind_parse(struct bind_entry *entry)
{
    const char *at = entry->definition.ml_doc;
    if (entry->items == NULL
        && (entry->items = PyMem_Calloc(BIND_ARGUMENTS + BIND_RESULTS, sizeof *entry->items)) == NULL)
        return -1;
    entry->given = entry->arguments = entry->results = 0;
    for (int inside = 0; *at != '\0' && *at != '-' && entry->arguments < BIND_ARGUMENTS;) {
        struct bind_item *item = &entry->items[entry->arguments++];
        inside |= *at == '{';
        at = next_item(item, at + (*at == '{'));
        if (inside && (item->attribute = PyUnicode_InternFromString(item->name)) == NULL)
            return -1;
        if (*at == '}') {
            at += strcspn(at, ",-");
            at += strspn(at, ", ");
            inside = 0;
        }
        item->ends = !inside;
        entry->given += item->ends;
    }
    at += strspn(at, "-> ");
    while (*at != '\0' && entry->results < BIND_RESULTS) {
        struct bind_item *item = &entry->items[entry->arguments + entry->results++];
        at = next_item(item, at);
        entry->keeps_gil |= item->type->kind == OBJECT;
        entry->keeps_exception |= item->type->kind == EXCEPTION;
    }
    int known = *at == '\0';
    for (int i = 0; i < entry->arguments + entry->results; ++i)
        known = known && entry->items[i].type->word[0] != '\0';
    if (!known)
        PyErr_Format(PyExc_SystemError, "%s has a signature with unknown types, or too long a one",
                     entry->definition.ml_name);
    return known ? 0 : -1;
}

int bind_read_arguments(struct bind_call *call, PyObject *const *args, Py_ssize_t n)
{
    const struct bind_entry *entry = call->entry;
    const struct bind_item *items = entry->items;
    if (n != entry->given) {
        PyErr_Format(PyExc_TypeError, "%s takes %d arguments, got %zd", entry->definition.ml_name, entry->given, n);
        return -1;
    }
    for (int i = 0; i < entry->arguments; args += items[i++].ends) {
        PyObject *name = items[i].attribute;
        if ((call->in[i].object = name != NULL ? PyObject_GetAttr(*args, name) : Py_NewRef(*args)) == NULL)
            return -1;
    }
    for (int numbers = 1; numbers >= 0; --numbers)
        for (int i = 0; i < entry->arguments; ++i)
            if ((items[i].type->kind <= CODE) == numbers && read_item(call, &call->in[i], &items[i]) < 0)
                return -1;
    return 0;
}

/* Makes a NumPy array of the shape that a signature gives, or None if a letter of the shape has no value. */
static PyObject *new_array(const struct bind_call *call, int type, const char *shape)
{
    npy_intp dims[4];
    int ndim = 0;
    unsigned char unbound;
    for (int more = 1; more; ++shape) {
        dims[ndim++] = known(call, &shape, &unbound);
        if (unbound != 0)
            return Py_NewRef(Py_None);
        more = *shape == ',';
    }
    return PyArray_SimpleNew(ndim, dims, type);
}

int bind_make_results(struct bind_call *call)
{
    const struct bind_item *item = call->entry->items + call->entry->arguments;
    for (int i = 0; i < call->entry->results; ++i, ++item) {
        struct bind_value *value = &call->out[i];
        if (item->type->kind != ARRAY)
            continue;
        if ((value->object = new_array(call, item->type->detail, item->shape)) == NULL)
            return -1;
        value->data = value->object != Py_None ? PyArray_DATA((PyArrayObject *)value->object) : NULL;
    }
    return 0;
}

/* Returns a result of a binding as a Python object, which the caller owns. */
static PyObject *object_of(struct bind_value *value, enum kind kind, PyObject *raised)
{
    PyObject *made = value->object != NULL ? value->object : kind == EXCEPTION ? raised : NULL;
    if (made == NULL && kind == NUMBER)
        return PyFloat_FromDouble(value->number);
    if (made == NULL && kind == INTEGER)
        return PyLong_FromSsize_t(value->integer);
    if (made == NULL && kind == WORD && value->word != NULL)
        return PyUnicode_FromString(value->word);
    return Py_NewRef(made != NULL ? made : Py_None);
}

PyObject *bind_hand_over(struct bind_call *call, PyObject *raised)
{
    const struct bind_item *item = call->entry->items + call->entry->arguments;
    int n = call->entry->results;
    if (n <= 1)
        return n == 1 ? object_of(&call->out[0], item->type->kind, raised) : Py_NewRef(Py_None);
    PyObject *tuple = PyTuple_New(n);
    for (int i = 0; i < n && tuple != NULL; ++i, ++item) {
        PyObject *object = object_of(&call->out[i], item->type->kind, raised);
        if (object == NULL || PyTuple_SetItem(tuple, i, object) < 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}
