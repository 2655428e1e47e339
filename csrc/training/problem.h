/* The training problem as data: the objective, the weights, and the gradient. */
#ifndef TRAINING_PROBLEM_H
#define TRAINING_PROBLEM_H

#include "attention/windows.h"
#include "training/loss.h"

struct general_output;

struct objective {
    const struct windows *w;
    const double *scores;                /* (entries) of a linear head on one attention head, or NULL */
    const struct general_output *output; /* values and head; NULL if only scores are given, and the head is fixed */
    enum loss loss;
    /* For LOSS_CALL: u [M] becomes the losses, and log_slope [M] = log(-l'(u)).  Nonzero: the function has failed. */
    int (*call_loss)(void *context, double *u, double *log_slope, ptrdiff_t M);
    void *loss_context;
    double ridge;
};

/* How the weights are stored. */
enum form {
    FORM_MATRIX,  /* W */
    FORM_FACTORS, /* K and Q with W = K Q^T */
    FORM_SPAN     /* W + C^T Z with a fixed W, see training/transform.h */
};

/* Are the parameters of the output head weights too? */
enum head_training { HEAD_IS_FIXED, HEAD_IS_TRAINED };

/* Run r and attention head h have number n = r H + h in these arrays. */
struct weights {
    enum form form;
    ptrdiff_t runs, heads; /* R, H */
    double *W;             /* (R H, dk, dz), or NULL if there are factors */
    double *K, *Q;         /* (R H, dk, m), (R H, dz, m) */
    ptrdiff_t m;
    double *span; /* (R H, 2, M, dk): U = Z W^T and C */
    enum head_training head;
    double *v;              /* (R, n_v) parameters of a trained head: v or V, then a or lam */
    ptrdiff_t n_v, n_first; /* n_first: the size of v or V alone; both are 0 for a fixed head */
};

/* The gradient is exp(log_scale) times these arrays. */
struct gradient {
    double *W, *K, *Q, *span, *v;    /* in the same variables as the weights */
    double *norm;                    /* for a span: (R H) the norm of the arrays as dL/dW */
    double *log_scale, *log_scale_v; /* (R H) for W, or K and Q; (R) for v */
    double *loss;                    /* (R) the mean loss, without the ridge */
};

/* The matrices in which one W is stored: W itself, K and Q, or a span.  In each array, number n follows number n - 1.
 */
struct matrices {
    int count;
    struct {
        double *W, *G; /* weights and gradient */
        ptrdiff_t rows, columns;
    } part[2];
};

static inline struct matrices problem_matrices(const struct weights *at, const struct gradient *gradient,
                                               const struct windows *w)
{
    if (at->form == FORM_MATRIX)
        return (struct matrices){1, {{at->W, gradient->W, w->dk, w->dz}}};
    if (at->form == FORM_SPAN)
        return (struct matrices){1, {{at->span, gradient->span, 2 * w->n_queries, w->dk}}};
    return (struct matrices){2, {{at->K, gradient->K, w->dk, at->m}, {at->Q, gradient->Q, w->dz, at->m}}};
}

#endif
