/* Empirical risk minimisation, as data: what is trained, on what, and what that needs in memory. */
#ifndef ERM_H
#define ERM_H

#include "attend.h"
#include "loss.h"
#include "output.h"
#include "windows.h"

struct arena;
struct crew;
struct lanes;
struct share;

struct objective {
    const struct windows *w;
    const double *scores;        /* (entries), NULL: */
    const struct output *output; /* the output rule in general */
    const double *values, *y;    /* (N, dv), (M): of a linear head that is trained, else NULL */
    ptrdiff_t dv;
    enum loss loss;
    double ridge;
};

/* The matrices of run r and attention head h are number n = r H + h of the following. */
struct weights {
    ptrdiff_t runs, heads; /* R, H */
    double *W;             /* (R H, dk, dz), NULL for factors */
    double *K, *Q;         /* (R H, dk, m), (R H, dz, m) */
    ptrdiff_t m;
    double *span;           /* (R, 2, M, dk): U = Z W^T and C, for the weights W + C^T Z; else NULL */
    double *v;              /* (R, n_v) of a head that is trained, else NULL: v or V, then a or lam */
    ptrdiff_t n_v, n_first; /* n_first: of v or V alone */
};

struct gradient {
    double *W, *K, *Q, *span, *v;    /* in the same variables as the weights */
    double *norm;                    /* (R) of dL/dW, for a span */
    double *log_scale, *log_scale_v; /* (R H) of W, or K and Q; (R) of v */
    double *loss;                    /* (R) the mean loss, without the ridge */
};

/* The output rule in general: all queries at once. */
struct objective_rule {
    double *U, *P, *B, *PK;   /* (H, M, dk) twice, (H, M, m), (M, m) */
    double *log_scale;        /* (H, M) */
    double *queries, *packed; /* packed Z; packed (M, m) */
    struct output trained;    /* with the head of the run at hand, when it is trained */
    double *c;                /* (M) then: dL/dvalue_q on a common scale */
    struct output_work output;
};

/* Weights in the span of the queries. */
struct objective_span {
    double *gram, *packed;      /* Z Z^T; packed (M, dk) of every run */
    double *log_scale, *factor; /* (R, M), (M) */
    double *P;                  /* (R, 2, M, dk), the second of each two */
};

/* What one evaluation needs beside its arguments; made once, used for every step. */
struct objective_work {
    const struct objective *objective;
    const struct weights *at;
    struct crew *crew;
    int dense;     /* works with W, which factors are multiplied to */
    double *W, *G; /* (R H, dk, dz) then */
    double *packed_W, *packed_Q, *packed_K, *packed_KT;
    double *product;           /* packed factor of a small product */
    unsigned char *zero_query; /* (M) */
    struct attend_head head;
    struct lanes *lanes;  /* NULL unless the problem is small */
    ptrdiff_t block;      /* queries that go together */
    struct share *shares; /* of the threads */
    int n_shares;
    struct objective_rule rule;
    struct objective_span span;
};

#endif
