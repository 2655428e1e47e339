/* A second reader of attsvm-proof-1, in C11 and the C library alone: `proof_reader FILE...` prints PROVED or NOT
 * PROVED, with the exit codes of check.py (0 proved, 1 not, 2 damaged, too large or not read).  What is proved, and
 * why, stands in notebooks/check_us.md; all arithmetic is exact.  Not read: bounds in l_p norms ("not read: l_p"),
 * packed files. */
#include "proof_json.h"

typedef struct {
    long r, c;
    Num *x;
} Matrix;
static Matrix keys, queries;
static long *row_key, *row_other, *row_query, *first, *places, rows; /* row first[q] + t: keys a and t, query */
static int *equation, *listed, lift;                                 /* listed: has a multiplier */
static Num *asked, *y;

#define ARRAY(type, n) ((type *)memset(room(sizeof(type) * (size_t)(n)), 0, sizeof(type) * (size_t)(n)))

static Matrix table(const Node *list, long r, long c)
{
    Matrix A = {r < 0 ? list->n : r, c < 0 ? item(list, 0, -1)->n : c, NULL};
    need(A.r > 0 && A.c > 0, DAMAGED, "an array is empty");
    A.x = ARRAY(Num, A.r * A.c);
    for (long k = 0; k < A.r * A.c; k++)
        A.x[k] = real(item(item(list, k / A.c, A.r), k % A.c, A.c), NULL);
    return A;
}
static Num part(long row, long i)
{ /* coordinate i of x_a - x_t, or of two orthogonal tokens where places stand for them */
    long a = row_key[row], t = row_other[row];
    if (!lift)
        return sub(keys.x[a * keys.c + i], keys.x[t * keys.c + i]);
    return whole(places[a] != places[t] && (places[a] == i || places[t] == i), 0, places[a] == i ? 1 : -1);
}
static Num entry(long row, long place)
{
    Num z = queries.x[row_query[row] * queries.c + place % queries.c];
    return z.sign ? mul(part(row, place / queries.c), z) : z;
}
static long row_of(const Node *pair)
{
    long q = integer(item(pair, 0, -1)), t = integer(item(pair, 1, -1));
    need(q >= 0 && q < queries.r && t >= 0 && t < first[q + 1] - first[q], DAMAGED, "no such row");
    need(row_key[first[q] + t] != row_other[first[q] + t], DAMAGED, "a row of the selected token");
    return first[q] + t;
}
static long place_of(const Node *pair)
{
    long i = integer(item(pair, 0, -1)), j = integer(item(pair, 1, -1));
    need(i >= 0 && i < (lift ? keys.r : keys.c) && j >= 0 && j < queries.c, DAMAGED, "no such place");
    return i * queries.c + j;
}
/* Equations e (those with exists[e]) over unknowns, missed by so much: no unknown of the basis moves by more than this.
 */
