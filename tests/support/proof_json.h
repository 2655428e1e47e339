/* The JSON of proofs for proof_reader.c: integers, strings without escapes, lists, objects with each name once. */
#ifndef PROOF_JSON_H
#define PROOF_JSON_H
#include "proof_numbers.h"

typedef struct Node {
    char type;
    long n;
    char *text;
    struct Node *kids;
} Node;
static char *at;
static Node *stack;
static long top;

static void blanks(void)
{
    at += strspn(at, " \t\r\n");
}
static Node parsed(int depth)
{
    need(depth < DEEPEST, DAMAGED, "lists too deep");
    blanks();
    Node x = {*at, 0, at, NULL};
    if (*at == '[' || *at == '{') {
        long base = top;
        char end = *at++ == '[' ? ']' : '}';
        for (blanks(); *at != end || top > base; at++) {
            for (int part = 0; part < (end == '}' ? 2 : 1); part++) {
                Node kid = parsed(depth + 1);
                need(part || end == ']' || kid.type == '"', DAMAGED, "no name");
                stack[top++] = kid;
                blanks();
                if (end == '}' && !part)
                    need(*at == ':', DAMAGED, "no colon"), at++;
            }
            if (*at == end)
                break;
            need(*at == ',', DAMAGED, "no comma");
        }
        at++, x.n = top - base, x.kids = room(sizeof(Node) * (size_t)x.n);
        memcpy(x.kids, stack + base, sizeof(Node) * (size_t)x.n), top = base;
    } else if (*at == '"') {
        x.text = ++at, x.n = (long)strcspn(at, "\"\\\n"), at += x.n;
        need(*at == '"', DAMAGED, "not read: a string with escapes, or without end");
        *at++ = 0;
    } else if (*at == 't' || *at == 'f' || *at == 'n') {
        const char *word = *at == 't' ? "true" : *at == 'f' ? "false" : "null";
        need(!strncmp(at, word, strlen(word)), DAMAGED, "no JSON"), at += strlen(word);
    } else {
        at += *at == '-', x.type = '0', x.n = (long)strspn(at, "0123456789");
        need(x.n && x.n <= MOST_DIGITS && (*at != '0' || x.n == 1), DAMAGED, "no integer"), at += x.n;
        need(!*at || strchr(",]} \t\r\n", *at), DAMAGED, "a number is not as float.hex writes it");
    }
    return x;
}
static const Node *named(const Node *object, const char *name)
{
    const Node *found = NULL;
    need(object->type == '{', DAMAGED, "no object");
    for (long k = 0; k < object->n; k += 2)
        if (!strcmp(object->kids[k].text, name))
            need(!found, DAMAGED, "a name stands twice"), found = object->kids + k + 1;
    return found;
}
static const Node *member(const Node *object, const char *name)
{
    const Node *found = named(object, name);
    need(found != NULL, DAMAGED, name);
    return found;
}
static const Node *item(const Node *list, long k, long n)
{ /* of a list of n, or of any number where n is -1 */
    need(list->type == '[' && k < list->n && (n < 0 || list->n == n), DAMAGED, "a list has another length");
    return list->kids + k;
}
/* Lists of lists, so deep, of values of this type. */
static int is_nested(const Node *x, int depth, char leaf)
{
    int fine = x->type == (depth ? '[' : leaf);
    for (long k = 0; fine && depth && k < x->n; k++)
        fine = is_nested(x->kids + k, depth - 1, leaf);
    return fine;
}
static long integer(const Node *x)
{
    need(x->type == '0' && x->n < 10, DAMAGED, "no index");
    return strtol(x->text, NULL, 10);
}
static Num large(const Node *x)
{
    need(x->type == '0', DAMAGED, "no integer");
    Num sum = {0};
    const char *digit = x->text + (*x->text == '-');
    for (long k = 0; k < x->n; k++)
        sum = add(mul(sum, whole(10, 0, 1)), whole((uint64_t)(digit[k] - '0'), 0, 1));
    return *x->text == '-' ? negative(sum) : sum;
}
static Num real(const Node *x, double *value)
{
    need(x->type == '"', DAMAGED, "no number");
    uint64_t raw, m;
    double number = strtod(x->text, NULL);
    memcpy(&raw, &number, sizeof raw), m = raw << 12 >> 12;
    int power = (int)(raw >> 52 & 2047), sign = raw >> 63 ? -1 : 1;
    char again[40];
    snprintf(again, sizeof again, "%s0x%d.%013llxp%+d", sign < 0 ? "-" : "", power > 0, (unsigned long long)m,
             power ? power - 1023 : -1022);
    if (number == 0)
        snprintf(again, sizeof again, "%s0x0.0p+0", sign < 0 ? "-" : "");
    need(power < 2047 && !strcmp(again, x->text), DAMAGED, "a number is not as float.hex writes it");
    if (value)
        *value = number;
    if (power)
        m |= (uint64_t)1 << 52;
    long e = (power ? power : 1) - 1075;
    for (; m && !(m & 1); m >>= 1)
        e++;
    return whole(m, e, sign);
}

#endif
