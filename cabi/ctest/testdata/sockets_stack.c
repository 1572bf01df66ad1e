// A program that makes calls on the stacks of coroutines, as QEMU does.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <sys/socket.h>
#include <time.h>
#include <ucontext.h>

#define FAILED 1
#include "check.h"

enum { BATCHES = 10, CALLS = 50, SLOWER = 10 };

static int ends[2];
static ucontext_t program, coroutine;
static double fastest; // batch of the coroutine, s

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

// batch returns the time of the fastest of some batches of calls.
static double batch(void)
{
	double best = 1e9;
	char c;

	for (int i = 0; i < BATCHES; i++) {
		double begin = now();
		for (int j = 0; j < CALLS; j++)
			CHECK(send(ends[0], "x", 1, 0) == 1 && recv(ends[1], &c, 1, 0) == 1 && c == 'x');
		double took = now() - begin;
		best = took < best ? took : best;
	}
	return best;
}

static void run(void) { fastest = batch(); }

int main(void)
{
	static char stack[256 << 10];
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof at;
	int l = socket(AF_INET, SOCK_STREAM, 0);

	CHECK(!bind(l, (struct sockaddr *)&at, n) && !listen(l, 1) && !getsockname(l, (struct sockaddr *)&at, &n));
	ends[0] = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(!connect(ends[0], (struct sockaddr *)&at, n) && (ends[1] = accept(l, NULL, NULL)) >= 0);
	double usual = batch();
	CHECK(!getcontext(&coroutine));
	coroutine.uc_stack.ss_sp = stack;
	coroutine.uc_stack.ss_size = sizeof stack;
	coroutine.uc_link = &program;
	makecontext(&coroutine, run, 0);
	CHECK(!swapcontext(&program, &coroutine));
	printf("%.1f us on the stack of the thread, %.1f us on that of a coroutine\n", usual / CALLS * 1e6,
	       fastest / CALLS * 1e6);
	CHECK(fastest < SLOWER * usual);
	return 0;
}
