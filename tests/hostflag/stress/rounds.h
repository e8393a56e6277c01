/* rounds.h: what the stream's and the proxy's side of the process stress agree on. */
#ifndef STRESS_ROUNDS_H
#define STRESS_ROUNDS_H

#include <stdint.h>

enum { PAGE_BYTES = 65536, GATHERED = 0, RELEASED = 128, CLAIMED = 256, CONSUMED = 384, REPLY = 4096 };
enum { WORDS = 32, REPLY_BYTES = WORDS * 4 };

/* A reply's words: never a multiple of 4, as the failed reply's status and zeros are. */
static inline uint32_t tag_of(uint32_t round)
{
    return round * 4 + 1;
}

static inline uint32_t next_random(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

#endif
