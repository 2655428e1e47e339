/* The only list of status codes.  Each has a name, a code, and its word in a result.  Code 0 means done.  A
 * positive code means an answer other than "done".  A negative code means no answer: the binding raises an error. */
#ifndef BASE_STATUS_H
#define BASE_STATUS_H

#define STATUS_LIST(STATUS) \
    STATUS(DONE, 0, "done")                       /* the call did what was asked */ \
    STATUS(INFEASIBLE, 1, "infeasible")           /* no weights meet every row; the multipliers prove it */ \
    STATUS(NO_CONSTRAINT, 2, "no constraint")     /* no row constrains the weights, so zero is the answer */ \
    STATUS(ITERATION_LIMIT, 3, "iteration limit") /* the iteration limit came before the tolerance */ \
    STATUS(UNDECIDED, 4, "undecided")     /* neither a separating matrix nor a proof that there is none was found */ \
    STATUS(STATIONARY, 5, "stationary")   /* the gradient is zero, exactly or, with a capped rank, to 5e-5 */ \
    STATUS(INTERRUPTED, 6, "interrupted") /* stopped from outside; what was computed is kept */ \
    STATUS(STOPPED, 7, "stopped")         /* the callback returned true */ \
    STATUS(TARGET_REACHED, 8, "target reached") /* the loss has come down to the target of the Polyak step */ \
    STATUS(GRADIENT_NOT_FINITE, 9, "gradient not finite") /* the gradient left the range of double precision */ \
    STATUS(DECLINED, 10, "declined")                      /* left to another method */ \
    STATUS(NO_MEMORY, -1, "no memory")                    /* not enough memory */ \
    STATUS(NOT_FINITE, -2, "not finite")       /* the weights or logits left the range of double precision */ \
    STATUS(FACTORIZATION, -3, "factorization") /* a matrix factorisation failed */

enum status {
#define STATUS_ENUM(name, code, word) STATUS_##name = code,
    STATUS_LIST(STATUS_ENUM)
#undef STATUS_ENUM
};

#endif
