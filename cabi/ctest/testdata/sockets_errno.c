// A call of a socket that succeeds leaves errno as it was. Programs that read errno at the end of a stream, too, would
// take it for a failure.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "leave.h"

static struct sockaddr_in here = {.sin_family = AF_INET};
static int sizes[2];

// peer connects, and sends when the other end waits, but for the first message.
static void *peer(void *arg)
{
	int c, n;
	char buf[8192];

	OK((c = socket(AF_INET, SOCK_STREAM, 0)) >= 0);
	OK(!connect(c, (struct sockaddr *)&here, sizeof here));
	for (int i = 0; i < 6; i++) {
		usleep(20000); // the other end waits, mostly; the test passes if it does not
		OK(send(c, "x", 1, 0) == 1);
	}
	for (sizes[0] = 0; sizes[0] < sizes[1]; sizes[0] += n)
		OK((n = read(c, buf, sizeof buf)) > 0);
	usleep(20000);
	OK(!shutdown(c, SHUT_WR));
	OK(!read(c, buf, 1));
	OK(!close(c));
	return NULL;
}

static void waits(int p)
{
	struct pollfd ready = {.fd = p, .events = POLLIN};
	struct epoll_event in = {.events = EPOLLIN}, got;
	struct iovec iov;
	char one;
	fd_set set;
	int e;

	OK(recv(p, &one, 1, 0) == 1);
	OK(poll(&ready, 1, -1) == 1);
	OK(read(p, &one, 1) == 1);
	FD_ZERO(&set);
	FD_SET(p, &set);
	OK(select(p + 1, &set, NULL, NULL, NULL) == 1);
	OK(recvfrom(p, &one, 1, 0, NULL, NULL) == 1);
	OK((e = epoll_create1(EPOLL_CLOEXEC)) >= 0);
	OK(!epoll_ctl(e, EPOLL_CTL_ADD, p, &in));
	OK(epoll_wait(e, &got, 1, -1) == 1);
	iov = (struct iovec){&one, 1};
	OK(readv(p, &iov, 1) == 1);
	OK(epoll_wait(e, &got, 1, 1) >= 0); // 0, mostly
	OK(!close(e));
	OK(recv(p, &one, 1, MSG_PEEK) == 1);
	OK(recv(p, &one, 1, MSG_WAITALL) == 1);
	OK(recv(p, &one, 1, 0) == 1);
}

int main(void)
{
	static char many[4 << 20];
	socklen_t n = sizeof here;
	pthread_t t;
	int l, p, d, on = 1, used;

	here.sin_addr.s_addr = inet_addr(HERE);
	OK((l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) >= 0);
	OK(!setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
	OK(!bind(l, (struct sockaddr *)&here, n));
	OK(!listen(l, 4));
	OK(!getsockname(l, (struct sockaddr *)&here, &n));
	sizes[1] = sizeof many;
	CHECK(!pthread_create(&t, NULL, peer, NULL));
	OK((p = accept(l, NULL, NULL)) >= 0);
	OK(!getpeername(p, (struct sockaddr *)&here, &n));
	OK(!setsockopt(p, IPPROTO_TCP, 1, &on, sizeof on));
	waits(p);
	OK(!ioctl(p, FIONREAD, &used));
	OK((d = dup(p)) >= 0);
	OK(!close(d));
	OK(write(p, many, sizeof many) == sizeof many);
	OK(!recv(p, many, 1, 0));
	OK(fcntl(p, F_SETFL, O_NONBLOCK) >= 0);
	OK(!close(p));
	CHECK(!pthread_join(t, NULL));
	OK(!close(l));
	return changed;
}
