/*
 * schedule.c: runs the real hostflag.c in every order of its steps.
 *
 * Actors are coroutines; a step is one primitive of the platform header. A schedule is the list of who was chosen at
 * each step; all are walked depth-first, each from fresh words. After every schedule the claims below are checked; the
 * first that does not hold is printed with its schedule, and the exit code is 1.
 *
 * Prints one line per scenario: its name, the number of schedules, and how often each actor won. With the argument
 * "all" it also walks the scenario with the most schedules.
 */
#define _GNU_SOURCE
#define HOSTFLAG_PLATFORM_HEADER "schedule_platform.h"
#include "hostflag.c"

#include <inttypes.h>
#include <stdio.h>
#include <ucontext.h>

enum { MOST_ACTORS = 3, MOST_STEPS = 2000, STACK_BYTES = 64 * 1024, REPLY_BYTES = 16, STATUS = -7 };

struct actor {
    const char *name;
    void (*play)(void);
    ucontext_t context;
    bool is_done;
    bool is_napping;
    int64_t wakes_ns;
};

static struct page {
    uint32_t gathered, released, claimed, consumed;
    unsigned char reply[REPLY_BYTES];
} page;

static uint32_t start_value;
static struct actor actors[MOST_ACTORS];
static int actor_count;
static int current;
static ucontext_t scheduler;
static char stacks[MOST_ACTORS][STACK_BYTES];
static int64_t clock_ns;

static int chosen[MOST_STEPS];
static int choice_counts[MOST_STEPS];
static int prefix_length;
static int step_count;

static bool has_written_word;
static const char *violation;
static int won_by_actor[MOST_ACTORS];
static bool has_won[MOST_ACTORS];

static void violate(const char *what)
{
    if (violation == NULL)
        violation = what;
}

/* ---- the platform ---- */

void schedule_step(void)
{
    swapcontext(&actors[current].context, &scheduler);
}

void schedule_nap(int64_t ns)
{
    actors[current].is_napping = true;
    actors[current].wakes_ns = clock_ns + ns;
    schedule_step();
}

int64_t schedule_now_ns(void)
{
    return clock_ns;
}

void schedule_wrote_word(void *word, uint32_t before, uint32_t after)
{
    has_written_word = true;
    if ((word == &page.released || word == &page.claimed) && !is_ahead(after, before))
        violate(word == &page.released ? "released moved back" : "claimed moved back");
}

/* ---- the walk ---- */

static void enter(void)
{
    actors[current].play();
    actors[current].is_done = true;
    swapcontext(&actors[current].context, &scheduler);
}

/* Who can go on: not done, not napping. If all nap, time passes until the first wakes. */
static int runnable(int *found)
{
    int count = 0;
    for (int i = 0; i < actor_count; i++)
        if (!actors[i].is_done && !actors[i].is_napping)
            found[count++] = i;
    if (count != 0)
        return count;
    int64_t soonest_ns = INT64_MAX;
    for (int i = 0; i < actor_count; i++)
        if (!actors[i].is_done && actors[i].wakes_ns < soonest_ns)
            soonest_ns = actors[i].wakes_ns;
    for (int i = 0; i < actor_count; i++)
        if (!actors[i].is_done && actors[i].wakes_ns == soonest_ns) {
            actors[i].is_napping = false;
            found[count++] = i;
        }
    if (count != 0)
        clock_ns = soonest_ns;
    return count;
}

/* A nap ends when there is something new to see, and a napper always looks at words. */
static void wake_nappers(void)
{
    has_written_word = false;
    for (int i = 0; i < actor_count; i++)
        actors[i].is_napping = false;
}

