/* This evaluator is the usual way of a small problem, whose windows are short, and the only way of any head but a fixed
 * linear one on one attention head.  A fixed linear head on short windows also goes this way (`work->fixed`), if
 * queries go through W.  Then only the backward pass runs, which also computes the losses. */
#include "training/general.h"

#include <math.h>

#include "attention/softmax.h"
#include "base/arena.h"
#include "base/simd.h"
#include "base/status.h"
#include "base/threads.h"
#include "linalg/gemm.h"
#include "linalg/matrix.h"
#include "linalg/vector.h"

/* Number of doubles in the keys of a block of queries (256 KiB).  These keys stay in the L2 cache until the backward
 * pass. */
#define BLOCK 32768

/* Number of doubles in the keys of a chunk of a window (32 KiB).  They stay in the L1 cache for a second product. */
#define CHUNK 4096

/* Allocates the numbers that short windows keep from the forward pass for the backward pass.  If attended vectors are
 * summed, all attention heads share one array of scores. */
static void init_kept(struct general_work *work, struct arena *arena)
{
    const struct interleaved *windows = &work->windows.interleaved;
    ptrdiff_t H = work->output.heads, groups = work->padded / SOFTMAX_LANES;
    work->kept = arena_take(arena, H, sizeof *work->kept);
    for (ptrdiff_t h = 0; !arena->failed && h < H; ++h) {
        struct interleaved_kept *kept = &work->kept[h];
        ARENA_DOUBLES(arena, windows->before[groups], SOFTMAX_LANES, &kept->logit, &kept->prob);
        kept->score = h > 0 && !work->output.concatenate ? work->kept[0].score
                                                         : arena_doubles(arena, windows->before[groups], SOFTMAX_LANES);
        kept->top = arena_indices(arena, work->padded);
        kept->far = arena_take(arena, groups, sizeof *kept->far);
    }
}

void general_init(struct general_work *work, int short_windows, const struct objective *objective,
                  const struct weights *at, struct transform *transform, struct threads *threads, struct arena *arena)
{
    const struct windows *w = objective->w;
    const struct general_output *output = &work->output;
    const struct head *head = &output->head;
    ptrdiff_t M = w->n_queries, H = at->heads, padded = simd_padded(M);
    *work = (struct general_work){.objective = objective, .at = at, .transform = transform, .threads = threads};
    work->fixed = objective->scores != NULL && at->head == HEAD_IS_FIXED;
    work->output = work->fixed ? (struct general_output){.heads = 1} : *objective->output;
    work->padded = padded;
    work->block = transform_block(w, work->fixed ? M : BLOCK / (w->dk * w->longest));
    work->at_once = head->kind == HEAD_LINEAR && H == 1 && output->values != NULL && !windows_identity(w);
    work->whole = head->kind == HEAD_CALL || objective->loss == LOSS_CALL;
    work->short_windows = short_windows;
    if (short_windows) {
        short_windows_init(&work->windows, work->fixed ? objective->scores : NULL, output->values, output->dv,
                           transform, H, work->block, arena);
        if (!arena->failed && !work->fixed)
            init_kept(work, arena);
    } else {
        work->U = work->P = arena_doubles(arena, H * M, w->dk);
        work->log_scale = arena_doubles(arena, H * M, 1);
        work->logit = windows_identity(w) ? work->U : arena_doubles(arena, H, windows_entries(w));
    }
    work->O = arena_zeros(arena, padded, head->d);
    work->gradient = arena_zeros(arena, padded, head->d);
    work->head = arena_doubles(arena, padded + GEMM_PANEL, head_scratch(head));
    ARENA_DOUBLES(arena, padded, 1, &work->value, &work->log_slope, &work->score, &work->shift);
    work->lift = arena_zeros(arena, padded, 1);
    int workers = threads != NULL ? threads->most : 1;
    work->scratch = arena_take(arena, workers, sizeof *work->scratch);
    for (int i = 0; !arena->failed && i < workers; ++i) {
        struct general_scratch *scratch = &work->scratch[i];
        scratch->keys = arena_doubles(arena, windows_scratch(w), 1);
        scratch->one = arena_doubles(arena, output->dv, 1);
        scratch->part = arena_doubles(arena, w->dk + output->dv, 1);
        scratch->U = short_windows ? arena_doubles(arena, H * w->dk, simd_padded(work->block)) : NULL;
        ARENA_DOUBLES(arena, w->longest, 1, &scratch->score, &scratch->weight, &scratch->c);
    }
}

