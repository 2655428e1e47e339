#include "rule.h"

#include <math.h>

#include "arena.h"
#include "product.h"
#include "share.h"
#include "status.h"

void rule_take(struct objective_work *work, struct arena *arena)
{
    struct objective_rule *rule = &work->rule;
    const struct windows *w = work->objective->w;
    const struct output *output = work->objective->output;
    ptrdiff_t M = w->n_queries, rows = work->at->heads * M, m = work->at->m;
    rule->U = arena_doubles(arena, rows, w->dk);
    rule->P = arena_doubles(arena, rows, w->dk);
    rule->log_scale = arena_doubles(arena, rows, 1);
    if (work->at->v != NULL) {
        rule->trained = *output;
        rule->c = arena_doubles(arena, M, 1);
        output = &rule->trained;
    }
    output_take(&rule->output, output, w, work->crew, arena);
    if (work->dense) {
        if ((rule->queries = arena_doubles(arena, product_packed(w->dz, M), 1)) != NULL)
            product_pack(rule->queries, w->queries, w->dz, w->dz, M);
    } else {
        rule->B = arena_doubles(arena, rows, m);
        rule->PK = arena_doubles(arena, M, m);
        rule->packed = arena_doubles(arena, product_packed(m, M), 1);
    }
}

/* P [M,dk] of one attention head on the largest of its scales, which is returned. */
static double common_scale(double *P, const double *log_scale, ptrdiff_t M, ptrdiff_t dk)
{
    double scale = -INFINITY;
    for (ptrdiff_t q = 0; q < M; ++q)
        scale = fmax(scale, log_scale[q]);
    for (ptrdiff_t q = 0; q < M; ++q) {
        double factor = scale > -INFINITY ? -exp(log_scale[q] - scale) / (double)M : 0;
        for (ptrdiff_t k = 0; k < dk; ++k)
            P[q * dk + k] *= factor;
    }
    return scale;
}

/* dL/dv_r = 1/M sum_q l'(u_q) y_q d head(o_q)/dv, after a pull-back, which leaves o_q and log|l'(u_q)|. */
static void add_head(struct gradient *gradient, struct objective_work *work, ptrdiff_t r)
{
    struct objective_rule *rule = &work->rule;
    struct output_work *at = &rule->output;
    ptrdiff_t M = work->objective->w->n_queries, first = work->at->n_first;
    double scale = -INFINITY, *dv = gradient->v + r * work->at->n_v, nothing;
    double *rest = first < work->at->n_v ? dv + first : &nothing; /* of a or lam */
    for (ptrdiff_t q = 0; q < M; ++q)
        scale = fmax(scale, at->log_slope[q]);
    for (ptrdiff_t q = 0; q < M; ++q)
        rule->c[q] = scale > -INFINITY ? -exp(at->log_slope[q] - scale) * at->output->y[q] / (double)M : 0;
    head_parameters(dv, rest, rest, &rule->trained.head, at->O, rule->c, at->hidden, M);
    gradient->log_scale_v[r] = scale > -INFINITY ? scale : 0;
}

/* Run by run; P NULL: the loss alone. */
static int evaluate(struct gradient *gradient, double *G, struct objective_work *work, double *P)
{
    const struct objective *objective = work->objective;
    const struct windows *w = objective->w;
    const struct weights *at = work->at;
    struct objective_rule *rule = &work->rule;
    ptrdiff_t M = w->n_queries, H = at->heads, dk = w->dk, dz = w->dz, m = at->m;
    for (ptrdiff_t r = 0; r < at->runs; ++r) {
        if (at->v != NULL)
            head_place(&rule->trained.head, at->v + r * at->n_v);
        for (ptrdiff_t h = 0; h < H; ++h) {
            double *U = rule->U + h * M * dk;
            if (work->dense)
                product_rows(U, dk, w->queries, dz, work->packed_W + (r * H + h) * product_packed(dk, dz), M, dk, dz);
            else
                share_transform(U, dk, rule->B + h * M * m, m, work, r * H + h, w->queries, M);
        }
        int status = output_pull_back(&gradient->loss[r], P, rule->log_scale, objective->loss, rule->U, &rule->output);
        if (status != STATUS_DONE)
            return status;
        if (P != NULL && at->v != NULL)
            add_head(gradient, work, r);
        for (ptrdiff_t h = 0; P != NULL && h < H; ++h) {
            ptrdiff_t n = r * H + h;
            gradient->log_scale[n] = common_scale(P + h * M * dk, rule->log_scale + h * M, M, dk);
            if (work->dense)
                product_columns(G + n * dk * dz, dz, P + h * M * dk, dk, rule->queries, M, dk, dz, M, 0);
            else
                share_add_factors(gradient->K + n * dk * m, gradient->Q + n * dz * m, P + h * M * dk, dk,
                                  rule->B + h * M * m, m, work, n, w->queries, M, rule->PK, rule->packed, 0);
        }
    }
    return STATUS_DONE;
}

int rule_gradient(struct gradient *gradient, double *G, struct objective_work *work)
{
    return evaluate(gradient, G, work, work->rule.P);
}

int rule_loss(struct gradient *gradient, struct objective_work *work)
{
    return evaluate(gradient, NULL, work, NULL);
}
