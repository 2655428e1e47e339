/* The Gram matrix of unit rows, G_kl = (delta_k . delta_l) (z_k . z_l) / (length_k length_l): column by column as they are
 * asked for, or all at once.  Columns are padded to whole vectors, so that loops over them have no remainders; the
 * padding is zero. */
#ifndef GRAM_H
#define GRAM_H

#include "rows.h"

struct arena;

struct gram {
    const struct rows *rows;
    struct arena *arena;
    ptrdiff_t count, stride;            /* m, and m rounded up to whole vectors */
    double **column;                    /* (m) of length stride each; NULL: not asked for yet */
    double *delta;                      /* (dk) scratch */
};

/* No column yet. */
int gram_take(struct gram *gram, const struct rows *rows, struct arena *arena);

/* All columns.  STATUS_DONE or STATUS_NO_MEMORY, here and above. */
int gram_fill(struct gram *gram);

/* Column k; NULL: no memory. */
const double *gram_column(struct gram *gram, ptrdiff_t k);

/* out [stride] = G_:S x_S with S = member [size], columns that have been asked for. */
void gram_combine(double *restrict out, const struct gram *gram, const double *x, const ptrdiff_t *member,
                  ptrdiff_t size);

#endif
