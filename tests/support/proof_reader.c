/* A second reader of attsvm-proof-1, in C11 and the C library alone: `proof_reader FILE...` prints PROVED or NOT
 * PROVED, with the exit codes of check.py (0 proved, 1 not, 2 damaged, too large or not read).  What is proved, and
 * why, stands in notebooks/check_us.md; all arithmetic is exact.  Not read: bounds in l_p norms ("not read: l_p"),
 * packed files. */
#include "proof_json.h"

typedef struct {
    long r, c;
    Num *x;
} Matrix;
typedef struct { /* asks <(x_key - x_other) z_query^T, W> for just `asked`, or for at least that; no row: key = other */
    long key, other, query;
    int equation, listed; /* listed: has a multiplier, y */
    Num asked, y;
} Row;
static Matrix keys, queries;
static Row *row;
static long rows, *first, *places; /* row first[q] + t: of query q and its token t */
static int lift;                   /* places stand for tokens, which are orthogonal */
static const Node *proof, *witness;

#define ARRAY(type, n) ((type *)memset(room(sizeof(type) * (size_t)(n)), 0, sizeof(type) * (size_t)(n)))

static Matrix zeros(long r, long c)
{
    return (Matrix){r, c, ARRAY(Num, r * c)};
}
static Matrix table(const Node *list, long r, long c)
{
    Matrix A = zeros(r < 0 ? list->n : r, c < 0 ? item(list, 0, -1)->n : c);
    need(A.r > 0 && A.c > 0, "an array is empty");
    for (long k = 0; k < A.r * A.c; k++)
        A.x[k] = real(item(item(list, k / A.c, A.r), k % A.c, A.c));
    return A;
}
static Matrix turned(Matrix A)
{
    Matrix B = zeros(A.c, A.r);
    for (long k = 0; k < A.r * A.c; k++)
        B.x[k % A.c * A.r + k / A.c] = A.x[k];
    return B;
}
static Matrix product(Matrix A, Matrix B)
{ /* A B^T */
    Matrix C = zeros(A.r, B.r);
    for (long k = 0; k < C.r * C.c; k++)
        C.x[k] = dot(A.x + k / C.c * A.c, B.x + k % C.c * B.c, A.c);
    return C;
}
static Num squares(Matrix A)
{
    return dot(A.x, A.x, A.r * A.c);
}
static Num length(const Num *x, long n)
{
    return root(dot(x, x, n));
}
static Num larger(Num a, Num b)
{
    return compare(a, b) > 0 ? a : b;
}
static Num largest_sum(Matrix A)
{ /* of the sizes in a row */
    Num most = {0};
    for (long i = 0; i < A.r; i++) {
        Num sum = {0};
        for (long j = 0; j < A.c; j++)
            sum = add(sum, size(A.x[i * A.c + j]));
        most = larger(most, sum);
    }
    return most;
}
static Num part(const Row *e, long i)
{
    if (!lift)
        return sub(keys.x[e->key * keys.c + i], keys.x[e->other * keys.c + i]);
    long a = places[e->key], t = places[e->other];
    return whole(a != t && (a == i || t == i), 0, a == i ? 1 : -1);
}
static Num entry(const Row *e, long place)
{
    Num z = queries.x[e->query * queries.c + place % queries.c];
    return z.sign ? mul(part(e, place / queries.c), z) : z;
}
static long row_of(const Node *pair)
{
    long q = integer(item(pair, 0, -1)), t = integer(item(pair, 1, -1));
    need(q >= 0 && q < queries.r && t >= 0 && t < first[q + 1] - first[q], "no such row");
    need(row[first[q] + t].key != row[first[q] + t].other, "a row of the selected token");
    return first[q] + t;
}
static long place_of(const Node *pair)
{
    long i = integer(item(pair, 0, -1)), j = integer(item(pair, 1, -1));
    need(i >= 0 && i < (lift ? keys.r : keys.c) && j >= 0 && j < queries.c, "no such place");
    return i * queries.c + j;
}
static Num factor(int of_rows, long equation, long unknown)
{
    return of_rows ? entry(row + equation, unknown) : entry(row + unknown, equation);
}
/* `all` equations over places or over rows, those that exist, missed by so much: no unknown of the basis moves by more
 * than this. */
