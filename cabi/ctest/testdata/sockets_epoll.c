// Duplicates of instances of epoll, and instances in others, in poll and in select. The program expects nothing that the
// sockets of the kernel do not do.
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/select.h>

#include "check.h"
#include "pair.h"

enum { LIMIT_MS = 20000 };

// settled makes a pair after the first I/O of the server, for which a client waits in the fork mode.
static void settled(int pair[2])
{
	connected(pair);
	struct pollfd first = {.fd = pair[1], .events = POLLIN};
	CHECK(poll(&first, 1, 0) == 0);
}

// tells reports whether an instance has an event of one descriptor only.
static int tells(int ep, int fd)
{
	struct epoll_event e[4];

	return epoll_wait(ep, e, 4, LIMIT_MS) == 1 && e[0].data.fd == fd;
}

static int silent(int ep)
{
	struct epoll_event e;

	return epoll_wait(ep, &e, 1, 0) == 0;
}

// duplicates checks an instance and a duplicate of it, in which sockets and other descriptors are. early: the duplicate
// is older than the first socket.
static void duplicates(int (*duplicate)(int), int early)
{
	int p[2], ep = epoll_create1(0), event = eventfd(0, 0), other = -1;
	char c;

	connected(p);
	if (early)
		other = duplicate(ep);
	CHECK(!epoll_add(ep, p[1], EPOLLIN));
	if (!early)
		other = duplicate(ep);
	CHECK(other >= 0 && silent(ep) && silent(other));
	CHECK(write(p[0], "x", 1) == 1 && tells(other, p[1]) && tells(ep, p[1]));
	CHECK(epoll_add(other, p[1], EPOLLIN) == -1 && errno == EEXIST);
	CHECK(!epoll_add(other, event, EPOLLIN) && eventfd_write(event, 1) == 0 && read(p[1], &c, 1) == 1);
	CHECK(tells(ep, event) && tells(other, event) && !close(ep));
	// The number is that of another file now.
	CHECK(dup2(event, ep) == ep && !epoll_add(other, p[0], EPOLLOUT) && !epoll_ctl(other, EPOLL_CTL_DEL, event, NULL));
	CHECK(tells(other, p[0]) && !close(p[0]) && tells(other, p[1]));
	CHECK(!close(other) && epoll_add(other, p[1], EPOLLIN) == -1 && errno == EBADF);
	CHECK((other = epoll_create1(0)) >= 0 && silent(other));
	CHECK(!close(other) && !close(ep) && !close(event) && !close(p[1]));
}

static int by_dup2(int fd)
{
	int other = dup(0);

	return dup2(fd, other);
}

static int by_dup3(int fd)
{
	int other = epoll_create1(0); // an instance that is replaced

	return dup3(fd, other, O_CLOEXEC);
}

static int by_fcntl(int fd) { return fcntl(fd, F_DUPFD_CLOEXEC, 0); }

// polls returns what poll tells of an instance, which select must tell too.
static int polls(int ep, int limit_ms)
{
	struct pollfd p[] = {{.fd = ep, .events = POLLIN | POLLOUT}, {.fd = ep, .events = POLLOUT}};
	struct timeval none = {0};
	fd_set r, w;
	int n = poll(p, 2, limit_ms);

	CHECK(n == !!p[0].revents && !p[1].revents);
	FD_ZERO(&r);
	FD_ZERO(&w);
	FD_SET(ep, &r);
	FD_SET(ep, &w);
	CHECK(select(ep + 1, &r, &w, NULL, &none) == n && !!FD_ISSET(ep, &r) == n && !FD_ISSET(ep, &w));
	return p[0].revents;
}

static int change(int ep, int op, int fd, uint32_t events)
{
	struct epoll_event e = {.events = events, .data.fd = fd};

	return epoll_ctl(ep, op, fd, &e);
}

// polled checks that poll tells of an instance, and takes nothing from it.
static void polled(void)
{
	int p[2], ep = epoll_create1(0), event = eventfd(0, 0);
	char c;

	connected(p);
	CHECK(polls(ep, 0) == 0 && !epoll_add(ep, p[1], EPOLLIN | EPOLLONESHOT) && !epoll_add(ep, event, EPOLLIN | EPOLLET));
	CHECK(polls(ep, 0) == 0 && polls(ep, 20) == 0 && write(p[0], "x", 1) == 1);
	CHECK(polls(ep, LIMIT_MS) == POLLIN && polls(ep, 0) == POLLIN && tells(ep, p[1]));
	CHECK(polls(ep, 0) == 0 && !change(ep, EPOLL_CTL_MOD, p[1], EPOLLIN) && polls(ep, LIMIT_MS) == POLLIN);
	CHECK(read(p[1], &c, 1) == 1 && polls(ep, 0) == 0 && !eventfd_write(event, 1));
	CHECK(polls(ep, LIMIT_MS) == POLLIN && polls(ep, 0) == POLLIN && tells(ep, event) && polls(ep, 0) == 0);
	CHECK(!change(ep, EPOLL_CTL_MOD, p[1], EPOLLOUT) && polls(ep, LIMIT_MS) == POLLIN);
	CHECK(!epoll_ctl(ep, EPOLL_CTL_DEL, p[1], NULL) && polls(ep, 0) == 0);
	CHECK(!close(ep) && !close(event) && !close(p[0]) && !close(p[1]));
}

