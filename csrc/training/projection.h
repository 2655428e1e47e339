/* Euclidean projections: the nearest point of a convex set, in place. */
#ifndef PROJECT_H
#define PROJECT_H

#include <stddef.h>

struct arena;

enum project_ball { PROJECT_FROBENIUS, PROJECT_NUCLEAR };

/* Onto {x >= 0, sum x = total}, x [n], total >= 0; scratch [n]. */
void project_simplex(double *x, ptrdiff_t n, double total, double *scratch);

/* Onto {||W|| <= radius} in the ball's norm, W [m,n]; a W inside stays bit for bit.  The nuclear ball costs an SVD.
 * STATUS_DONE, STATUS_NO_MEMORY or STATUS_FACTORIZATION (W is then unchanged).  The arena is given back what was
 * taken. */
int project_ball(double *W, ptrdiff_t m, ptrdiff_t n, enum project_ball ball, double radius, struct arena *arena);

#endif