/* columns_of returns the address of the columns of a block, in an array with d numbers for each query.  `at` is the
 * first query of the block.  If neither a trained head nor a Python function needs the columns of all blocks, `at` is
 * the first query of the thread's first block: all blocks of the thread then use the same columns, which stay in the
 * cache.  lead_of returns the distance in memory between two rows of such columns. */
static double *columns_of(double *array, const struct general_work *work, ptrdiff_t at, ptrdiff_t d)
{
    return array + (work->whole ? at : at * d);
}

static ptrdiff_t lead_of(const struct general_work *work, ptrdiff_t first, ptrdiff_t last)
{
    return work->whole ? work->padded : simd_padded(last - first);
}

/* Returns the logits of query q in attention head h. */
static double *logits_of(const struct general_work *work, ptrdiff_t q, ptrdiff_t h)
{
    const struct windows *w = work->objective->w;
    return work->logit + work->output.heads * w->indptr[q] + h * windows_length(w, q);
}

/* Returns the values (T, dv) of the tokens that query q sees, or NULL if the values are the identity. */
static const double *values_of(const struct general_output *output, const struct windows *w, ptrdiff_t q)
{
    return output->values != NULL ? output->values + w->start[q] * output->dv : NULL;
}

/* Runs both passes of one query, for a linear head on one attention head.  The head's gradient y v does not depend on
 * the forward pass.  So a long window is read from memory twice instead of four times: once for the logits and the
 * scores, once for the attended vector o and the vector-Jacobian product P.  o is a column as in attend_one. */
static void attend_linear(double *o, ptrdiff_t lead, const struct general_work *work,
                          const struct general_scratch *scratch, ptrdiff_t q)
{
    const struct general_output *output = &work->output;
    const struct windows *w = work->objective->w;
    ptrdiff_t T = windows_length(w, q), dk = w->dk, dv = output->dv;
    ptrdiff_t chunk = SIMD_LANES * (1 + CHUNK / SIMD_LANES / dk);
    const double *X = windows_keys(w, q, scratch->keys), *V = values_of(output, w, q);
    double *logit = logits_of(work, q, 0), *p = work->P + q * dk, *part = scratch->part;
    vector_copy(part, output->head.v + q * output->head.v_stride, dv);
    vector_scale(part, output->y[q], dv);
    for (ptrdiff_t t = 0, n; t < T; t += n) {
        n = T - t < 2 * chunk ? T - t : chunk;
        matrix_times_vector(logit + t, X + t * dk, work->U + q * dk, n, dk);
        matrix_times_vector(scratch->score + t, V + t * dv, part, n, dv);
    }
    struct softmax s = softmax_backward(scratch->c, scratch->weight, logit, scratch->score, T);
    vector_zero(scratch->one, dv);
    vector_zero(p, dk);
    for (ptrdiff_t t = 0, n; t < T; t += n) {
        n = T - t < 2 * chunk ? T - t : chunk;
        matrix_transposed_times_vector(part, V + t * dv, scratch->weight + t, n, dv);
        vector_add(scratch->one, 1, part, dv);
        matrix_weighted_differences(part, X + t * dk, 0, scratch->c + t, s.top - t, n, dk);
        vector_add(p, 1, part, dk);
    }
    for (ptrdiff_t i = 0; i < dv; ++i)
        o[i * lead] = scratch->one[i];
    work->log_scale[q] = (vector_is_zero(p, dk) ? -INFINITY : work->transform->idle[q]) + s.shift;
}

/* Computes logits and attended vectors of all attention heads for one query.  o is the query's column of the attended
 * vectors O. */