static Quotient step(int of_rows, long count, const int *exists, const Num *missed, const Node *witness)
{
    long n = 0, unknowns = of_rows ? keys.c * queries.c : rows, *those = ARRAY(long, count);
    int *gone = ARRAY(int, count), any = 0;
    Quotient zero = {{0}, whole(1, 0, 1)};
    for (long e = 0; e < count; e++)
        any |= exists[e] && missed[e].sign;
    if (!any)
        return zero;
    const Node *basis = member(witness, "basis"), *dependent = member(witness, "dependent");
    for (long k = 0; k < dependent->n; k++) { /* integers by which equations cancel to 0 = 0 */
        const Node *terms = item(dependent, k, -1);
        long m = terms->n, *e = ARRAY(long, m);
        Num *x = ARRAY(Num, m), *values = ARRAY(Num, m);
        for (long i = 0; i < m; i++) {
            const Node *term = item(terms, i, -1);
            e[i] = of_rows ? row_of(term) : place_of(term), x[i] = large(item(term, 2, 3)), values[i] = missed[e[i]];
            need(exists[e[i]], DAMAGED, "no such equation");
            need(!gone[e[i]] && (!i || e[i] != e[0]), NOT_PROVED, "equations do not depend on others as said");
        }
        need(m > 0, DAMAGED, "no terms");
        int cancels = x[0].sign && !dot(x, 1, values, 1, m).sign;
        for (long u = 0; u < unknowns && cancels; u++) {
            if (!of_rows && !listed[u])
                continue;
            size_t mark = used;
            for (long i = 0; i < m; i++)
                values[i] = of_rows ? entry(e[i], u) : entry(u, e[i]);
            cancels = !dot(x, 1, values, 1, m).sign, used = mark;
        }
        need(cancels, NOT_PROVED, "equations do not depend on others as said");
        gone[e[0]] = 1;
    }
    for (long e = 0; e < count; e++)
        if (exists[e] && !gone[e])
            those[n++] = e;
    Matrix R = table(member(witness, "inverse"), n, n), B = {n, n, ARRAY(Num, n * n)}; /* R transposed */
    need(basis->n == n, NOT_PROVED, "the inverse of a basis is not close enough");
    Num *r = ARRAY(Num, n), off = {0}, most = {0}, one = whole(1, 0, 1);
    for (long j = 0; j < n; j++) {
        long u = of_rows ? place_of(item(basis, j, -1)) : row_of(item(basis, j, -1));
        need(of_rows || listed[u], NOT_PROVED, "a basis of other rows");
        for (long k = 0; k < n; k++)
            B.x[k * n + j] = of_rows ? entry(those[k], u) : entry(u, those[k]);
        r[j] = missed[those[j]];
    }
    for (long i = 0; i < n; i++) {
        Num sum = {0}, moved = size(dot(R.x + i, n, r, 1, n));
        for (long j = 0; j < n; j++)
            sum = add(sum, size(sub(dot(R.x + i, n, B.x + j, n, n), i == j ? one : zero.p)));
        if (compare(sum, off) > 0)
            off = sum;
        if (compare(moved, most) > 0)
            most = moved;
    }
    need(compare(off, one) < 0, NOT_PROVED, "the inverse of a basis is not close enough");
    return (Quotient){most, sub(one, off)};
}
static Num length(const Num *x, long n)
{
    return root(dot(x, 1, x, 1, n));
}
static Num largest_sum(Matrix A)
{ /* of |A^T A|: rows of A are columns of U */
    Num most = {0};
    for (long i = 0; i < A.r; i++) {
        Num sum = {0};
        for (long j = 0; j < A.r; j++)
            sum = add(sum, size(dot(A.x + i * A.c, 1, A.x + j * A.c, 1, A.c)));
        if (compare(sum, most) > 0)
            most = sum;
    }
    return most;
}
static Num bound(Matrix A, const char *norm, const Node *factors)
{
    Num most = {0}, sum = {0};
    long n = A.r * A.c;
    for (long k = 0; k < n; k++) {
        sum = add(sum, size(A.x[k]));
        if (compare(size(A.x[k]), most) > 0)
            most = size(A.x[k]);
    }
    if (!sum.sign || !strcmp(norm, "max") || !strcmp(norm, "sum"))
        return strcmp(norm, "max") ? sum : most;
    if (!strcmp(norm, "frobenius"))
        return length(A.x, n);
    need(factors != NULL, DAMAGED, "no factors");
    Matrix U = table(item(factors, 0, -1), -1, A.r), V = table(item(factors, 1, -1), U.r, A.c),
           rest = {A.r, A.c, ARRAY(Num, n)};
    for (long k = 0; k < n; k++)
        rest.x[k] = sub(A.x[k], dot(U.x + k / A.c, U.c, V.x + k % A.c, V.c, U.r));
    Num missed = length(rest.x, n);
    if (!strcmp(norm, "spectral"))
        return add(root(mul(largest_sum(U), largest_sum(V))), missed);
    Num squares = add(dot(U.x, 1, U.x, 1, U.r * U.c), dot(V.x, 1, V.x, 1, V.r * V.c));
    return add(scaled(squares, -1), mul(root(whole((uint64_t)(A.r < A.c ? A.r : A.c), 0, 1)), missed));
}
static void theorem(const Node *proof, char *text)
{
    const Node *witness = member(proof, "witness"), *windows[5], *claim = member(proof, "claim");
    const char *names[] = {"start", "stop", "selected", "kept", "rhs"};
    static const struct {
        const char *name;
        int depth, null; /* may be null; -1: of the witness, which may lack it */
        char leaf;
    } forms[] = {{"format", 0, 0, '"'},    {"claim", 0, 0, '"'},  {"norm", 0, 0, '"'},       {"keys", 2, 0, '"'},
                 {"queries", 2, 0, '"'},   {"start", 1, 0, '0'},  {"stop", 1, 0, '0'},       {"selected", 1, 0, '0'},
                 {"statement", 0, 1, '"'}, {"C", 0, 1, '"'},      {"kept", 2, 1, '0'},       {"rhs", 2, 1, '"'},
                 {"W", 2, 1, '"'},         {"basis", 2, -1, '0'}, {"dependent", 3, -1, '0'}, {"inverse", 2, -1, '"'},
                 {"W", 3, -1, '"'},        {"dual", 3, -1, '"'}};
    for (size_t k = 0; k < sizeof forms / sizeof *forms; k++) {
        const Node *x = forms[k].null < 0 ? named(witness, forms[k].name) : member(proof, forms[k].name);
        int fine = !x || (forms[k].null > 0 && x->type == 'n') || is_nested(x, forms[k].depth, forms[k].leaf);
        fine &= !x || forms[k].depth < 3 || forms[k].leaf != '"' || x->n == 2;
        need(fine, DAMAGED, forms[k].name);
    }
    const Node *lifts = named(witness, "lift");
    need(!lifts || strchr("tf", lifts->type), DAMAGED, "lift");
    const char *format = member(proof, "format")->text;
    need(!strcmp(format, "attsvm-proof-1"), DAMAGED, "this is no attsvm-proof-1");
    need(!strcmp(claim->text, "optimal") || !strcmp(claim->text, "feasible") || !strcmp(claim->text, "infeasible")
             || !strcmp(claim->text, "excluded"),
         DAMAGED, "no claim");
    for (long k = 0; k < witness->n; k += 2)
        named(witness, witness->kids[k].text);
    keys = table(member(proof, "keys"), -1, -1), queries = table(member(proof, "queries"), -1, -1);
    const char *norms[] = {"frobenius", "nuclear", "spectral", "max"},
               *duals[] = {"frobenius", "spectral", "nuclear", "sum"};
    const Node *norm = member(proof, "norm"), *soft = member(proof, "C");
    int kind = 0;
    double C_value = 0, p;
    while (kind < 4 && strcmp(norms[kind], norm->text))
        kind++;
    if (kind == 4)
        need((real(norm, &p), p > 1), DAMAGED, "the norm is none");
    Num C = {0}, one = whole(1, 0, 1), total = {0};
    if (soft->type != 'n')
        C = real(soft, &C_value), need(C.sign > 0 && !kind, DAMAGED, "C is none");
    for (int k = 0; k < 5; k++) {
        windows[k] = member(proof, names[k]);
        if (k < 3 || windows[k]->type != 'n')
            need(windows[k]->type == '[' && windows[k]->n == queries.r, DAMAGED, names[k]);
    }
    first = ARRAY(long, queries.r + 1), rows = 0, lift = 0;
    for (long q = 0; q < queries.r; q++) {
        long i = integer(windows[0]->kids + q), j = integer(windows[1]->kids + q), a = integer(windows[2]->kids + q);
        need(0 <= i && i < j && j <= keys.r && 0 <= a && a < j - i, DAMAGED, "an index out of range");
        first[q + 1] = rows += j - i;
        need(rows * keys.c <= MOST_NUMBERS, DAMAGED, "too many rows");
    }
    row_key = ARRAY(long, rows), row_other = ARRAY(long, rows), row_query = ARRAY(long, rows),
    equation = ARRAY(int, rows);
    listed = ARRAY(int, rows), asked = ARRAY(Num, rows), y = ARRAY(Num, rows);
    for (long q = 0; q < queries.r; q++) {
        long i = integer(windows[0]->kids + q), a = integer(windows[2]->kids + q), n = first[q + 1] - first[q];
        int *keep = ARRAY(int, n);
        const Node *beside = windows[3]->type == 'n' ? NULL : windows[3]->kids + q;
        const Node *values = windows[4]->type == 'n' || windows[4]->kids[q].type == 'n' ? NULL : windows[4]->kids + q;
        need(!values || values->n == n, DAMAGED, "a list too short");
        if (!beside)
            keep[a] = 1;
        for (long k = 0; beside && k < beside->n; k++) {
            long t = integer(item(beside, k, -1));
            need(t >= 0 && t < n, DAMAGED, "an index out of range"), keep[t] = 1;
        }
        need(keep[a], DAMAGED, "the selected token is not kept");
        for (long t = 0, e = first[q]; t < n; t++, e++) {
            int none = t == a || (values && !strcmp(item(values, t, -1)->text, "-inf")); /* no row */
            row_key[e] = i + a, row_other[e] = i + (none ? a : t), row_query[e] = q, equation[e] = keep[t] && !none;
            if (!none)
                asked[e] = values ? real(item(values, t, -1), NULL) : whole(!keep[t], 0, 1);
        }
    }
    const Node *dual = member(proof, "dual");
    need(dual->type == '[' && dual->n > 0, DAMAGED, "no multipliers");
    int negatives = 0, on_margins = 0;
    for (long k = 0; k < dual->n; k++) {
        long e = row_of(item(dual, k, -1));
        need(!listed[e]++, DAMAGED, "a multiplier twice"), y[e] = real(item(dual->kids + k, 2, 3), NULL);
        negatives |= !equation[e] && y[e].sign < 0, on_margins |= !equation[e] && y[e].sign;
    }
    need(!negatives, NOT_PROVED, "a multiplier is negative");
    const Node *gone = named(proof, "without");
    need(!gone || (is_nested(gone, 1, '0') && gone->n <= MOST_GONE), DAMAGED, "without");
    for (long k = 0; gone && k < gone->n; k++) {
        long q = integer(gone->kids + k);
        need(q >= 0 && q < queries.r, DAMAGED, "without names a query that is none");
        need(!strcmp(claim->text, "optimal"), NOT_PROVED, "a query without part has one");
        for (long e = first[q]; e < first[q + 1]; e++)
            need(!listed[e], NOT_PROVED, "a query without part has one");
    }
    total = dot(y, 1, asked, 1, rows);
    int contradicts = !strcmp(claim->text, "infeasible");
    long dz = queries.c, size_W = keys.c * dz, equations = 0;
    for (long e = 0; e < rows; e++)
        equations += equation[e];
    need((contradicts ? dual->n : equations) * size_W <= MOST_NUMBERS, DAMAGED, "too large");
    if (contradicts) {
        need(!C.sign || !on_margins, NOT_PROVED, "soft margins exclude no W");
        lift = lifts && lifts->type == 't', places = ARRAY(long, keys.r);
        for (long k = 0; k < keys.r && lift; k++) { /* the last of equal tokens */
            for (long other = k, i; other < keys.r; other++) {
                for (i = 0; i < keys.c && !compare(keys.x[k * keys.c + i], keys.x[other * keys.c + i]);)
                    i++;
                if (i == keys.c)
                    places[k] = other;
            }
        }
        long count = (lift ? keys.r : keys.c) * dz;
        Num *missed = ARRAY(Num, count), zero = {0};
        int *exists = ARRAY(int, count);
        for (long e = 0; e < rows; e++)
            for (long k = 0; k < count && listed[e]; k++) {
                Num x = entry(e, k);
                if (x.sign)
                    exists[k] = 1, missed[k] = sub(missed[k], mul(y[e], x));
            }
        Quotient change = step(0, count, exists, missed, witness);
        const Node *basis = member(witness, "basis");
        Num left = mul(total, change.q);
        for (long k = 0; k < basis->n; k++) {
            long e = row_of(item(basis, k, -1));
            left = sub(left, mul(change.p, size(asked[e])));
            need(equation[e] || compare(mul(y[e], change.q), change.p) >= 0, NOT_PROVED,
                 "a multiplier may be negative");
        }
        need(compare(left, zero) > 0, NOT_PROVED, "the multipliers do not exclude every W");
        strcpy(text, "no W exists");
    } else {
        need(kind < 4, DAMAGED, "not read: l_p");
        int above = !strcmp(claim->text, "excluded");
        need(!above || !C.sign, NOT_PROVED, "the multipliers exclude no W");
        Matrix none = {keys.c, dz, ARRAY(Num, size_W)}, W = above ? none : table(member(proof, "W"), keys.c, dz),
               M = {keys.c, dz, ARRAY(Num, size_W)};
        Num *U = ARRAY(Num, queries.r * keys.c), *D = ARRAY(Num, rows * keys.c), *reached = ARRAY(Num, rows);
        Num *missed = ARRAY(Num, rows), *weighted = ARRAY(Num, rows * dz), upper, lower, under = one, shortfall = {0};
        for (long k = 0; k < queries.r * keys.c; k++)
            U[k] = dot(W.x + k % keys.c * dz, 1, queries.x + k / keys.c * dz, 1, dz);
        for (long e = 0; e < rows; e++) {
            for (long i = 0; i < keys.c; i++)
                D[e * keys.c + i] = part(e, i);
            for (long j = 0; j < dz && y[e].sign; j++)
                weighted[e * dz + j] = mul(y[e], queries.x[row_query[e] * dz + j]);
            reached[e] = dot(D + e * keys.c, 1, U + row_query[e] * keys.c, 1, keys.c),
            missed[e] = sub(asked[e], reached[e]);
        }
        Quotient moved = {{0}, one}, stretch = {one, one};
        if (!above)
            moved = step(1, rows, equation, missed, witness);
        moved.p = mul(moved.p, root(whole((uint64_t)equations, 0, 1)));
        int stretched = 0, plain = 1;
        for (long e = 0; e < rows; e++) { /* reached: over moved.q from here */
            plain &= !equation[e] || !asked[e].sign;
            if (moved.p.sign)
                reached[e] = mul(reached[e], moved.q),
                missed[e] = mul(length(D + e * keys.c, keys.c), length(queries.x + row_query[e] * dz, dz));
            if (moved.p.sign)
                reached[e] = sub(reached[e], mul(moved.p, missed[e]));
        }
        for (long k = 0; k < size_W; k++)
            M.x[k] = dot(D + k / dz, keys.c, weighted + k % dz, dz, rows);
        for (long e = 0; e < rows; e++) {
            if (equation[e] || row_key[e] == row_other[e])
                continue;
            Num wanted = mul(asked[e], moved.q), less = sub(wanted, reached[e]);
            if (less.sign > 0)
                shortfall = add(shortfall, mul(less, less));
            if (!plain || wanted.sign <= 0 || reached[e].sign <= 0)
                continue;
            if (!stretched++ || compare(mul(wanted, stretch.q), mul(stretch.p, reached[e])) > 0)
                stretch = (Quotient){wanted, reached[e]};
        }
        if (C.sign) {
            Num far = add(mul(length(W.x, size_W), moved.q), moved.p), C4 = scaled(C, 2), rest = {0};
            for (long e = 0; e < rows; e++)
                if (!equation[e])
                    rest = add(rest, mul(y[e], y[e]));
            upper = add(scaled(mul(far, far), -1), mul(C, shortfall)), under = mul(moved.q, moved.q);
            lower = sub(mul(sub(total, scaled(dot(M.x, 1, M.x, 1, size_W), -1)), C4), rest), total = lower, lower = C4;
            text += sprintf(text, "every W with these margins has soft-margin objective (C = %g)", C_value);
        } else {
            for (long e = 0; e < rows && !above; e++)
                if (!equation[e] && row_key[e] != row_other[e])
                    need(compare(mul(stretch.p, reached[e]), mul(mul(asked[e], moved.q), stretch.q)) >= 0, NOT_PROVED,
                         "W misses a margin");
            long growth = kind != 1 ? 1 : keys.c < dz ? keys.c : dz;
            upper = above ? one
                          : add(mul(bound(W, norms[kind], named(witness, "W")), moved.q),
                                mul(moved.p, root(whole((uint64_t)growth, 0, 1))));
            upper = mul(upper, stretch.p), under = mul(moved.q, stretch.q);
            lower = bound(M, duals[kind], named(witness, "dual"));
            text += sprintf(text, "every W with these margins has %s norm", kind ? norms[kind] : "Frobenius");
        }
        need(total.sign > 0 && lower.sign > 0, NOT_PROVED,
             "the multipliers prove no bound"); /* total / lower is the bound */
        Num most = whole(1000000000000000, 0, 1), product = mul(upper, lower), other = mul(total, under);
        char low[40], high[40], gap[40];
        shown((Quotient){mul(total, sub(most, one)), mul(lower, most)}, 0, 9, low);
        shown((Quotient){upper, under}, 1, 9, high);
        shown((Quotient){sub(product, other), other}, 1, 2, gap);
        text += sprintf(text, " above %s", low);
        if (!above)
            text += sprintf(text, "; one has %s (gap %s)", high, gap);
        if (gone && gone->n > 0)
            text += sprintf(text, "; so it is without queries [");
        for (long k = 0; gone && k < gone->n; k++)
            text += sprintf(text, "%s%ld%s", k ? ", " : "", integer(gone->kids + k), k + 1 < gone->n ? "" : "]");
    }
}

