/* Tables of named choices.  A list macro names each member of an enum once, with the word that Python uses for it:
 *
 *     #define LOSS_LIST(LOSS) LOSS(LOSS_LOGISTIC, "logistic") LOSS(LOSS_LINEAR, "linear")
 *
 * The enum, the number of its members, and the dict that the extension exports are made from the list.  A switch over
 * such an enum has no default case, so that the compiler reports a member that a file does not handle. */
#ifndef BASE_TABLE_H
#define BASE_TABLE_H

#define TABLE_MEMBER(member, word) member,
#define TABLE_COUNT(member, word) +1

#endif
