// Sockets of librdmacm in one process: the errno of calls, options, lengths of addresses, IO maps and rselect.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <rdma/rsocket.h>
#include <sys/mman.h>
#include <sys/select.h>

#include "check.h"

// FAILS requires -1 and an errno.
#define FAILS(call, want) MUST((errno = 0, (call)) == -1 && errno == (want))

// SOCKADDR is an address for the calls.
#define SOCKADDR(a) ((struct sockaddr *)&(a))

enum { NONE = 777 }; // a number that no socket has

static struct sockaddr_in here = {.sin_family = AF_INET}; // then the listener's
static char buf[4096];

static int stream(int flags)
{
	int s = rsocket(AF_INET, SOCK_STREAM | flags, 0);

	MUST(s >= 0);
	return s;
}

static int option(int s, int level, int name)
{
	int v = -1;
	socklen_t n = sizeof v;

	MUST(!rgetsockopt(s, level, name, &v, &n) && n == sizeof v);
	return v;
}

static void unconnected(void)
{
	struct sockaddr_in peer;
	socklen_t n = sizeof peer;
	int s = stream(0), on = 1;

	FAILS(rsocket(AF_UNIX, SOCK_STREAM, 0), ENOTSUP);
	FAILS(rsocket(AF_INET, SOCK_RAW, 0), ENOTSUP);
	FAILS(rsocket(AF_INET, SOCK_STREAM, IPPROTO_UDP), ENOTSUP);
	FAILS(rsocket(AF_INET, SOCK_DGRAM, IPPROTO_TCP), ENOTSUP);
	FAILS(raccept(s, NULL, NULL), EBADF);
	FAILS(rshutdown(s, SHUT_RDWR), ENOTCONN);
	FAILS(rgetpeername(s, SOCKADDR(peer), &n), ENOTCONN);
	FAILS(rbind(s, NULL, 0), EINVAL);
	FAILS(rbind(s, SOCKADDR(here), sizeof here - 1), EINVAL);
	FAILS(rbind(NONE, SOCKADDR(here), sizeof here), EBADF);
	FAILS(rsetsockopt(s, SOL_SOCKET, 99, &on, sizeof on), ENOTSUP);
	FAILS(rgetsockopt(s, SOL_SOCKET, 99, &on, &n), ENOTSUP);
	FAILS(rsetsockopt(s, SOL_SOCKET, SO_BROADCAST, &on, sizeof on), ENOTSUP);
	MUST(!rgetsockopt(s, SOL_SOCKET, SO_BROADCAST, &on, &n) && on == 1); // and the value is as it was
	FAILS(riomap(s, buf, 100, PROT_WRITE, 0, 0), EINVAL);
	FAILS(riomap(NONE, buf, 100, PROT_WRITE, 0, 0), EBADF);
	FAILS(riowrite(NONE, buf, 1, 0, 0), EBADF);
	FAILS(rfcntl(s, F_DUPFD, 0), ENOTSUP);
	FAILS(rclose(NONE), EBADF);
	MUST(!rclose(s));
	FAILS(rrecv(s, buf, 1, 0), EBADF);
}

// IP_TOS is one byte, as that of rdma_set_option, or an int, as that of the kernel's sockets.
static void type_of_service(void)
{
	int s = stream(0), tos = 0x68;
	uint8_t one = 0x6c;
	socklen_t n = sizeof one;

	MUST(!rsetsockopt(s, IPPROTO_IP, IP_TOS, &tos, sizeof tos) && option(s, IPPROTO_IP, IP_TOS) == 0x68);
	MUST(!rsetsockopt(s, IPPROTO_IP, IP_TOS, &one, sizeof one) && option(s, IPPROTO_IP, IP_TOS) == 0x6c);
	one = 0;
	MUST(!rgetsockopt(s, IPPROTO_IP, IP_TOS, &one, &n) && n == sizeof one && one == 0x6c && !rclose(s));
}