int main(int count, char **paths)
{
    volatile int worst = count > 1 ? 0 : DAMAGED;
    char *memory = malloc(ARENA), text[300 + 12 * MOST_GONE];
    if (!memory)
        return DAMAGED;
    for (volatile int k = 1; k < count; k++) {
        arena = memory, used = 0, work = 0, top = 0, text[0] = 0;
        FILE *volatile file = fopen(paths[k], "rb");
        int code = setjmp(over);
        if (!code) {
            need(file != NULL, DAMAGED, "no file");
            char *data = room(MOST_BYTES + 2);
            size_t n = fread(data, 1, MOST_BYTES + 1, file), marks = 0;
            need(n <= MOST_BYTES, DAMAGED, "too large"), data[n] = 0;
            for (size_t i = 0; i < n; i++)
                marks += data[i] == ',' || data[i] == '[' || data[i] == '{';
            need(marks <= MOST_NUMBERS, DAMAGED, "too large");
            stack = room(sizeof(Node) * (2 * MOST_NUMBERS + 4)), at = data;
            Node proof = parsed(0);
            blanks(), need(at == data + n, DAMAGED, "more than JSON");
            for (long i = 0; i < proof.n; i += 2)
                named(&proof, proof.kids[i].text);
            theorem(&proof, text);
            const Node *told = member(&proof, "statement");
            need(told->type == 'n' || !strcmp(told->text, text), NOT_PROVED, "the statement is another");
        }
        if (file)
            fclose(file);
        if (count > 2)
            printf("%s: ", paths[k]);
        printf("%sPROVED: %s\n", code ? "NOT " : "", code ? reason : text);
        worst = code > worst ? code : worst;
    }
    free(memory);
    return worst;
}
