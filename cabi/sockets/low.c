// Low numbers of descriptors are for the program: one with select, or with a table for few descriptors as wrk has, takes
// no others. While the engine starts, and until it has opened its devices, calls hold the numbers that are free, so that
// the engine's descriptors get higher ones. Later ones the engine moves itself.
#define _GNU_SOURCE
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/select.h>

#include "sockets.h"

enum {
	MOST = FD_SETSIZE,
	LEAST = 128, // a process with a lower limit than twice that needs all for the engine
};

static int held[MOST];
static atomic_int count;
static atomic_int busy;    // a call holds the numbers
static atomic_int started[KINDS]; // calls of a kind need it no more
static atomic_int loaded;  // the engine is loaded

int low_floor(void)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) || l.rlim_cur / 2 < LEAST)
		return 0;
	return l.rlim_cur / 2 < MOST ? (int)(l.rlim_cur / 2) : MOST;
}

unsigned int low_last(unsigned int first, unsigned int last)
{
	struct rlimit l;
	unsigned int floor = low_floor();

	if (first > last || !floor || !atomic_load(&loaded) || getrlimit(RLIMIT_NOFILE, &l) || last < l.rlim_cur - 1)
		return last;
	return floor - 1;
}

int low_raise(int fd)
{
	int e = errno, high = fd < 0 ? -1 : NEXT(fcntl)(fd, F_DUPFD_CLOEXEC, low_floor());

	errno = e;
	if (high < 0)
		return fd;
	NEXT(close)(fd);
	return high;
}

// free_all gives the numbers back, the lowest first.
static void free_all(void)
{
	int n = atomic_exchange(&count, 0);

	while (n > 0)
		NEXT(close)(held[--n]);
}

// after_fork runs in the child, which starts an engine of its own.
static void after_fork(void)
{
	free_all();
	atomic_store(&busy, 0);
	for (int kind = 0; kind < KINDS; kind++)
		atomic_store(&started[kind], 0);
	atomic_store(&loaded, 0);
}

__attribute__((constructor)) static void watch(void) { pthread_atfork(NULL, NULL, after_fork); }

int low_begin(enum low_kind kind)
{
	int floor = low_floor(), fd, e = errno;

	if (atomic_load(&started[kind]) || atomic_exchange(&busy, 1))
		return 0;
	// The table of descriptors grows once: with threads each growth takes milliseconds.
	if ((fd = eventfd(0, EFD_CLOEXEC)) >= 0)
		fd = low_raise(fd);
	// The highest first: what a thread of the engine opens meanwhile gets the lowest number, and not one that a program
	// may close which closes all from some number on.
	for (int want = floor - 1; fd >= floor && want >= 0; want--) {
		int low = NEXT(fcntl)(fd, F_DUPFD_CLOEXEC, want);
		if (low == want)
			held[atomic_fetch_add(&count, 1)] = low;
		else if (low >= 0)
			NEXT(close)(low);
	}
	if (fd >= 0)
		NEXT(close)(fd);
	errno = e;
	return 1;
}

void low_end(int *began)
{
	int e = errno;

	if (*began) {
		free_all();
		atomic_store(&busy, 0);
	}
	errno = e;
}

void low_started(enum low_kind kind, int result)
{
	if (!result)
		atomic_store(&started[kind], 1);
}

int low_rsocket(int domain, int type, int protocol)
{
	if (!atomic_load(&loaded)) { // by a socket that is not the program's: its number would be a high one
		LOW(LOW_LOAD);
		int rs = rsocket(AF_INET, SOCK_STREAM, 0);
		if (rs >= 0) {
			rclose(rs);
			atomic_store(&loaded, 1);
		}
	}
	return rsocket(domain, type, protocol);
}

int low_bind(int rs, const struct sockaddr *a, socklen_t n)
{
	LOW(LOW_BIND);
	int result = rbind(rs, a, n);
	low_started(LOW_BIND, result);
	return result;
}

int low_listen(int rs, int backlog)
{
	LOW(LOW_LISTEN);
	int result = rlisten(rs, backlog);
	low_started(LOW_LISTEN, result);
	return result;
}

// begun begins to connect. It does not wait for the peer, since other threads may open files meanwhile.
static int begun(int rs, const struct sockaddr *a, socklen_t n, int nonblock)
{
	LOW(LOW_CONNECT);
	if (!nonblock)
		rfcntl(rs, F_SETFL, O_NONBLOCK);
	int result = rconnect(rs, a, n), e = errno;
	low_started(LOW_CONNECT, result && e != EINPROGRESS);
	if (!nonblock)
		rfcntl(rs, F_SETFL, 0);
	errno = e;
	return result;
}

int low_connect(int rs, const struct sockaddr *a, socklen_t n)
{
	int nonblock = atomic_load(&own(rs)->nonblock);

	if (atomic_load(&started[LOW_CONNECT]) || own(rs)->type != SOCK_STREAM)
		return rconnect(rs, a, n);
	int result = begun(rs, a, n, nonblock);
	return result && errno == EINPROGRESS && !nonblock ? rconnect(rs, a, n) : result;
}