// connected makes a connection; an address is cut to its room, and its length is told.
static void connected(int *c, int *s)
{
	char cut[16];
	struct sockaddr_in a;
	socklen_t n = 100;
	int l = stream(0), maps = 1;

	*c = stream(0);
	MUST(!rsetsockopt(*c, SOL_RDMA, RDMA_IOMAPSIZE, &maps, sizeof maps));
	MUST(!rbind(l, SOCKADDR(here), sizeof here) && !rlisten(l, 3) && !rlisten(l, 3));
	MUST(!rgetsockname(l, SOCKADDR(here), &n) && n == sizeof here && here.sin_port);
	MUST(!rfcntl(l, F_SETFL, O_NONBLOCK) && rfcntl(l, F_GETFL) == O_NONBLOCK);
	FAILS(raccept(l, NULL, NULL), EAGAIN);
	MUST(!rfcntl(l, F_SETFL, 0));
	FAILS(rconnect(l, SOCKADDR(here), sizeof here), EINVAL);
	MUST(!rconnect(*c, SOCKADDR(here), sizeof here) && !rconnect(*c, SOCKADDR(here), sizeof here));
	memset(cut, 9, sizeof cut);
	n = 7;
	*s = raccept(l, SOCKADDR(cut), &n);
	MUST(*s >= 0 && n == sizeof a && cut[7] == 9);
	MUST(!rgetpeername(*s, SOCKADDR(a), &n) && n == sizeof a && !memcmp(&a, cut, 7) && !rclose(l));
}

static void options(int c)
{
	struct tcp_info info;
	socklen_t n = 71;
	int size = 100;

	FAILS(rgetsockopt(c, SOL_RDMA, RDMA_ROUTE, buf, &n), EINVAL);
	n = 200;
	MUST(!rgetsockopt(c, SOL_RDMA, RDMA_ROUTE, buf, &n) && n == 72);
	FAILS(rsetsockopt(c, SOL_RDMA, RDMA_SQSIZE, &size, sizeof size), EINVAL);
	memset(&info, 0xEE, sizeof info);
	n = sizeof info;
	MUST(!rgetsockopt(c, IPPROTO_TCP, TCP_INFO, &info, &n) && n > 100 && info.tcpi_state == TCP_ESTABLISHED);
	MUST((int)info.tcpi_snd_cwnd == option(c, SOL_RDMA, RDMA_SQSIZE) && !info.tcpi_rto && !info.tcpi_rtt);
}

static void transfers(int c, int s)
{
	char control[20];
	struct iovec iov = {buf, 10};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
	struct sockaddr_in a = {0};
	socklen_t n = sizeof a;

	FAILS(rsendto(c, "x", 1, 0, SOCKADDR(here), sizeof here), EISCONN);
	FAILS(rsendmsg(c, &m, 0), ENOTSUP);
	FAILS(rrecvmsg(c, &m, 0), ENOTSUP);
	FAILS(rrecv(s, buf, 1, MSG_DONTWAIT), EAGAIN);
	MUST(rsend(c, "", 0, 0) == 0 && rwrite(c, "hello", 5) == 5 && rrecv(s, buf, 3, MSG_PEEK) == 3);
	MUST(rrecvfrom(s, buf, 10, 0, SOCKADDR(a), &n) == 5 && n == sizeof a && a.sin_port && !memcmp(buf, "hello", 5));
}

// maps are of s; c has room for one.
static void maps(int c, int s)
{
	static char mem[8192];

	FAILS(riomap(c, mem, 100, PROT_WRITE, 0, 0), ENOMEM);
	FAILS(riomap(s, mem, 100, PROT_READ, 0, 0), EINVAL);
	MUST(riomap(s, mem, 100, PROT_WRITE, 0, 1000) == 1000);
	FAILS(riomap(s, mem + 4096, 100, PROT_WRITE, 0, 5000), ENOMEM);
	FAILS(riounmap(s, mem, 99), EINVAL);
	MUST(rsend(s, "g", 1, 0) == 1 && rrecv(c, buf, 1, 0) == 1); // now c knows the map
	MUST(riowrite(c, "abc", 3, 1000, 0) == 3 && riowrite(c, "xyz", 3, 1098, 0) == 2 && !riowrite(c, "abc", 3, 5, 0));
	MUST(rsend(c, "!", 1, 0) == 1 && rrecv(s, buf, 1, 0) == 1 && !memcmp(mem, "abc", 3) && !memcmp(mem + 98, "xy", 3));
	MUST(!riounmap(s, mem, 100));
	FAILS(riounmap(s, mem, 100), EINVAL);
}

