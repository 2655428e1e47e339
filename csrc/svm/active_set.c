#include "svm/active_set.h"

#include <math.h>

#include "linalg/vector.h"
#include "svm/certificate.h"

ptrdiff_t active_set_exchange(unsigned char *inside, const double *x, const double *margin, const double *b,
                              double size, const struct rows *rows)
{
    double negative = -ACTIVE_SET_MET * vector_largest(x, rows->count);
    double met = rows->homogeneous ? ACTIVE_SET_MET : 0, noise = CERTIFICATE_ROUNDING * size;
    ptrdiff_t changed = 0;
    for (ptrdiff_t k = 0; k < rows->count; ++k) {
        int wrong = inside[k] ? x[k] < negative : b[k] - margin[k] > met * fabs(b[k]) + noise;
        if (wrong && !rows->equal[k]) {
            inside[k] = !inside[k];
            ++changed;
        }
    }
    return changed;
}
