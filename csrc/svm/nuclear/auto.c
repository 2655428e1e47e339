/* The choice between the two nuclear methods: the interior point is sturdier, the factored method quicker except on few
 * rows and where queries outnumber the entries of W.  Where the rows are many, both see a working set. */
#include "svm/many_rows.h"
#include "svm/methods.h"

#define INTERIOR_ROWS 100        /* up to which the interior point is quicker too, */
#define INTERIOR_QUERIES 1.5     /* as with more queries than that many times the unknowns: W is nearly a vertex then */
#define INTERIOR_AFFORDABLE 5000 /* rows or unknowns up to which its working set stays affordable */

static int in_turn(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                   struct monitor *monitor, struct arena *arena)
{
    struct solver_step interior = {"interior", nuclear_interior, METHOD_LIMIT_nuclear_interior, NULL};
    struct solver_step factored = {"factored", nuclear_factored, METHOD_LIMIT_nuclear_factored, NULL};
    ptrdiff_t unknowns = rows->w->dk * rows->w->dz, smaller = rows->count < unknowns ? rows->count : unknowns;
    int few = rows->count <= INTERIOR_ROWS, affordable = few || smaller <= INTERIOR_AFFORDABLE;
    int vertex = affordable && (double)rows->w->n_queries > INTERIOR_QUERIES * (double)unknowns;
    int first = (few || vertex) && options->start_W == NULL;
    struct solver_step steps[2] = {first ? interior : factored, first ? factored : interior};
    return solver_in_turn(answer, rows, options, steps, affordable ? 2 : 1, monitor, arena);
}

int nuclear_auto(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                 struct monitor *monitor, struct arena *arena)
{
    return many_rows_solve(answer, rows, options, in_turn, NORM_NUCLEAR, MANY_ROWS, monitor, arena);
}