static void attend_one(double *o, ptrdiff_t lead, const struct general_work *work,
                       const struct general_scratch *scratch, ptrdiff_t q)
{
    const struct general_output *output = &work->output;
    const struct windows *w = work->objective->w;
    ptrdiff_t T = windows_length(w, q), dv = output->dv;
    const double *X = windows_keys(w, q, scratch->keys), *V = values_of(output, w, q);
    for (ptrdiff_t h = 0; h < output->heads; ++h) {
        double *logit = logits_of(work, q, h), *to = o + (output->concatenate ? h * dv * lead : 0);
        double *prob = V != NULL ? scratch->weight : scratch->one;
        if (X != NULL)
            matrix_times_vector(logit, X, work->U + (q * output->heads + h) * w->dk, T, w->dk);
        softmax_probabilities(prob, logit, T);
        if (V != NULL)
            matrix_transposed_times_vector(scratch->one, V, prob, T, dv);
        for (ptrdiff_t i = 0; i < dv; ++i)
            to[i * lead] = scratch->one[i] + (h > 0 && !output->concatenate ? to[i * lead] : 0);
    }
}

/* Computes the vector-Jacobian products P of query q in all attention heads, and their log scales: for the transformed
 * query u in an attention head, M dL/du = -P e^log_scale.  g is the query's column of the output head's gradient. */
static void attend_one_backward(const double *g, ptrdiff_t lead, const struct general_work *work,
                                const struct general_scratch *scratch, ptrdiff_t q)
{
    const struct general_output *output = &work->output;
    const struct windows *w = work->objective->w;
    ptrdiff_t T = windows_length(w, q), dv = output->dv, M = w->n_queries;
    const double *X = windows_keys(w, q, scratch->keys), *V = values_of(output, w, q);
    for (ptrdiff_t h = 0; h < output->heads; ++h) {
        double *p = work->P + (q * output->heads + h) * w->dk;
        if (h == 0 || output->concatenate) { /* if attended vectors are summed, attention heads share the scores */
            double *gathered = V != NULL ? scratch->one : scratch->score;
            for (ptrdiff_t i = 0; i < dv; ++i)
                gathered[i] = g[((output->concatenate ? h * dv : 0) + i) * lead];
            if (V != NULL)
                matrix_times_vector(scratch->score, V, gathered, T, dv);
        }
        ptrdiff_t n = work->run * output->heads + h;
        double *c = work->scale != NULL ? work->delta + n * windows_entries(w) + w->indptr[q] : scratch->c;
        struct softmax s = softmax_backward(c, scratch->weight, logits_of(work, q, h), scratch->score, T);
        if (X != NULL)
            matrix_weighted_differences(p, X, 0, c, s.top, T, w->dk);
        else
            vector_copy(p, c, T);
        if (work->scale != NULL)
            work->top[n * M + q] = s.top;
        double scale = vector_is_zero(p, w->dk) ? -INFINITY : work->transform->idle[q];
        work->log_scale[h * M + q] = scale + s.shift + work->log_slope[q];
    }
}

/* Computes the logits and attended vectors O of the block of queries first .. last-1; `at` as in columns_of. */
static void attend(struct general_work *work, const struct general_scratch *scratch, ptrdiff_t at, ptrdiff_t first,
                   ptrdiff_t last)
{
    const struct general_output *output = &work->output;
    ptrdiff_t H = output->heads, dk = work->objective->w->dk, lead = lead_of(work, first, last);
    double *O = columns_of(work->O, work, at, output->head.d);
    if (!work->short_windows) {
        transform_forward(work->U + first * H * dk, work->transform, work->run, first, last - first);
        for (ptrdiff_t q = first; q < last; ++q)
            (work->at_once && work->scale == NULL ? attend_linear : attend_one)(O + q - first, lead, work, scratch, q);
        return;
    }
    ptrdiff_t columns = simd_padded(last - first);
    short_windows_transform(scratch->U, &work->windows, work->run * H, H, first, last);
    for (ptrdiff_t h = 0; h < H; ++h)
        interleaved_attend(O + (output->concatenate ? h * output->dv * lead : 0), lead, &work->kept[h],
                           &work->windows.interleaved, scratch->U + h * work->objective->w->dk * columns, columns,
                           first, last, h > 0 && !output->concatenate);
}

