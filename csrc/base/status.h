/* The one list of status codes: name, code, the word a result carries, the sentence an error says.
 * 0: done.  > 0: an honest answer that is not "done".  < 0: no answer, the binding raises. */
#ifndef STATUS_H
#define STATUS_H

#define STATUS_LIST(STATUS) \
    STATUS(DONE, 0, "done", "the call did what was asked") \
    STATUS(INFEASIBLE, 1, "infeasible", "no weights meet every row; the multipliers prove it") \
    STATUS(NO_CONSTRAINT, 2, "no constraint", "nothing is asked of the weights, so zero is the answer") \
    STATUS(ITERATION_LIMIT, 3, "iteration limit", "the iteration limit came before the tolerance") \
    STATUS(UNDECIDED, 4, "undecided", "neither a separating matrix nor a proof that there is none was found") \
    STATUS(STATIONARY, 5, "stationary", "the gradient is exactly zero") \
    STATUS(INTERRUPTED, 6, "interrupted", "stopped from outside; what was computed is kept") \
    STATUS(STOPPED, 7, "stopped", "the function that watches has seen enough") \
    STATUS(NO_MEMORY, -1, "no memory", "not enough memory") \
    STATUS(NOT_FINITE, -2, "not finite", "the weights or logits left the range of double precision") \
    STATUS(FACTORIZATION, -3, "factorization", "a matrix factorisation failed")

enum status {
#define STATUS_ENUM(name, code, word, sentence) STATUS_##name = code,
    STATUS_LIST(STATUS_ENUM)
#undef STATUS_ENUM
};

#endif
