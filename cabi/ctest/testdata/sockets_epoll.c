// Duplicates of an instance of epoll. The program expects nothing that the sockets of the kernel do not do.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "check.h"

enum { LIMIT_MS = 20000 };

// connected makes a pair: pair[0] has connected, pair[1] was accepted.
static void connected(int pair[2])
{
	struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof here;
	int l = socket(AF_INET, SOCK_STREAM, 0);

	CHECK(!bind(l, (struct sockaddr *)&here, n) && !listen(l, 1) && !getsockname(l, (struct sockaddr *)&here, &n));
	pair[0] = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(!connect(pair[0], (struct sockaddr *)&here, n) && (pair[1] = accept(l, NULL, NULL)) >= 0 && !close(l));
}

static int add(int ep, int fd, uint32_t events)
{
	struct epoll_event e = {.events = events, .data.fd = fd};

	return epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e);
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
	CHECK(!add(ep, p[1], EPOLLIN));
	if (!early)
		other = duplicate(ep);
	CHECK(other >= 0 && silent(ep) && silent(other));
	CHECK(write(p[0], "x", 1) == 1 && tells(other, p[1]) && tells(ep, p[1]));
	CHECK(add(other, p[1], EPOLLIN) == -1 && errno == EEXIST);
	CHECK(!add(other, event, EPOLLIN) && eventfd_write(event, 1) == 0 && read(p[1], &c, 1) == 1);
	CHECK(tells(ep, event) && tells(other, event) && !close(ep));
	// The number is that of another file now.
	CHECK(dup2(event, ep) == ep && !add(other, p[0], EPOLLOUT) && !epoll_ctl(other, EPOLL_CTL_DEL, event, NULL));
	CHECK(tells(other, p[0]) && !close(p[0]) && tells(other, p[1]));
	CHECK(!close(other) && add(other, p[1], EPOLLIN) == -1 && errno == EBADF);
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

int main(void)
{
	int (*ways[])(int) = {dup, by_dup2, by_dup3, by_fcntl};

	for (int i = 0; i < 8; i++)
		duplicates(ways[i / 2], i % 2);
	return 0;
}
