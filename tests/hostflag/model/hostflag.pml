/*
 * The hand-off as a Promela model: what hostflag.c and core.py do to the words, step by step, in every interleaving.
 *
 * Words count modulo 16 instead of 2^32 and start just below the wrap; 2^31, 2^30 and 2^29 become 8, 4 and 2.
 * The reply is two cells, written and read one after the other.
 *
 * Time is left out, but for two assumptions that the code's 10 ms bounds rest on:
 *   A1  a live claimant finishes its copy before another's wait for its release expires;
 *   A2  a stream whose round is released consumes it before another's wait for that expires.
 * So these waits end by themselves only when the claimant is dead, or nothing that is released is being consumed. The
 * scenario SLOW drops A1. The watchdog may fire at any moment on a round that waits, whatever the deadline.
 *
 * Checked by assertions:
 *   one claimant per round, and one writer at a time; released never moves back; no reply is written over before it
 *   was consumed, except a failed one by the same; the stream reads whole replies, of its own round or failed ones.
 *   NATIVE and SLOW leave out what they cannot keep: there a reply may be written over.
 * Checked as the absence of a stuck end: every parked wait is released.
 *
 * SCENARIO, MUTATION and ROUNDS are read from the environment when a run starts, so that one compilation serves all.
 */

#define MODULUS 16
#define HALF 8
#define FAR 4
#define ALREADY_FAR 2
#define START 14
#define FAILED 99

#define DISTANCE(a, b) (((a) - (b) + MODULUS) % MODULUS)
#define GEQ(a, b) (DISTANCE(a, b) < HALF)
#define AHEAD(a, b) (DISTANCE(a, b) > 0 && DISTANCE(a, b) < HALF)

/* What surrounds the stream and the proxy. */
#define LIVE 0          /* nobody dies; watchdog, and an engine that fails all at any moment, one round ahead too */
#define DYING 1         /* the proxy may die anywhere; watchdog and death watch */
#define UNWATCHED 2     /* the proxy may die before it claims; watchdog alone */
#define TWO_FAIL 3      /* two callers fail ahead at any moment; one of them may die in between; no watchdog */
#define NATIVE 4        /* dsv41_hf_fail_release called directly, one round ahead */
#define SLOW 5          /* someone fails ahead at any moment, and nobody waits long enough for a claimant; watchdog */

/* Guards that can be taken out. */
#define NONE 0
#define CLAIM_ANY 1         /* claim does not compare */
#define CLAIM_SPLIT 2       /* claim loads and stores in two steps */
#define RELEASE_STORE 3     /* release stores whatever is there */
#define RELEASE_SPLIT 4     /* release_max compares, then stores */
#define NO_CLAIMANT_WAIT 5  /* failing does not wait for an earlier claimant */
#define NO_CONSUMER_WAIT 6  /* failing does not wait for the consumer */
#define CLAIM_AT_ONCE 7     /* fail_all claims its round without first claiming the next one */
#define AGAIN 8             /* fail_ahead moves although it is far ahead already */
#define NO_FINISH 9         /* fail_ahead does not finish what a dead one left */
#define NO_WATCHDOG 10
#define NO_DEATH_WATCH 11
#define NO_GATHERED_WAIT 12 /* the proxy publishes without seeing the round gathered */
#define NO_RELEASE_WAIT 13  /* the stream does not wait */

#define IS_REPLY_SAFE (scenario != NATIVE && scenario != SLOW)