static Quotient step(int of_rows, long all, const int *exists, const Num *missed)
{
    long n = 0, unknowns = of_rows ? keys.c * queries.c : rows, *those = ARRAY(long, all);
    int *gone = ARRAY(int, all), any = 0;
    Num one = count(1);
    for (long e = 0; e < all; e++)
        any |= exists[e] && missed[e].sign;
    if (!any)
        return (Quotient){{0}, one};
    const Node *basis = member(witness, "basis"), *dependent = member(witness, "dependent");
    for (long k = 0; k < dependent->n; k++) { /* integers by which equations cancel to 0 = 0 */
        const Node *terms = item(dependent, k, -1);
        long m = terms->n, *e = ARRAY(long, m);
        Num *x = ARRAY(Num, m), *values = ARRAY(Num, m);
        need(m > 0, "no terms");
        for (long i = 0; i < m; i++) {
            const Node *term = item(terms, i, -1);
            e[i] = of_rows ? row_of(term) : place_of(term), x[i] = large(item(term, 2, 3)), values[i] = missed[e[i]];
            need(exists[e[i]], "no such equation");
            for (long j = 0; j <= i; j++)
                holds(!gone[e[i]] && (j == i || e[j] != e[i]), "equations do not depend on others as said");
        }
        int cancels = x[0].sign && !dot(x, values, m).sign;
        for (long u = 0; u < unknowns && cancels; u++) {
            if (!of_rows && !row[u].listed)
                continue;
            size_t mark = used;
            for (long i = 0; i < m; i++)
                values[i] = factor(of_rows, e[i], u);
            cancels = !dot(x, values, m).sign, used = mark;
        }
        holds(cancels, "equations do not depend on others as said");
        gone[e[0]] = 1;
    }
    for (long e = 0; e < all; e++)
        if (exists[e] && !gone[e])
            those[n++] = e;
    Matrix R = turned(table(member(witness, "inverse"), n, n)), B = zeros(n, n), r = zeros(1, n); /* B turned */
    holds(basis->n == n, "the inverse of a basis is not close enough");
    for (long j = 0; j < n; j++) {
        long u = of_rows ? place_of(item(basis, j, -1)) : row_of(item(basis, j, -1));
        holds(of_rows || row[u].listed, "a basis of other rows");
        for (long k = 0; k < n; k++)
            B.x[j * n + k] = factor(of_rows, those[k], u);
        r.x[j] = missed[those[j]];
    }
    Matrix near = product(R, B);
    for (long i = 0; i < n; i++)
        near.x[i * n + i] = sub(near.x[i * n + i], one);
    Num off = largest_sum(near);
    holds(compare(off, one) < 0, "the inverse of a basis is not close enough");
    return (Quotient){largest_sum(product(R, r)), sub(one, off)};
}
static Num bound(Matrix A, const char *norm, const Node *factors)
{
    Matrix all = {1, A.r * A.c, A.x}, each = {all.c, 1, A.x};
    if (!squares(A).sign || !strcmp(norm, "frobenius"))
        return root(squares(A));
    if (!strcmp(norm, "max") || !strcmp(norm, "sum"))
        return largest_sum(strcmp(norm, "max") ? all : each);
    need(factors != NULL, "no factors");
    Matrix U = table(item(factors, 0, -1), -1, A.r), V = table(item(factors, 1, -1), U.r, A.c);
    Matrix rest = product(turned(U), turned(V));
    for (long k = 0; k < all.c; k++)
        rest.x[k] = sub(A.x[k], rest.x[k]);
    Num missed = root(squares(rest));
    if (!strcmp(norm, "spectral"))
        return add(root(mul(largest_sum(product(U, U)), largest_sum(product(V, V)))), missed);
    Num rank = count((uint64_t)(A.r < A.c ? A.r : A.c));
    return add(scaled(add(squares(U), squares(V)), -1), mul(root(rank), missed));
}
static void check_types(void)
{
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
        if (!x || (forms[k].null > 0 && x->type == 'n'))
            continue;
        need(is_nested(x, forms[k].depth, forms[k].leaf), forms[k].name);
        need(forms[k].depth < 3 || forms[k].leaf != '"' || x->n == 2, forms[k].name);
    }
    const Node *lifts = named(witness, "lift");
    need(!lifts || strchr("tf", lifts->type), "lift");
    need(!strcmp(member(proof, "format")->text, "attsvm-proof-1"), "this is no attsvm-proof-1");
}
static void read_rows(void)
{
    const Node *kept = member(proof, "kept"), *rhs = member(proof, "rhs"), *dual = member(proof, "dual");
    long n = queries.r;
    first = ARRAY(long, n + 1), rows = 0;
    for (long q = 0; q < n; q++) {
        long i = integer(item(member(proof, "start"), q, n)), j = integer(item(member(proof, "stop"), q, n));
        need(0 <= i && i < j && j <= keys.r, "an index out of range");
        first[q + 1] = rows += j - i;
        need(rows * keys.c <= MOST_NUMBERS, "too many rows");
    }
    row = ARRAY(Row, rows);
    for (long q = 0; q < n; q++) {
        long i = integer(item(member(proof, "start"), q, n)), T = first[q + 1] - first[q];
        const Node *chosen = item(member(proof, "selected"), q, n), *values = rhs->type == 'n' ? NULL : item(rhs, q, n);
        const Node list = {'[', 1, NULL, (Node *)chosen}, *beside = kept->type == 'n' ? &list : item(kept, q, n);
        long a = integer(chosen);
        int *keep = ARRAY(int, T);
        for (long k = 0; k < beside->n; k++) {
            long t = integer(item(beside, k, -1));
            need(t >= 0 && t < T, "an index out of range");
            keep[t] = 1;
        }
        need(a >= 0 && a < T && keep[a], "the selected token is not kept");
        if (values && values->type == 'n')
            values = NULL;
        need(!values || values->n == T, "a list has another length");
        for (long t = 0; t < T; t++) {
            Row *e = row + first[q] + t;
            int none = t == a || (values && !strcmp(item(values, t, -1)->text, "-inf"));
            *e = (Row){i + a, i + (none ? a : t), q, keep[t] && !none, 0, {0}, {0}};
            if (!none)
                e->asked = values ? real(item(values, t, -1)) : count(!keep[t]);
        }
    }
    need(dual->type == '[' && dual->n > 0, "no multipliers");
    int negative = 0;
    for (long k = 0; k < dual->n; k++) {
        Row *e = row + row_of(item(dual, k, -1));
        need(!e->listed++, "a multiplier twice");
        e->y = real(item(dual->kids + k, 2, 3));
        negative |= !e->equation && e->y.sign < 0;
    }
    holds(!negative, "a multiplier is negative");
    const Node *gone = named(proof, "without");
    need(!gone || (is_nested(gone, 1, '0') && gone->n <= MOST_GONE), "without");
    for (long k = 0; gone && k < gone->n; k++) {
        long q = integer(gone->kids + k);
        need(q >= 0 && q < n, "without names a query that is none");
        holds(!strcmp(member(proof, "claim")->text, "optimal"), "a query without part has one");
        for (long e = first[q]; e < first[q + 1]; e++)
            holds(!row[e].listed, "a query without part has one");
    }
}
static void contradiction(Num total)
{
    const Node *lifts = named(witness, "lift");
    lift = lifts && lifts->type == 't', places = ARRAY(long, keys.r);
    for (long k = 0; k < keys.r; k++) /* the last of equal tokens */
        for (long other = k, i; other < keys.r && lift; other++) {
            for (i = 0; i < keys.c && !compare(keys.x[k * keys.c + i], keys.x[other * keys.c + i]);)
                i++;
            if (i == keys.c)
                places[k] = other;
        }
    long n = (lift ? keys.r : keys.c) * queries.c;
    Num *missed = ARRAY(Num, n);
    int *exists = ARRAY(int, n);
    for (const Row *e = row; e < row + rows; e++)
        for (long k = 0; k < n && e->listed; k++) {
            Num x = entry(e, k);
            exists[k] |= x.sign;
            missed[k] = sub(missed[k], mul(e->y, x));
        }
    Quotient change = step(0, n, exists, missed);
    const Node *basis = member(witness, "basis");
    Num left = mul(total, change.q);
    for (long k = 0; k < basis->n; k++) {
        const Row *e = row + row_of(item(basis, k, -1));
        left = sub(left, mul(change.p, size(e->asked)));
        holds(e->equation || compare(mul(e->y, change.q), change.p) >= 0, "a multiplier may be negative");
    }
    holds(left.sign > 0, "the multipliers do not exclude every W");
}
static char *bounds(char *text, int kind, int above, Num C, Num total)
{
    const char *norms[] = {"Frobenius", "nuclear", "spectral", "max"},
               *duals[] = {"frobenius", "spectral", "nuclear", "sum"};
    long dk = keys.c, dz = queries.c, equations = 0;
    int *equation = ARRAY(int, rows), stretched = 0, plain = 1;
    Matrix W = above ? zeros(dk, dz) : table(member(proof, "W"), dk, dz), U = product(queries, W);
    Matrix D = zeros(rows, dk), weighted = zeros(rows, dz);
    Num *reached = ARRAY(Num, rows), *missed = ARRAY(Num, rows), one = count(1), shortfall = {0}, prices = {0};
    Num upper, lower, under;
    for (long e = 0; e < rows; e++) {
        for (long i = 0; i < dk; i++)
            D.x[e * dk + i] = part(row + e, i);
        for (long j = 0; j < dz; j++)
            weighted.x[e * dz + j] = mul(row[e].y, queries.x[row[e].query * dz + j]);
        reached[e] = dot(D.x + e * dk, U.x + row[e].query * dk, dk);
        missed[e] = sub(row[e].asked, reached[e]);
        equations += equation[e] = row[e].equation;
        plain &= !equation[e] || !row[e].asked.sign;
    }
    Matrix M = product(turned(D), turned(weighted));
    Quotient moved = {{0}, one}, stretch = {one, one};
    if (!above)
        moved = step(1, rows, equation, missed);
    moved.p = mul(moved.p, root(count((uint64_t)equations)));
    for (long e = 0; e < rows; e++) { /* reached: over moved.q from here */
        if (equation[e] || row[e].key == row[e].other)
            continue;
        Num far = mul(length(D.x + e * dk, dk), length(queries.x + row[e].query * dz, dz));
        Num wanted = mul(row[e].asked, moved.q), had = sub(mul(reached[e], moved.q), mul(moved.p, far));
        Num less = sub(wanted, had);
        reached[e] = had, prices = add(prices, mul(row[e].y, row[e].y));
        if (less.sign > 0)
            shortfall = add(shortfall, mul(less, less));
        if (plain && wanted.sign > 0 && had.sign > 0
            && (!stretched++ || compare(mul(wanted, stretch.q), mul(stretch.p, had)) > 0))
            stretch = (Quotient){wanted, had};
    }
    if (C.sign) {
        Num far = add(mul(root(squares(W)), moved.q), moved.p), C4 = scaled(C, 2);
        upper = add(scaled(mul(far, far), -1), mul(C, shortfall)), under = mul(moved.q, moved.q);
        total = sub(mul(sub(total, scaled(squares(M), -1)), C4), prices), lower = C4;
        double price = strtod(member(proof, "C")->text, NULL);
        text += sprintf(text, "every W with these margins has soft-margin objective (C = %g)", price);
    } else {
        for (long e = 0; e < rows && !above; e++)
            if (!equation[e] && row[e].key != row[e].other)
                holds(compare(mul(stretch.p, reached[e]), mul(mul(row[e].asked, moved.q), stretch.q)) >= 0,
                      "W misses a margin");
        Num growth = count((uint64_t)(kind != 1 ? 1 : dk < dz ? dk : dz));
        Num own = bound(W, kind ? norms[kind] : "frobenius", named(witness, "W"));
        upper = mul(add(mul(own, moved.q), mul(moved.p, root(growth))), stretch.p), under = mul(moved.q, stretch.q);
        lower = bound(M, duals[kind], named(witness, "dual"));
        text += sprintf(text, "every W with these margins has %s norm", norms[kind]);
    }
    holds(total.sign > 0 && lower.sign > 0, "the multipliers prove no bound"); /* total / lower is the bound */
    Num most = count(1000000000000000), both = mul(total, under);
    char shape[40];
    shown(mul(total, sub(most, one)), mul(lower, most), 0, 9, shape);
    text += sprintf(text, " above %s", shape);
    if (above)
        return text;
    shown(upper, under, 1, 9, shape);
    text += sprintf(text, "; one has %s", shape);
    shown(sub(mul(upper, lower), both), both, 1, 2, shape);
    return text + sprintf(text, " (gap %s)", shape);
}
static void theorem(char *text)
{
    witness = member(proof, "witness");
    check_types();
    const char *norms[] = {"frobenius", "nuclear", "spectral", "max"}, *claim = member(proof, "claim")->text;
    const Node *norm = member(proof, "norm"), *soft = member(proof, "C"), *gone = named(proof, "without");
    int above = !strcmp(claim, "excluded"), none = !strcmp(claim, "infeasible"), kind = 0;
    need(above || none || !strcmp(claim, "optimal") || !strcmp(claim, "feasible"), "no claim");
    keys = table(member(proof, "keys"), -1, -1), queries = table(member(proof, "queries"), -1, -1);
    while (kind < 4 && strcmp(norms[kind], norm->text))
        kind++;
    if (kind == 4)
        real(norm), need(strtod(norm->text, NULL) > 1, "the norm is none");
    Num C = {0}, total = {0};
    if (soft->type != 'n')
        C = real(soft), need(C.sign > 0 && !kind, "C is none");
    lift = 0, read_rows();
    long used_rows = none ? member(proof, "dual")->n : 0;
    int on_margins = 0;
    for (const Row *e = row; e < row + rows; e++) {
        total = add(total, mul(e->y, e->asked)), used_rows += !none && e->equation;
        on_margins |= !e->equation && e->y.sign;
    }
    need(used_rows * keys.c * queries.c <= MOST_NUMBERS, "too large");
    holds(!C.sign || !(above || (none && on_margins)), "soft margins exclude no W");
    if (none) {
        contradiction(total);
        strcpy(text, "no W exists");
        return;
    }
    need(kind < 4, "not read: l_p");
    text = bounds(text, kind, above, C, total);
    for (long k = 0; gone && k < gone->n; k++)
        text += sprintf(text, "%s%ld%s", k ? ", " : "; so it is without queries [", integer(gone->kids + k),
                        k + 1 < gone->n ? "" : "]");
}

