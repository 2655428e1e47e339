#include "windows.h"

#include "clones.h"

VECTOR_CLONES
void windows_widen(double *restrict to, const float *restrict from, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; ++i)
        to[i] = (double)from[i];
}