/* Computes the vector-Jacobian products P of a block of queries, and their log scales.  For a fixed linear head it also
 * computes the losses, which need only the backward pass. */
static void attend_backward(struct general_work *work, const struct general_scratch *scratch, ptrdiff_t at,
                            ptrdiff_t first, ptrdiff_t last)
{
    const struct general_output *output = &work->output;
    ptrdiff_t dk = work->objective->w->dk, lead = lead_of(work, first, last), columns = simd_padded(last - first);
    const double *G = columns_of(work->gradient, work, at, output->head.d);
    const struct interleaved *windows = &work->windows.interleaved;
    if (!work->short_windows) {
        for (ptrdiff_t q = first; q < last; ++q)
            if (work->at_once && work->scale == NULL)
                work->log_scale[q] += work->log_slope[q];
            else
                attend_one_backward(G + q - first, lead, work, scratch, q);
        return;
    }
    double *score = work->score + first, *lift = work->lift + first, *shift = work->shift + first;
    double *value = work->value + first, *log_slope = work->log_slope + first;
    for (ptrdiff_t h = 0; h < output->heads; ++h) {
        double *P = work->windows.P + (h * work->padded + first) * dk;
        double *log_scale = work->windows.log_scale + h * work->padded + first;
        const struct interleaved_kept *kept = work->fixed ? NULL : &work->kept[h];
        if (work->fixed)
            short_windows_transform(scratch->U, &work->windows, work->run, 1, first, last);
        else if (h == 0 || output->concatenate)
            interleaved_scores(kept->score, windows, G + (output->concatenate ? h * output->dv * lead : 0), lead, first,
                               last);
        interleaved_backward(P, score, lift, shift, log_scale, windows, scratch->U, kept, columns, first, last);
        if (work->fixed)
            loss_values(value, log_slope, work->objective->loss, score, lift, shift, columns);
        for (ptrdiff_t i = 0; i < columns; ++i)
            log_scale[i] += shift[i] + log_slope[i];
    }
}

SIMD_DISPATCH
static void multiply_by_labels(double *restrict gradient, double *restrict value, const double *restrict y, ptrdiff_t d,
                               ptrdiff_t count, ptrdiff_t lead)
{
    for (ptrdiff_t i = 0; i < count; ++i)
        value[i] *= y[i];
    for (ptrdiff_t k = 0; k < d; ++k)
        for (ptrdiff_t i = 0; i < count; ++i)
            gradient[k * lead + i] *= y[i];
}

/* Computes the losses of a block of queries, and the gradient of each output u_q in its attended vector o_q. */
static int head_and_loss(struct general_work *work, ptrdiff_t at, ptrdiff_t first, ptrdiff_t last)
{
    const struct objective *objective = work->objective;
    const struct head *head = &work->output.head;
    ptrdiff_t count = last - first, lead = lead_of(work, first, last);
    double *u = work->score + first, *value = work->value + first, *log_slope = work->log_slope + first;
    double *gradient = columns_of(work->gradient, work, at, head->d);
    if (head_evaluate(u, gradient, head, columns_of(work->O, work, at, head->d),
                      columns_of(work->head, work, at, head_scratch(head)), first, count, lead)
        != 0)
        return STATUS_INTERRUPTED;
    multiply_by_labels(gradient, u, work->output.y + first, head->d, count, lead);
    vector_copy(value, u, count);
    if (objective->loss != LOSS_CALL)
        loss_values(value, log_slope, objective->loss, u, work->lift, work->lift, count);
    else if (objective->call_loss(objective->loss_context, value, log_slope, count) != 0)
        return STATUS_INTERRUPTED;
    return STATUS_DONE;
}

enum pass { ATTEND = 1, EVALUATE = 2, BACKWARD = 4 };

struct share {
    struct general_work *work;
    int passes;
};