// inside checks an instance in one that is in another one. early: that is so before it has sockets.
static void inside(int early)
{
	int p[2], ep[] = {epoll_create1(0), epoll_create1(0), epoll_create1(0)};
	char c;

	connected(p);
	if (!early)
		CHECK(!epoll_add(ep[2], p[1], EPOLLIN));
	CHECK(!epoll_add(ep[1], ep[2], EPOLLIN) && !epoll_add(ep[0], ep[1], EPOLLIN) && !epoll_add(ep[0], p[0], EPOLLIN));
	if (early)
		CHECK(!epoll_add(ep[2], p[1], EPOLLIN));
	CHECK(silent(ep[0]) && silent(ep[1]) && polls(ep[0], 0) == 0 && write(p[0], "x", 1) == 1);
	CHECK(tells(ep[0], ep[1]) && tells(ep[1], ep[2]) && polls(ep[0], 0) == POLLIN && tells(ep[2], p[1]));
	CHECK(epoll_add(ep[0], ep[1], EPOLLIN) == -1 && errno == EEXIST);
	CHECK(epoll_add(ep[2], ep[0], EPOLLIN) == -1 && errno == ELOOP);
	CHECK(change(ep[0], EPOLL_CTL_MOD, ep[2], EPOLLIN) == -1 && errno == ENOENT);
	CHECK(!change(ep[0], EPOLL_CTL_MOD, ep[1], EPOLLIN | EPOLLONESHOT) && tells(ep[0], ep[1]) && silent(ep[0]));
	CHECK(!change(ep[0], EPOLL_CTL_MOD, ep[1], EPOLLIN) && tells(ep[0], ep[1]));
	CHECK(read(p[1], &c, 1) == 1 && silent(ep[0]) && write(p[1], "y", 1) == 1 && tells(ep[0], p[0]));
	CHECK(write(p[0], "x", 1) == 1 && tells(ep[1], ep[2]) && read(p[0], &c, 1) == 1 && tells(ep[0], ep[1]));
	CHECK(!epoll_ctl(ep[0], EPOLL_CTL_DEL, ep[1], NULL) && silent(ep[0]) && !epoll_add(ep[0], ep[1], EPOLLIN));
	CHECK(tells(ep[0], ep[1]) && !close(ep[2]) && silent(ep[1]) && silent(ep[0]));
	CHECK(!close(ep[1]) && silent(ep[0]) && polls(ep[0], 0) == 0 && !close(ep[0]) && !close(p[0]) && !close(p[1]));
}

static void *waits(void *arg) { return tells(((int *)arg)[0], ((int *)arg)[1]) ? arg : NULL; }
static void *polls_long(void *arg) { return polls(((int *)arg)[1], LIMIT_MS) == POLLIN ? arg : NULL; }

// others checks that a wait learns of what another thread does to the instance inside. early: that has a socket.
static void others(void *(*wait)(void *), int early)
{
	int p[2], ep[] = {epoll_create1(0), epoll_create1(0)};
	pthread_t thread;
	void *found;

	settled(p);
	CHECK(!epoll_add(ep[0], ep[1], EPOLLIN) && (!early || !epoll_add(ep[1], p[0], EPOLLIN)));
	CHECK(!pthread_create(&thread, NULL, wait, ep) && !usleep(50000) && write(p[0], "x", 1) == 1);
	CHECK(!epoll_add(ep[1], p[1], EPOLLIN) && !pthread_join(thread, &found) && found);
	CHECK(!close(ep[0]) && !close(ep[1]) && !close(p[0]) && !close(p[1]));
}

int main(void)
{
	int (*ways[])(int) = {dup, by_dup2, by_dup3, by_fcntl};

	for (int i = 0; i < 8; i++)
		duplicates(ways[i / 2], i % 2);
	for (int i = 0; i < 2; i++) {
		polled();
		inside(i);
		others(waits, i);
		others(polls_long, i);
	}
	return 0;
}
