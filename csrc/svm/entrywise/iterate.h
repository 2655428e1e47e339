/* One point and one step of the interior method for the entrywise norm; see svm/entrywise/interior.c for the
 * mathematics. */
#ifndef SVM_ENTRYWISE_ITERATE_H
#define SVM_ENTRYWISE_ITERATE_H

#include "svm/equalities.h"
#include "svm/systems/newton_system.h"

struct arena;
struct monitor;

struct entrywise_iterate_side {       /* h - w and its multiplier, or h + w: (D) each */
    double *x, *y, *dx, *dy, *target; /* target of y dx + x dy */
};

struct entrywise_iterate {
    const struct rows *rows;
    ptrdiff_t m, D;
    double p;
    double *beta;                       /* (m) b / scale */
    const unsigned char *implied;       /* (m) of the equalities: multiplier 0 */
    double *s, *lambda, *ds, *dlambda;  /* (m) */
    double *target, *residual, *scaled; /* (m) of lambda ds + s dlambda; A w - beta - s; scratch */
    double *U;                          /* (M, dk) scratch of the rows' operators */
    double *w, *h, *dw, *dh;            /* (D) */
    struct entrywise_iterate_side side[2];
    double *M, *log_residual;                  /* (D) A^* lambda; (p-1) log h - log Y */
    double *lift, *tilt, *inverse_H;           /* (D) the elimination of h: see curvature() */
    double *force;                             /* (D) the part of dw known before dlambda */
    double *delta;                             /* (m, dk) rows_delta */
    enum newton_system_unknowns unknowns;      /* ROWS: K; WEIGHTS: `system`, where these are fewer */
    double *K, *products, *weights, *weighted; /* (m,m); (M,dz), (M,dk), (m,dk) scratch of K */
    struct newton_system system;
    double *H, *correction; /* (D) its diagonal; scratch */
    double mu, scale;       /* w = W / scale */
};

/* STATUS_DONE or STATUS_NO_MEMORY. */
int entrywise_iterate_init(struct entrywise_iterate *s, const struct rows *rows, double p, struct arena *arena);

/* From a W [dk,dz] that meets the rows; doubled where they allow it, so that every margin row is strictly met. */
void entrywise_iterate_start(struct entrywise_iterate *s, const double *W, const struct equalities *equalities);

/* Residuals and mu of the present point; nonzero when it has left double precision. */
int entrywise_iterate_measure(struct entrywise_iterate *s);

/* A predictor-corrector step, after entrywise_iterate_measure.  STATUS_DONE; STATUS_ITERATION_LIMIT: the system cannot
 * be factored; STATUS_INTERRUPTED. */
int entrywise_iterate_step(struct entrywise_iterate *s, struct monitor *monitor);

#endif
