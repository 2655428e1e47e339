/* Euclidean projections of matrices onto norm balls, in place. */
#ifndef TRAINING_PROJECTION_H
#define TRAINING_PROJECTION_H

#include <stddef.h>

#include "base/table.h"

struct arena;

#define BALL_LIST(BALL) \
    BALL(BALL_FROBENIUS, "frobenius") \
    BALL(BALL_NUCLEAR, "nuclear")

enum ball { BALL_LIST(TABLE_MEMBER) };
enum { BALL_COUNT = BALL_LIST(TABLE_COUNT) };

/* Projects W [m,n] onto {||W|| <= radius} in the norm of the ball.  A matrix inside the ball does not change.  The
 * nuclear ball costs an SVD.  Returns STATUS_DONE, STATUS_NO_MEMORY or STATUS_FACTORIZATION (W is then unchanged).  The
 * arena is left as it was. */
int projection_ball(double *W, ptrdiff_t m, ptrdiff_t n, enum ball ball, double radius, struct arena *arena);

#endif