c_decl { \#include <stdlib.h> }

byte scenario, mutation, rounds;

byte gathered = START, released = START, claimed = START, consumed = START;
byte cell[2] = FAILED;

bool is_stream_done, is_proxy_dead, is_first_dead, is_first_ended;
bool is_copying[MODULUS];   /* a live process claimed the round and has not released it */
bool is_decided[MODULUS];
byte writer_count;

/* ---- words ---- */

inline move_released(value) {
    assert(AHEAD(value, released));
    released = value
}

/* advance(released, value): load, then exchange if unchanged, again until it is not ahead. */
inline release_max(value, seen) {
    if
    :: mutation == RELEASE_STORE -> d_step { assert(!AHEAD(released, value)); released = value }
    :: mutation == RELEASE_SPLIT ->
        seen = released;
        if
        :: AHEAD(value, seen) -> d_step { assert(!AHEAD(released, value)); released = value }
        :: else
        fi
    :: else ->
        seen = released;
        do
        :: AHEAD(value, seen) ->
            atomic {
                if
                :: released == seen -> move_released(value); break
                :: else -> seen = released
                fi
            }
        :: else -> break
        od
    fi;
    is_copying[value] = false
}

inline note_claim(value) {
    assert(!is_decided[value]);
    is_decided[value] = true;
    is_copying[value] = true;
    claimed = value
}

/* advance(claimed, value): has_won, and what claimed was before in was. */
inline claim(value, was, has_won) {
    was = claimed;
    has_won = false;
    do
    :: AHEAD(value, was) || mutation == CLAIM_ANY ->
        if
        :: mutation == CLAIM_SPLIT -> d_step { note_claim(value); has_won = true }; break
        :: else ->
            atomic {
                if
                :: claimed == was || mutation == CLAIM_ANY -> note_claim(value); has_won = true; break
                :: else -> was = claimed
                fi
            }
        fi
    :: else -> break
    od
}

/* ---- the reply ---- */

#define IS_BEING_CONSUMED (GEQ(released, gathered) && !GEQ(consumed, gathered))
#define IS_SAME(content) (content == FAILED && cell[0] == FAILED && cell[1] == FAILED)

inline write_cell(index, content) {
    d_step {
        assert(!IS_REPLY_SAFE || !IS_BEING_CONSUMED || IS_SAME(content));
        cell[index] = content
    }
}

inline begin_write() {
    d_step { assert(scenario == SLOW || writer_count == 0); writer_count++ }
}

inline write_reply(content) {
    begin_write();
    write_cell(0, content);
    write_cell(1, content);
    writer_count--
}

/* ---- who fails rounds ---- */

inline claimant_wait(round_number) {
    (GEQ(released, round_number) || !is_copying[round_number] || mutation == NO_CLAIMANT_WAIT || scenario == SLOW)
}

/* dsv41_hf_fail_release. */
inline fail_release(value, was, has_won, seen) {
    claim(value, was, has_won);
    if
    :: has_won ->
        claimant_wait(was);
        write_reply(FAILED);
        release_max(value, seen)
    :: else
    fi
}

/* Waits until what is claimed is released and what is released is consumed. */
inline settle(at, seen) {
    claimant_wait(at);
    seen = released;
    (GEQ(consumed, seen) || AHEAD(seen, gathered) || mutation == NO_CONSUMER_WAIT)
}

/* What a process does not need any more must not tell states apart. */
inline forget(a, b, c, flag) {
    d_step { a = 0; b = 0; c = 0; flag = false }
}

/*
 * HostFlagCore.fail_all. It claims the round after claimed first: since claimed never moves back, that succeeds only
 * if claimed is what it was when everything was seen released and consumed.
 * can_die: the caller may end between claim and release; it goes to the label dead then.
 */
inline fail_all(value, was, has_won, seen, next, can_die) {
    has_won = false;
    do
    :: atomic { AHEAD(value, claimed) -> was = claimed };
        settle(was, seen);
        next = (mutation == CLAIM_AT_ONCE -> value : (was + 1) % MODULUS);
        claim(next, seen, has_won);
        if
        :: has_won -> break
        :: else
        fi
    :: atomic { !AHEAD(value, claimed) -> break }
    od;
    if
    :: has_won && can_die -> is_copying[next] = false; goto dead
    :: has_won && next != value -> claim(value, seen, has_won)
    :: else
    fi;
    if
    :: has_won && can_die -> d_step { is_copying[next] = false; is_copying[value] = false }; goto dead
    :: has_won -> write_reply(FAILED); release_max(value, seen); is_copying[next] = false
    :: else
    fi;
    forget(was, seen, next, has_won)
}

/* HostFlagCore.fail_ahead. */
inline fail_ahead(target, was, has_won, seen, next, here, can_die) {
    here = gathered;
    seen = released;
    was = claimed;
    if
    :: DISTANCE(was, here) >= ALREADY_FAR && DISTANCE(was, here) < HALF && mutation != AGAIN ->
        claimant_wait(was);
        if
        :: !GEQ(released, was) && mutation != NO_FINISH -> write_reply(FAILED); target = was; release_max(target, seen)
        :: else
        fi
    :: else ->
        d_step {
            target = here;
            if
            :: AHEAD(seen, target) -> target = seen
            :: else
            fi;
            if
            :: AHEAD(was, target) -> target = was
            :: else
            fi;
            target = (target + FAR) % MODULUS;
            here = 0;
            seen = 0;
            was = 0
        };
        fail_all(target, was, has_won, seen, next, can_die)
    fi;
    d_step { target = 0; here = 0 };
    forget(was, seen, next, has_won)
}

/* ---- processes ---- */

proctype Stream() {
    byte round = START, first, second;
    do
    :: round != (START + rounds) % MODULUS ->
        round = (round + 1) % MODULUS;
        gathered = round;
        (GEQ(released, round) || mutation == NO_RELEASE_WAIT);
        first = cell[0];
        second = cell[1];
        assert(!IS_REPLY_SAFE || (first == second && (first == round || first == FAILED)));
        d_step { consumed = round; first = 0; second = 0 }
    :: else -> break
    od;
    is_stream_done = true
}

proctype Proxy() {
    byte round = START, was, seen;
    bool has_won;
    do
    :: round != (START + rounds) % MODULUS ->
        round = (round + 1) % MODULUS;
        (GEQ(gathered, round) || mutation == NO_GATHERED_WAIT);
        if
        :: scenario == DYING || scenario == UNWATCHED -> goto dead
        :: true
        fi;
        claim(round, was, has_won);
        if
        :: has_won ->
            if
            :: scenario == DYING -> is_copying[round] = false; goto dead
            :: true
            fi;
            begin_write();
            write_cell(0, round);
            if
            :: scenario == DYING -> d_step { writer_count--; is_copying[round] = false }; goto dead
            :: true
            fi;
            write_cell(1, round);
            writer_count--;
            if
            :: scenario == DYING -> is_copying[round] = false; goto dead
            :: true
            fi;
            release_max(round, seen)
        :: else
        fi;
        d_step { was = 0; seen = 0; has_won = false }
    :: else -> break
    od;
    goto ended;
dead:
    is_proxy_dead = true;
ended:
    skip
}

proctype Watchdog() {
    byte round, was, seen;
    bool has_won;
    do
    :: atomic { AHEAD(gathered, released) && AHEAD(gathered, claimed) -> round = gathered };
        fail_release(round, was, has_won, seen);
        forget(round, was, seen, has_won)
    :: is_stream_done -> break
    od
}

/* watch_proxy: fails ahead when the proxy has died; with the stream done there is nothing left to fail. */
proctype DeathWatch() {
    byte target, was, seen, next, here;
    bool has_won;
    if
    :: is_proxy_dead -> fail_ahead(target, was, has_won, seen, next, here, false)
    :: is_stream_done
    fi;
dead:
    skip
}

/* An engine that fails the round that waits or the next one, whenever. */
proctype EngineFails() {
    byte target, was, seen, next;
    bool has_won;
    if
    :: target = gathered
    :: target = (gathered + 1) % MODULUS
    fi;
    fail_all(target, was, has_won, seen, next, false);
dead:
    skip
}

/* Two callers of fail_ahead; the first may die in it, and the second calls again after it has. */
proctype FirstFailsAhead() {
    byte target, was, seen, next, here;
    bool has_won;
    fail_ahead(target, was, has_won, seen, next, here, scenario == TWO_FAIL);
    is_first_ended = true;
    goto ended;
dead:
    is_first_dead = true;
    is_first_ended = true;
ended:
    skip
}

proctype SecondFailsAhead() {
    byte target, was, seen, next, here;
    bool has_won;
    fail_ahead(target, was, has_won, seen, next, here, false);
    is_first_ended;
    if
    :: is_first_dead -> fail_ahead(target, was, has_won, seen, next, here, false)
    :: else
    fi;
dead:
    skip
}

/* The C call itself, by a caller who only knows that nothing that is released is unconsumed. */
proctype NativeFails() {
    byte target, was, seen;
    bool has_won;
    atomic { GEQ(consumed, released) -> target = (gathered + 1) % MODULUS };
    fail_release(target, was, has_won, seen)
}

init {
    c_code {
        now.scenario = (unsigned char)atoi(getenv("SCENARIO"));
        now.mutation = (unsigned char)atoi(getenv("MUTATION"));
        now.rounds = (unsigned char)atoi(getenv("ROUNDS"));
    };
    atomic {
        run Stream();
        run Proxy();
        if
        :: mutation != NO_WATCHDOG && scenario != NATIVE && scenario != TWO_FAIL -> run Watchdog()
        :: else
        fi;
        if
        :: scenario == DYING && mutation != NO_DEATH_WATCH -> run DeathWatch()
        :: scenario == LIVE -> run EngineFails()
        :: scenario == NATIVE -> run NativeFails()
        :: scenario == TWO_FAIL -> run FirstFailsAhead(); run SecondFailsAhead()
        :: scenario == SLOW -> run FirstFailsAhead()
        :: else
        fi
    }
}
