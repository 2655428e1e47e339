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
static const Node *named(const Node *object, const char *name)
{
    const Node *found = NULL;
    need(object->type == '{', "no object");
    for (long k = 0; k < object->n; k += 2)
        if (!strcmp(object->kids[k].text, name))
            need(!found, "a name stands twice"), found = object->kids + k + 1;
    return found;
}
static Node parsed(int depth)
{
    need(depth < DEEPEST, "lists too deep");
    blanks();
    Node x = {*at, 0, at, NULL};
    if (*at == '[' || *at == '{') {
        long base = top;
        char end = *at++ == '[' ? ']' : '}';
        for (blanks(); *at != end || top > base; at++) {
            for (int part = 0; part < (end == '}' ? 2 : 1); part++) {
                Node kid = parsed(depth + 1);
                need(part || end == ']' || kid.type == '"', "no name");
                need(top < 2 * MOST_NUMBERS, "too large"), stack[top++] = kid;
                blanks();
                if (end == '}' && !part)
                    need(*at == ':', "no colon"), at++;
            }
            if (*at == end)
                break;
            need(*at == ',', "no comma");
        }
        at++, x.n = top - base, x.kids = room(sizeof(Node) * (size_t)x.n);
        memcpy(x.kids, stack + base, sizeof(Node) * (size_t)x.n), top = base;
        for (long k = 0; end == '}' && k < x.n; k += 2)
            named(&x, x.kids[k].text);
    } else if (*at == '"') {
        x.text = ++at, x.n = (long)strcspn(at, "\"\\\n"), at += x.n;
        need(*at == '"', "not read: a string with escapes, or without end");
        *at++ = 0;
    } else if (*at == 't' || *at == 'f' || *at == 'n') {
        const char *word = *at == 't' ? "true" : *at == 'f' ? "false" : "null";
        need(!strncmp(at, word, strlen(word)), "no JSON"), at += strlen(word);
    } else {
        at += *at == '-', x.type = '0', x.n = (long)strspn(at, "0123456789");
        need(x.n && x.n <= MOST_DIGITS && (*at != '0' || x.n == 1), "no integer"), at += x.n;
        need(!*at || strchr(",]} \t\r\n", *at), "a number is not as float.hex writes it");
    }
    return x;
}
static const Node *member(const Node *object, const char *name)
{
    const Node *found = named(object, name);
    need(found != NULL, name);
    return found;
}
static const Node *item(const Node *list, long k, long n)
{ /* of a list of n, or of any number where n is -1 */
    need(list->type == '[' && k < list->n && (n < 0 || list->n == n), "a list has another length");
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
    need(x->type == '0' && x->n < 10, "no index");
    return strtol(x->text, NULL, 10);
}
static Num large(const Node *x)
{
    need(x->type == '0', "no integer");
    Num sum = {0};
    const char *digit = x->text + (*x->text == '-');
    for (long k = 0; k < x->n; k++)
        sum = add(mul(sum, whole(10, 0, 1)), whole((uint64_t)(digit[k] - '0'), 0, 1));
    return *x->text == '-' ? negative(sum) : sum;
}
static Num real(const Node *x)
{
    need(x->type == '"', "no number");
    char again[40];
    int e;
    double number = strtod(x->text, NULL), part = frexp(number, &e);
    snprintf(again, sizeof again, "%.*a", number == 0 ? 1 : 13, number);
    need(isfinite(number) && !strcmp(again, x->text), "a number is not as float.hex writes it");
    return whole((uint64_t)fabs(ldexp(part, 53)), e - 53, number < 0 ? -1 : 1);
}

#endif
