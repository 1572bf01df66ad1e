// The slots of descriptors, and the functions of the C library.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "sockets.h"

enum { LIMIT = 1 << 20, PAGE = 256 };

static _Atomic(struct slot *) pages[LIMIT / PAGE];

struct slot *slot_of(int fd)
{
	struct slot *page = fd >= 0 && fd < LIMIT ? atomic_load(&pages[fd / PAGE]) : NULL;

	return page ? &page[fd % PAGE] : NULL;
}

struct slot *make_slot(int fd)
{
	struct slot *none = NULL;

	if (fd < 0 || fd >= LIMIT)
		return NULL;
	if (!atomic_load(&pages[fd / PAGE])) {
		struct slot *page = calloc(PAGE, sizeof *page);
		if (!page)
			return NULL;
		if (!atomic_compare_exchange_strong(&pages[fd / PAGE], &none, page))
			free(page);
	}
	return slot_of(fd);
}

void each_slot(void (*f)(int fd, struct slot *, void *), void *arg)
{
	for (int i = 0; i < LIMIT / PAGE; i++) {
		struct slot *page = atomic_load(&pages[i]);
		for (int j = 0; page && j < PAGE; j++)
			f(i * PAGE + j, &page[j], arg);
	}
}

void *next_function(const char *name)
{
	void *f = dlsym(RTLD_NEXT, name);

	if (!f) {
		fprintf(stderr, "libverbena-sockets.so: the C library has no %s\n", name);
		abort();
	}
	return f;
}

int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * (int64_t)SECOND + t.tv_nsec;
}

int64_t now_ms(void) { return now_ns() / (SECOND / 1000); }

struct timespec left_of(const struct timespec *whole, int64_t begun)
{
	int64_t gone = now_ns() - begun, sec = whole->tv_sec - gone / SECOND, nsec = whole->tv_nsec - gone % SECOND;

	if (nsec < 0) {
		nsec += SECOND;
		sec--;
	}
	return sec < 0 ? (struct timespec){0} : (struct timespec){sec, nsec};
}
