#!/usr/bin/python3
"""
PyAgent*: the tool process of an AI agent. It has imported its libraries and holds some tens of MiB
of parsed objects, and then it starts tools: by fork and exec, in forked children that work on the
parent's objects, by a multiprocessing pool, by subprocess (vfork). Python counts references in the
objects themselves, so every use writes: what a break of copy-on-write copies is what counts.

Speaks the lines of bench.h. A value is the time of one batch, in ms, the median of three.

    /usr/bin/python3 py_agent.py [--ms N] [--dir NAME=PATH]... [ROW...]
"""

import asyncio
import gc
import json
import multiprocessing
import os
import re
import subprocess
import sys
import time

BATCHES = 3
TOOLS = 10  # programs that a batch starts
TOOL = "/bin/true"
PARTS = 16  # of the pool's work
WORDS = 8  # in a message
MESSAGES = 24000  # the working set: about 35 MiB of objects
pooled = []  # what forked workers find the working set by


def say(line):
    os.write(1, (line + "\n").encode())


def ask(line):
    say(line)
    if os.read(0, 1) == b"":
        os._exit(2)


def build_working_set():
    """A conversation as JSON, parsed into objects, and an index of it."""
    text = json.dumps(
        [
            {
                "id": n,
                "role": ("user", "assistant", "tool")[n % 3],
                "text": "message %d of a long conversation about file_%d.c" % (n, n % 700),
                "tokens": [n, n + 1, n + 2, n + 3],
                "meta": {"model": "m%d" % (n % 5), "cost": n / 7.0},
            }
            for n in range(MESSAGES)
        ]
    )
    messages = json.loads(text)
    names = re.compile(r"file_(\d+)\.c")
    index = {}
    for message in messages:
        index.setdefault(names.search(message["text"]).group(1), []).append(message)
    return messages, index


def use(messages, step):
    """What the parent goes on with: it reads some of its objects, and so writes their counts."""
    return sum(len(messages[n]["text"]) for n in range(0, len(messages), step))


def check(status):
    if status != 0:
        raise RuntimeError("a child ended with status %d" % status)


def nothing():
    pass


def fork_exec(messages):
    """A tool by fork and exec; the parent works on while it starts."""
    for _ in range(TOOLS):
        pid = os.fork()
        if pid == 0:
            try:
                os.execv(TOOL, [TOOL])
            finally:
                os._exit(127)
        use(messages, 97)
        check(os.waitpid(pid, 0)[1])
    return nothing


def child_gc(messages):
    """A child collects garbage, which writes to the header of every container, and stays."""
    done, life = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(life[1])
            gc.collect()
            os.write(done[1], b"\n")
            os.read(life[0], 1)
            os._exit(0)
        finally:
            os._exit(1)
    os.close(done[1])
    os.close(life[0])
    use(messages, 97)
    ok = os.read(done[0], 1) == b"\n"
    os.close(done[0])

    def end():
        os.close(life[1])
        check(os.waitpid(pid, 0)[1])

    if not ok:
        end()
        raise RuntimeError("the child failed")
    return end


def count_words(part):
    """A worker's share: it has the parent's objects by fork, and is told only where to begin."""
    return sum(len(message["text"].split()) for message in pooled[part::PARTS])


def fork_pool(messages):
    """A pool of two forked workers maps a function over the working set, and stays."""
    global pooled
    pooled = messages
    pool = multiprocessing.get_context("fork").Pool(2)

    def end():
        pool.terminate()
        pool.join()

    if sum(pool.map(count_words, range(PARTS))) != WORDS * MESSAGES:
        end()
        raise RuntimeError("the workers have miscounted")
    return end


def run_subprocess(_messages):
    """Tools by subprocess.run, which uses vfork."""
    for _ in range(TOOLS):
        subprocess.run([TOOL], check=True)
    return nothing


def fork_once():
    """What the parent has freed and not given back is not to count: it goes with a fork."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    check(os.waitpid(pid, 0)[1])


# A row makes a batch and returns what ends its processes. Operations are counted a batch.
ROWS = {
    "PyAgentForkExec": (fork_exec, TOOLS),
    "PyAgentForkChildGC": (child_gc, 1),
    "PyAgentMultiprocessingForkPool": (fork_pool, 1),
    "PyAgentSubprocessVfork": (run_subprocess, TOOLS),
}


def measure(row, messages):
    batch, operations = ROWS[row]
    times = []
    fork_once()
    # Before the first batch: what its processes leave for later ones is growth, too.
    ask("begin " + row)
    begun = time.monotonic_ns()
    batch(messages)()
    for left in reversed(range(BATCHES)):
        start = time.monotonic_ns()
        end = batch(messages)
        times.append(time.monotonic_ns() - start)
        if left:
            end()
    elapsed = time.monotonic_ns() - begun
    median = sorted(times)[BATCHES // 2] / 1e6
    # The last batch's processes live when the driver samples.
    ask("end %s %.6f %d %d" % (row, median, (BATCHES + 1) * operations, elapsed))
    end()


async def agent(rows):
    """Tools are started from within the agent's event loop."""
    messages, _index = build_working_set()
    for row in rows:
        try:
            measure(row, messages)
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:
            say("fail %s %s" % (row, str(error).replace("\n", " ")))


def main(args):
    while args and args[0].startswith("--"):
        args = args[2:]
    rows = [row for row in ROWS if not args or row in args]
    if rows:
        asyncio.run(agent(rows))


if __name__ == "__main__":
    main(sys.argv[1:])
