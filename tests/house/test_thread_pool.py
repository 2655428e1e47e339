"""The thread pool by itself: a C program that runs its loops, as it is and where threads are refused."""

import os
import subprocess

import pytest
from marks import needs_gcc
from places import CSRC
from processes import program as compiled

pytestmark = needs_gcc

# thread_pool_test THREADS COUNT LOOPS: every item is visited once per loop, by the part it belongs to; prints the
# largest number of parts, and the threads of the process while the pool is there and after.
PROGRAM = r"""
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/arena.h"
#include "base/threads.h"

struct tally { int *visits, *by; atomic_int parts; };

static void visit(void *context, ptrdiff_t from, ptrdiff_t to, int worker)
{
    struct tally *t = context;
    atomic_fetch_add(&t->parts, 1);
    for (ptrdiff_t i = from; i < to; ++i) {
        ++t->visits[i];
        t->by[i] = worker;
    }
}

static int threads(void)
{
    int n = 0;
    DIR *tasks = opendir("/proc/self/task");
    while (readdir(tasks) != NULL)
        ++n;
    closedir(tasks);
    return n - 2;
}

int main(int argc, char **argv)
{
    ptrdiff_t count = atol(argv[2]), loops = atol(argv[3]);
    int visits[1000] = {0}, by[1000], first[1000], parts = 0;
    struct tally tally = {visits, by, 0};
    struct arena arena = {0};
    struct threads pool;
    int others = threads() - 1; /* an emulator has a thread of its own */
    threads_init(&pool, atoi(argv[1]), &arena);
    for (ptrdiff_t loop = 0; loop < loops; ++loop) {
        tally.parts = 0;
        threads_for(&pool, count, argc > 4 ? 10 : 1e9, visit, &tally);
        parts = tally.parts > parts ? tally.parts : parts;
        for (ptrdiff_t i = 0; i < count; ++i) {
            if (visits[i] != loop + 1 || (i > 0 && by[i] < by[i - 1]) || (loop > 0 && by[i] != first[i]))
                return 1;
            first[i] = by[i];
        }
    }
    int during = threads() - others;
    threads_end(&pool);
    threads_for(NULL, count, 1e9, visit, &tally);
    arena_free(&arena);
    /* A thread that has been joined is listed a little longer, until the kernel has buried it. */
    for (int i = 0; i < 60000 && threads() - others > 1; ++i)
        usleep(1000);
    printf("%d %d %d\n", parts, during, threads() - others);
    return 0;
}

/* threads.c starts its threads here: of more than the environment allows, all are refused. */
int refuse(pthread_t *thread, const pthread_attr_t *attributes, void *(*work)(void *), void *argument)
{
    static int started;
    return ++started > atoi(getenv("ALLOWED")) ? 11 : pthread_create(thread, attributes, work, argument);
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """(arguments) -> [parts, threads during, threads after]; ``allowed`` threads start."""
    folder = tmp_path_factory.mktemp("threads")
    (folder / "main.c").write_text(PROGRAM)

    def run(*arguments, allowed=99, flags=()):
        built = folder / f"threads{len(flags)}"
        if not built.exists():
            flags = ["-O1", *flags]
            refusing = ["-Dpthread_create=refuse", "-c", *flags]
            threads = compiled(folder / "threads.o", CSRC / "base" / "threads.c", flags=refusing)
            compiled(built, folder / "main.c", threads, CSRC / "base" / "arena.c", flags=flags)
        command, env = [built, *map(str, arguments)], {**os.environ, "ALLOWED": str(allowed)}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr or f"an item was missed, or came to another part ({done.returncode})"
        return [int(word) for word in done.stdout.split()]

    return run


@pytest.mark.parametrize("count", [2, 3, 7, 1000])
@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_every_item_is_visited_once_and_by_the_same_part(program, threads, count):
    assert program(threads, count, 200) == [min(threads, count), threads, 1]


def test_loops_that_are_too_small_start_no_thread(program):
    assert program(4, 1000, 5, "cheap") == [1, 1, 1]
    assert program(4, 1, 5) == [1, 1, 1]
    assert program(4, 0, 5) == [0, 1, 1]
    assert program(-3, 9, 5) == [1, 1, 1]


@pytest.mark.parametrize("allowed", [0, 1])
def test_refused_threads_leave_their_parts_to_the_others(program, allowed):
    assert program(4, 100, 50, allowed=allowed) == [1 + allowed, 1 + allowed, 1]


@pytest.mark.sanitizer
def test_no_data_race(program):
    program(3, 1000, 2000, flags=("-fsanitize=thread", "-g"))