int main(int files, char **paths)
{
    volatile int worst = files > 1 ? 0 : DAMAGED;
    char *memory = malloc(ARENA), text[300 + 12 * MOST_GONE];
    if (!memory)
        return DAMAGED;
    for (volatile int k = 1; k < files; k++) {
        arena = memory, used = 0, work = 0, top = 0, text[0] = 0;
        FILE *volatile file = fopen(paths[k], "rb");
        int code = setjmp(over);
        if (!code) {
            need(file != NULL, "no file");
            char *data = room(MOST_BYTES + 2);
            size_t n = fread(data, 1, MOST_BYTES + 1, file);
            need(n <= MOST_BYTES, "too large"), data[n] = 0;
            stack = room(sizeof(Node) * 2 * MOST_NUMBERS), at = data;
            Node read = parsed(0);
            blanks(), need(at == data + n, "more than JSON");
            proof = &read, theorem(text);
            const Node *told = member(proof, "statement");
            holds(told->type == 'n' || !strcmp(told->text, text), "the statement is another");
        }
        if (file)
            fclose(file);
        if (files > 2)
            printf("%s: ", paths[k]);
        printf("%sPROVED: %s\n", code ? "NOT " : "", code ? reason : text);
        worst = code > worst ? code : worst;
    }
    free(memory);
    return worst;
}
