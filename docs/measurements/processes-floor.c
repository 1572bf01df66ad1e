// WRITEs of 64 KiB by several processes to one, through memory that they share: what the least code makes. A request
// is a counter. The receiver copies the bytes and counts the answer. All poll, and yield their core after EMPTY polls
// in vain. It prints the total throughput with 1, 2, 4 and 8 senders, and its ratio to that with one.
// Left out: what shm-floor.c lists as left out, keys, bounds and completions.
//
// Build and run: cc -O2 -o processes-floor processes-floor.c && ./processes-floor
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 64 << 10, WINDOW = 8, EMPTY = 64, MOST = 8 };

// A way leads from a sender to the receiver.
struct way {
	_Alignas(64) _Atomic uint64_t posted; // of the sender
	_Alignas(64) _Atomic uint64_t done;   // of the receiver
	_Alignas(4096) uint8_t bytes[BYTES];
};

static void fail(const char *what) {
	fprintf(stderr, "processes-floor: %s\n", what);
	exit(1);
}

static double seconds(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

// polled notes whether a poll has found something.
static void polled(int found) {
	static int empty;
	if (found)
		empty = 0;
	else if (++empty == EMPTY) {
		sched_yield();
		empty = 0;
	}
}

static void send_all(struct way *w) {
	for (uint64_t posted = 0;;) {
		int room = posted - atomic_load_explicit(&w->done, memory_order_acquire) < WINDOW;
		if (room)
			atomic_store_explicit(&w->posted, ++posted, memory_order_release);
		polled(room);
	}
}

// receive copies what has been posted, and returns the number of requests.
static uint64_t receive(struct way *ways, uint8_t *to, uint64_t *taken, int n) {
	uint64_t got = 0;
	for (int i = 0; i < n; i++)
		while (taken[i] != atomic_load_explicit(&ways[i].posted, memory_order_acquire)) {
			memcpy(to + (size_t)i * BYTES, ways[i].bytes, BYTES);
			atomic_store_explicit(&ways[i].done, ++taken[i], memory_order_release);
			got++;
		}
	polled(got > 0);
	return got;
}

static void *memory(size_t n, int flags) {
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		fail("mmap");
	memset(p, 1, n);
	return p;
}

// run returns the bytes per second of n senders.
static double run(int n) {
	struct way *ways = memory(n * sizeof *ways, MAP_SHARED);
	uint8_t *to = memory((size_t)n * BYTES, MAP_PRIVATE);
	uint64_t taken[MOST] = {0}, total = 0;
	pid_t pids[MOST];
	for (int i = 0; i < n; i++) {
		ways[i].posted = ways[i].done = 0;
		if ((pids[i] = fork()) < 0)
			fail("fork");
		if (pids[i] == 0)
			send_all(&ways[i]);
	}
	double begin = seconds(), now = begin;
	while (now - begin < 0.2) { // until all have started
		receive(ways, to, taken, n);
		now = seconds();
	}
	for (begin = now; now - begin < 1; now = seconds())
		for (int i = 0; i < 16; i++)
			total += receive(ways, to, taken, n);
	for (int i = 0; i < n; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
	munmap(ways, n * sizeof *ways);
	munmap(to, (size_t)n * BYTES);
	return total * (double)BYTES / (now - begin);
}

int main(void) {
	double one = run(1);
	for (int n = 1; n <= MOST; n *= 2) {
		double all = n == 1 ? one : run(n);
		printf("%d\t%.1f GB/s\t%.2f\n", n, all / 1e9, all / one);
	}
	return 0;
}