/* Runs the passes that share->passes names (attend, head_and_loss, backward) for the blocks of queries from .. to-1. */
static void make_blocks(void *context, ptrdiff_t from, ptrdiff_t to, int worker)
{
    const struct share *share = context;
    struct general_work *work = share->work;
    const struct general_scratch *scratch = &work->scratch[worker];
    ptrdiff_t M = work->objective->w->n_queries, end = to * work->block < M ? to * work->block : M;
    int apart = work->whole || work->at->head == HEAD_IS_TRAINED;
    for (ptrdiff_t first = from * work->block, last; first < end; first = last) {
        last = first + work->block < end ? first + work->block : end;
        ptrdiff_t at = apart ? first : from * work->block;
        if (share->passes & ATTEND)
            attend(work, scratch, at, first, last);
        if (share->passes & EVALUATE)
            head_and_loss(work, at, first, last);
        if (share->passes & BACKWARD)
            attend_backward(work, scratch, at, first, last);
    }
}

static void make_passes(struct general_work *work, int passes)
{
    const struct windows *w = work->objective->w;
    double entries = (double)work->output.heads * (double)windows_entries(w);
    struct share share = {work, passes};
    threads_for(work->threads, (w->n_queries + work->block - 1) / work->block,
                entries * (double)(w->dk + work->output.dv), make_blocks, &share);
}

/* Computes the gradient of run r in the parameters v of the output head, dL/dv = 1/M sum_q l'(u_q) y_q d head(o_q)/dv
 * for labels y and outputs u, after the forward pass. */
static void head_backward(struct gradient *gradient, struct general_work *work, ptrdiff_t r)
{
    const struct head *head = &work->output.head;
    ptrdiff_t M = work->objective->w->n_queries, block = work->whole ? M : work->block;
    double scale = -INFINITY, *dv = gradient->v + r * work->at->n_v,
           *c = work->value; /* overwrites the losses, which are not needed any more */
    for (ptrdiff_t q = 0; q < M; ++q)
        scale = fmax(scale, work->log_slope[q]);
    for (ptrdiff_t q = 0; q < M; ++q)
        c[q] = scale > -INFINITY ? -exp(work->log_slope[q] - scale) * work->output.y[q] / (double)M : 0;
    vector_zero(dv, work->at->n_v);
    for (ptrdiff_t first = 0; first < M; first += block) {
        ptrdiff_t last = first + block < M ? first + block : M;
        head_parameters(dv, head, columns_of(work->O, work, first, head->d), c + first,
                        columns_of(work->head, work, first, head_scratch(head)), last - first,
                        lead_of(work, first, last));
    }
    gradient->log_scale_v[r] = scale > -INFINITY ? scale : 0;
}

/* Computes dL/dW, or dL/dK and dL/dQ, of all attention heads of run r, and dL/dv, after the forward and backward
 * passes. */
static void finish(struct gradient *gradient, struct general_work *work, ptrdiff_t r)
{
    ptrdiff_t M = work->objective->w->n_queries, H = work->at->heads;
    for (ptrdiff_t h = 0; work->short_windows && h < H; ++h)
        short_windows_gradient(gradient, &work->windows, r * H + h, h, work->threads);
    if (work->scale != NULL)
        vector_copy(work->scale + r * H * M, work->log_scale, H * M);
    if (!work->short_windows)
        transform_adjoint(gradient, work->P, work->log_scale, work->transform, r, work->threads);
    if (work->at->head == HEAD_IS_TRAINED)
        head_backward(gradient, work, r);
}

int general_gradient(struct gradient *gradient, struct general_work *work, int loss_alone)
{
    ptrdiff_t M = work->objective->w->n_queries;
    work->windows.W = transform_prepare(work->transform);
    for (ptrdiff_t r = work->run = 0; r < work->at->runs; work->run = ++r) {
        if (work->at->head == HEAD_IS_TRAINED)
            head_place(&work->output.head, work->at->v + r * work->at->n_v);
        make_passes(work, work->fixed   ? BACKWARD
                          : work->whole ? ATTEND
                          : loss_alone  ? ATTEND | EVALUATE
                                        : ATTEND | EVALUATE | BACKWARD);
        if (work->whole && head_and_loss(work, 0, 0, M) != STATUS_DONE)
            return STATUS_INTERRUPTED;
        if (work->whole && !loss_alone)
            make_passes(work, BACKWARD);
        gradient->loss[r] = loss_mean(work->value, M, 1);
        if (!loss_alone)
            finish(gradient, work, r);
    }
    return STATUS_DONE;
}
