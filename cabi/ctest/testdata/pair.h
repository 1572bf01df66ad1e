// What programs of sockets and epoll share. Include check.h before.
#include <arpa/inet.h>
#include <sys/epoll.h>
#include <sys/socket.h>

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

static int epoll_add(int ep, int fd, uint32_t events)
{
	struct epoll_event e = {.events = events, .data.fd = fd};

	return epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e);
}