// selects has a closed descriptor in the sets: it is exceptional, and else an error, since 0 is the end of the time.
static void selects(int s)
{
	fd_set r, w, e;
	int closed = open("/dev/null", O_RDONLY), most = (s > closed ? s : closed) + 1;

	FD_ZERO(&r);
	FD_SET(s, &r);
	w = e = r;
	MUST(rselect(most, &r, &w, &e, NULL) == 1 && !FD_ISSET(s, &r) && FD_ISSET(s, &w) && !FD_ISSET(s, &e));
	MUST(closed >= 0 && !close(closed));
	FD_SET(closed, &r);
	e = r;
	FAILS(rselect(most, &r, NULL, NULL, NULL), EBADF);
	MUST(rselect(most, NULL, NULL, &e, NULL) == 1 && FD_ISSET(closed, &e));
}

static void ends(int c, int s)
{
	struct sockaddr_in nobody = here;
	struct pollfd p = {.events = POLLIN | POLLOUT};

	FAILS(rshutdown(c, 7), EINVAL);
	MUST(!rshutdown(c, SHUT_RDWR) && !rread(s, buf, 1));
	FAILS(rsend(s, "x", 1, 0), ECONNRESET);
	FAILS(rsend(c, "x", 1, 0), ECONNRESET);
	p.fd = stream(SOCK_NONBLOCK);
	nobody.sin_port = htons(1);
	FAILS(rconnect(p.fd, SOCKADDR(nobody), sizeof nobody), EINPROGRESS);
	MUST(rpoll(&p, 1, 60000) == 1 && p.revents == (POLLIN | POLLOUT | POLLERR));
	MUST(option(p.fd, SOL_SOCKET, SO_ERROR) == ECONNREFUSED && !option(p.fd, SOL_SOCKET, SO_ERROR));
	FAILS(rconnect(p.fd, SOCKADDR(nobody), sizeof nobody), ENOTCONN);
	MUST(!rclose(c) && !rclose(s) && !rclose(p.fd));
}

static void datagrams(void)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr = here.sin_addr};
	struct iovec two[2] = {{buf, 1000}, {buf, 1041}};
	struct msghdr m = {.msg_name = &to, .msg_namelen = sizeof to, .msg_iov = two, .msg_iovlen = 2};
	socklen_t n = sizeof to;
	int r = rsocket(AF_INET, SOCK_DGRAM, 0), s = rsocket(AF_INET, SOCK_DGRAM, 0);

	MUST(r >= 0 && s >= 0 && !rbind(r, SOCKADDR(to), n) && !rgetsockname(r, SOCKADDR(to), &n));
	FAILS(rsend(s, "x", 1, 0), EDESTADDRREQ);
	FAILS(rsendto(s, buf, 2041, 0, SOCKADDR(to), n), EMSGSIZE);
	FAILS(rsendmsg(s, &m, 0), EMSGSIZE);
	MUST(rsendto(s, buf, 2040, 0, SOCKADDR(to), n) == 2040 && rrecv(r, buf, 100, 0) == 100);
	FAILS(rrecv(r, buf, 1, MSG_DONTWAIT), EAGAIN); // the rest is lost
	MUST(!rsendto(s, "", 0, 0, SOCKADDR(to), n) && !rrecv(r, buf, 10, 0));
	FAILS(raccept(r, NULL, NULL), EBADF);
	MUST(!rclose(r) && !rclose(s));
}

int main(void)
{
	int c, s;

	here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	unconnected();
	type_of_service();
	connected(&c, &s);
	options(c);
	transfers(c, s);
	maps(c, s);
	selects(s);
	ends(c, s);
	datagrams();
	return 0;
}
