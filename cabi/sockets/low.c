// Low numbers of descriptors are for the program: one with select, or with a table for few descriptors, takes no others.
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/resource.h>
#include <sys/select.h>

#include "sockets.h"

static atomic_int engine; // runs in this process

static void after_fork(void) { atomic_store(&engine, 0); }

__attribute__((constructor)) static void watch(void) { pthread_atfork(NULL, NULL, after_fork); }

void engine_runs(void) { atomic_store(&engine, 1); }

// floor_of is as of the engine.
static int floor_of(void)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l))
		return 0;
	return l.rlim_cur / 2 < FD_SETSIZE ? (int)(l.rlim_cur / 2) : FD_SETSIZE;
}

int raise_fd(int fd)
{
	int e = errno, high = fd < 0 ? -1 : NEXT(fcntl)(fd, F_DUPFD_CLOEXEC, floor_of());

	errno = e;
	if (high < 0)
		return fd;
	NEXT(close)(fd);
	return high;
}

unsigned int last_to_close(unsigned int first, unsigned int last)
{
	struct rlimit l;
	unsigned int floor = floor_of();

	if (!atomic_load(&engine) || first >= floor || getrlimit(RLIMIT_NOFILE, &l) || last < l.rlim_cur - 1)
		return last;
	return floor - 1;
}
