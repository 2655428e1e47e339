/* One point and one step of the interior method for the entrywise norm; see svm_barrier.c for the mathematics. */
#ifndef SVM_LIFT_H
#define SVM_LIFT_H

#include "equalities.h"
#include "rows.h"

struct arena;
struct stop;

struct svm_lift_side {                /* h - w and its multiplier, or h + w: (D) each */
    double *x, *y, *dx, *dy, *target; /* target of y dx + x dy */
};

struct svm_lift {
    const struct rows *rows;
    ptrdiff_t m, D;
    double p;
    double *beta, *inverse;             /* (m) unit rows; 1 / length */
    unsigned char *implied;             /* (m) an equality row that others imply: multiplier 0 */
    double *s, *lambda, *ds, *dlambda;  /* (m) */
    double *target, *residual, *scaled; /* (m) of lambda ds + s dlambda; A w - beta - s; scratch */
    double *w, *h, *dw, *dh;            /* (D) */
    struct svm_lift_side side[2];
    double *M, *log_residual;                  /* (D) A^* lambda; (p-1) log h - log Y */
    double *lift, *tilt, *inverse_H;           /* (D) the elimination of h: see curvature() */
    double *force;                             /* (D) the part of dw known before dlambda */
    double *delta;                             /* (m, dk) unit differences: those of the rows over their length */
    double *K, *products, *weights, *weighted; /* (m,m); (M,dz), (M,dk), (m,dk) scratch of K */
    double mu, scale;                          /* w = W / scale */
};

/* STATUS_DONE or STATUS_NO_MEMORY. */
int svm_lift_take(struct svm_lift *s, const struct rows *rows, double p, struct arena *arena);

/* From a W [dk,dz] that meets the rows; doubled where they allow it, so that every margin row is strictly met. */
void svm_lift_start(struct svm_lift *s, const double *W, const struct equalities *equalities);

/* Residuals and mu of the present point; nonzero when it has left double precision. */
int svm_lift_measure(struct svm_lift *s);

/* A predictor-corrector step, after svm_lift_measure.  STATUS_DONE; STATUS_ITERATION_LIMIT: the system cannot be
 * factored; STATUS_INTERRUPTED. */
int svm_lift_step(struct svm_lift *s, struct stop *stop);

#endif
