/* The training problem as data: the objective, the weights, and the gradient. */
#ifndef TRAINING_PROBLEM_H
#define TRAINING_PROBLEM_H

#include "attention/windows.h"
#include "training/loss.h"

struct general_output;

struct objective {
    const struct windows *w;
    const double *scores;                /* (entries) scores of a linear head on one attention head, or NULL */
    const struct general_output *output; /* values and output head; NULL if there are only scores, of a fixed head */
    enum loss loss;
    /* For LOSS_CALL: the function, which replaces u [M] by the losses and sets log_slope [M] = log(-l'(u)).  It returns
     * nonzero if it has failed. */
    int (*call_loss)(void *context, double *u, double *log_slope, ptrdiff_t M);
    void *loss_context;
    double ridge;
};

/* How the weights W are stored. */
enum form {
    FORM_MATRIX,  /* W */
    FORM_FACTORS, /* K and Q with W = K Q^T */
    FORM_SPAN     /* W + C^T Z with a fixed W, see training/transform.h */
};

/* Whether the parameters of the output head are trained with the attention weights. */
enum head_training { HEAD_IS_FIXED, HEAD_IS_TRAINED };

/* The weights of R runs with H attention heads.  Run r and attention head h have number n = r H + h in the arrays. */
struct weights {
    enum form form;
    ptrdiff_t runs, heads; /* R, H */
    double *W;             /* (R H, dk, dz) the weights, or the fixed W of a span; NULL if there are factors */
    double *K, *Q;         /* (R H, dk, m) and (R H, dz, m) the factors of W = K Q^T, or NULL */
    ptrdiff_t m;
    double *span; /* (R H, 2, M, dk) the matrices U = Z W^T and C of a span */
    enum head_training head;
    double *v;              /* (R, n_v) parameters of a trained head: v or V, then a or lam */
    ptrdiff_t n_v, n_first; /* number of parameters of a trained head, and number of those in v or V; else 0 */
};

/* The gradient of the training objective, which is exp(log_scale) times these arrays. */
struct gradient {
    double *W, *K, *Q, *span, *v;    /* gradients in W, K, Q, span and v, of the same shapes as the weights */
    double *norm;                    /* for a span: (R H) the norm of dL/dW, without its scale */
    double *log_scale, *log_scale_v; /* log scales: (R H) of W, or of K and Q; (R) of v */
    double *loss;                    /* (R) the mean loss, without the ridge */
};

/* The matrices that store the weights of an attention head: W itself, K and Q, or a span.  In each array, the matrix of
 * number n follows that of number n - 1. */
struct matrices {
    int count;
    struct {
        double *W, *G; /* the weights and their gradient */
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