static void run_schedule(void)
{
    clock_ns = 0;
    step_count = 0;
    has_written_word = false;
    page = (struct page){.gathered = start_value + 1, .released = start_value, .claimed = start_value,
                         .consumed = start_value};
    memset(page.reply, 0xEE, sizeof page.reply);
    for (int i = 0; i < actor_count; i++) {
        struct actor *actor = &actors[i];
        actor->is_done = actor->is_napping = has_won[i] = false;
        getcontext(&actor->context);
        actor->context.uc_stack.ss_sp = stacks[i];
        actor->context.uc_stack.ss_size = STACK_BYTES;
        actor->context.uc_link = &scheduler;
        makecontext(&actor->context, enter, 0);
    }
    int found[MOST_ACTORS];
    int count;
    while ((count = runnable(found)) != 0 && violation == NULL) {
        if (step_count == MOST_STEPS) {
            violate("an actor never ends");
            return;
        }
        int choice = step_count < prefix_length ? chosen[step_count] : 0;
        chosen[step_count] = choice;
        choice_counts[step_count] = count;
        step_count++;
        current = found[choice];
        swapcontext(&scheduler, &actors[current].context);
        if (has_written_word)
            wake_nappers();
    }
}

/* The next schedule: the last step that had another choice takes it. False when all were walked. */
static bool has_next(void)
{
    for (int i = step_count - 1; i >= 0; i--) {
        if (chosen[i] + 1 < choice_counts[i]) {
            chosen[i]++;
            prefix_length = i + 1;
            return true;
        }
    }
    return false;
}

static bool is_reply(unsigned char byte)
{
    for (int i = 0; i < REPLY_BYTES; i++)
        if (page.reply[i] != byte)
            return false;
    return true;
}

static bool is_failed_reply(void)
{
    unsigned char failed[REPLY_BYTES] = {0};
    int32_t status = STATUS;
    memcpy(failed, &status, sizeof status);
    return memcmp(page.reply, failed, sizeof failed) == 0;
}

static bool walk(const char *name, void (*check)(void))
{
    long schedules = 0;
    prefix_length = 0;
    memset(won_by_actor, 0, sizeof won_by_actor);
    do {
        run_schedule();
        if (violation == NULL)
            check();
        if (violation != NULL) {
            printf("%s: %s, in the schedule", name, violation);
            for (int i = 0; i < step_count; i++)
                printf(" %d/%d", chosen[i], choice_counts[i]);
            printf("\n");
            return false;
        }
        for (int i = 0; i < actor_count; i++)
            won_by_actor[i] += has_won[i];
        schedules++;
    } while (has_next());
    printf("%s %ld", name, schedules);
    for (int i = 0; i < actor_count; i++)
        printf(" %s=%d", actors[i].name, won_by_actor[i]);
    printf("\n");
    return true;
}

/* ---- actors ---- */

static void publish_as(unsigned char byte)
{
    unsigned char src[REPLY_BYTES];
    memset(src, byte, sizeof src);
    has_won[current] =
        dsv41_hf_publish(&page.claimed, &page.released, start_value + 1, page.reply, src, sizeof src);
}

static void publisher(void)
{
    publish_as(0x11);
}

static void other_publisher(void)
{
    publish_as(0x22);
}

/* Looks until the round is released by whoever: its deadline has passed at its first look already. */
static void watchdog(void)
{
    int me = current;
    struct watchdog wd = {.gathered = &page.gathered, .released = &page.released, .claimed = &page.claimed,
                          .reply = page.reply, .reply_bytes = REPLY_BYTES, .status = STATUS, .deadline_ns = 1,
                          .poll_ns = 1000000, .is_tracking = true, .tracked = start_value + 1,
                          .newest = start_value + 1, .tracked_since_ns = -1000, .newest_since_ns = -1000};
    while (!is_geq(page.released, start_value + 1))
        hf_nap(watchdog_look(&wd));
    has_won[me] = atomic_load(&wd.fires) == 1;
}

static void failer(void)
{
    int me = current;
    has_won[me] = dsv41_hf_fail_release(&page.claimed, &page.released, start_value + 1, page.reply, REPLY_BYTES, STATUS);
}

static void failer_of_the_next(void)
{
    int me = current;
    has_won[me] = dsv41_hf_fail_release(&page.claimed, &page.released, start_value + 2, page.reply, REPLY_BYTES, STATUS);
}

static void dying_claimant(void)
{
    has_won[current] = dsv41_hf_claim(&page.claimed, start_value + 1);
}

static void releaser(void)
{
    dsv41_hf_release_max(&page.released, start_value + 1);
}

static void releaser_of_the_next(void)
{
    dsv41_hf_release_max(&page.released, start_value + 2);
}

/* The stream: waits for its round, then reads the reply in two steps and consumes it. */
static void stream(void)
{
    unsigned char first, last;
    dsv41_hf_wait_geq(&page.released, start_value + 1, INT64_MAX, 0, 1000);
    schedule_step();
    first = page.reply[REPLY_BYTES / 2 - 1];
    schedule_step();
    last = page.reply[REPLY_BYTES - 1];
    if (first != last || first == 0xEE)
        violate("the stream read a reply in the making");
    dsv41_hf_store(&page.consumed, start_value + 1);
}

/* ---- claims ---- */

static int winner_count(void)
{
    int count = 0;
    for (int i = 0; i < actor_count; i++)
        count += has_won[i];
    return count;
}

static void check_one_winner(void)
{
    if (winner_count() != 1)
        violate("not exactly one winner");
    else if (page.released != start_value + 1 || page.claimed != start_value + 1)
        violate("the round was not released");
    else if (has_won[0] ? !is_reply(0x11) : !is_failed_reply())
        violate("the reply is not the winner's");
}

static void check_one_of_three(void)
{
    if (winner_count() != 1)
        violate("not exactly one winner");
    else if (has_won[0] ? !is_reply(0x11) : has_won[1] ? !is_reply(0x22) : !is_failed_reply())
        violate("the reply is not the winner's");
}

/* Whoever published, the later failing came after it and has the last word; or it came first and nothing else did. */
static void check_later_failure(void)
{
    if (!has_won[1] || page.released != start_value + 2 || !is_failed_reply())
        violate("the later failure did not have the last word");
}

static void check_furthest_release(void)
{
    if (page.released != start_value + 2)
        violate("released is not the furthest");
}

static bool scenario(const char *name, int count, const struct actor *cast, void (*check)(void))
{
    actor_count = count;
    for (int i = 0; i < count; i++)
        actors[i] = cast[i];
    return walk(name, check);
}

#define SCENARIO(name, check, ...)                                                                                     \
    scenario(name, (int)(sizeof((struct actor[]){__VA_ARGS__}) / sizeof(struct actor)), (struct actor[]){__VA_ARGS__}, \
             check)

/* The largest takes 2 million schedules for each start value. */
static bool run_all(bool with_largest)
{
    struct actor a_publisher = {.name = "publisher", .play = publisher};
    struct actor a_watchdog = {.name = "watchdog", .play = watchdog};
    struct actor another = {.name = "other-publisher", .play = other_publisher};
    struct actor a_failer = {.name = "failer", .play = failer};
    struct actor later_failer = {.name = "later-failer", .play = failer_of_the_next};
    struct actor dying = {.name = "dying-claimant", .play = dying_claimant};
    struct actor a_stream = {.name = "stream", .play = stream};
    struct actor a_releaser = {.name = "releaser", .play = releaser};
    struct actor later_releaser = {.name = "later-releaser", .play = releaser_of_the_next};
    return SCENARIO("publish-against-watchdog", check_one_winner, a_publisher, a_watchdog) &&
           SCENARIO("publish-against-fail", check_one_winner, a_publisher, a_failer) &&
           SCENARIO("two-publish-against-fail", check_one_of_three, a_publisher, another, a_failer) &&
           SCENARIO("publish-against-later-fail", check_later_failure, a_publisher, later_failer) &&
           SCENARIO("dead-claimant-against-later-fail", check_later_failure, dying, later_failer) &&
           SCENARIO("two-releases", check_furthest_release, a_releaser, later_releaser) &&
           SCENARIO("publish-with-stream", check_one_winner, a_publisher, a_stream) &&
           (!with_largest ||
            SCENARIO("publish-against-watchdog-with-stream", check_one_winner, a_publisher, a_watchdog, a_stream));
}

int main(int argument_count, char **arguments)
{
    bool with_largest = argument_count > 1 && strcmp(arguments[1], "all") == 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    const uint32_t starts[] = {0, UINT32_MAX - 1, UINT32_MAX, 0x7fffffff};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        start_value = starts[i];
        if (!run_all(with_largest))
            return 1;
    }
    return 0;
}
