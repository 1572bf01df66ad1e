// How a TCP connection becomes an rsocket, in the way of librspreload: the end that has accepted listens for rsockets at
// the same port, and sends four bytes of zero by TCP. The end that has connected waits for them, and connects an
// rsocket to the same address.
//
// All waits are bounded. If anything is not as expected, the connection stays TCP. An end that cannot make an rsocket
// tells the other one: see plain.c.
#define _GNU_SOURCE
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "link.h"

enum {
	ZEROS = 4,
	WAIT_S = 30,        // for the zeros, and for the port; VERBENA_FORK_WAIT has precedence
	CONNECT_MS = 5000,  // for the rsocket after the zeros, at most WAIT_S
	CLOSED_MS = 1000,   // the same when the peer has closed its TCP socket, as it does when it has an rsocket
	BACKLOG = 16,
};

// wait_ms returns the limit of the long waits.
static int wait_ms(void)
{
	const char *text = getenv("VERBENA_FORK_WAIT");
	char *end = "";
	long s = text && *text ? strtol(text, &end, 10) : WAIT_S;

	return (*end || s < 1 || s > 3600 ? WAIT_S : (int)s) * 1000;
}

static int connect_ms(void) { return wait_ms() < CONNECT_MS ? wait_ms() : CONNECT_MS; }

static int left_until(int64_t end)
{
	int64_t left = end - now_ms();

	return left > 0 ? (int)left : 0;
}

static void pause_ms(int ms)
{
	struct timespec t = {0, ms * 1000000L};

	nanosleep(&t, NULL);
}

int is_tcp(int fd)
{
	int protocol = 0;
	socklen_t n = sizeof protocol;
	struct sockaddr_storage peer;

	if (NEXT(getsockopt)(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &n) || protocol != IPPROTO_TCP)
		return 0;
	n = sizeof peer;
	return NEXT(getpeername)(fd, (struct sockaddr *)&peer, &n) ? 1 : 2;
}

// address is an IP address with port, an IPv4 one never in the form of IPv6.
union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

static socklen_t length_of(const union address *a)
{
	return a->any.sa_family == AF_INET ? sizeof a->v4 : sizeof a->v6;
}

static void unmap(union address *a)
{
	struct sockaddr_in6 v6 = a->v6;

	if (a->any.sa_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr))
		return;
	memset(a, 0, sizeof *a);
	a->v4.sin_family = AF_INET;
	a->v4.sin_port = v6.sin6_port;
	memcpy(&a->v4.sin_addr, &v6.sin6_addr.s6_addr[12], 4);
}

// ends is read_names, with the addresses in the form in which an rsocket has them.
static int ends(int tcp, union address *local, union address *peer)
{
	struct names n;

	if (!read_names(tcp, &n))
		return 0;
	memcpy(local, &n.local, sizeof *local);
	memcpy(peer, &n.peer, sizeof *peer);
	unmap(local);
	unmap(peer);
	return 1;
}

static int same_host(const union address *a, const union address *b)
{
	if (a->any.sa_family != b->any.sa_family)
		return 0;
	return a->any.sa_family == AF_INET ? a->v4.sin_addr.s_addr == b->v4.sin_addr.s_addr :
					     !memcmp(&a->v6.sin6_addr, &b->v6.sin6_addr, sizeof a->v6.sin6_addr);
}

// new_stream returns an rsocket that is no descriptor of the program; -1 without one.
static int new_stream(int family)
{
	int rs = adopt(rsocket(family, SOCK_STREAM, 0), family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (rs < 0)
		return -1;
	atomic_store(&own(rs)->rs, 0);
	set_sizes(rs);
	return rs;
}

// tcp_connected waits until a TCP socket is connected; 0 if it will not be, or not in time.
static int tcp_connected(int tcp, int64_t end)
{
	struct pollfd p = {.fd = tcp, .events = POLLOUT};

	while (NEXT(poll)(&p, 1, left_until(end)) < 0)
		if (errno != EINTR)
			return 0;
	return p.revents == POLLOUT;
}

// explain_wait prints why the first words of a client have waited.
static void explain_wait(void)
{
	if (getenv("VERBENA_EXPLAIN"))
		dprintf(STDERR_FILENO, "verbena: %s: the server has said nothing for %d s, so the connection stays TCP: run the "
			"server with --sockets and RDMAV_FORK_SAFE, or leave the client out by preload_config\n",
			program_invocation_short_name, wait_ms() / 1000);
}

// zeros_come waits for four bytes of zero, and leaves them; 0 if something else comes, or nothing in time, or the server
// tells that the connection stays TCP.
static int zeros_come(int tcp, int64_t end)
{
	static const char zeros[ZEROS];
	char got[ZEROS];
	struct pollfd p = {.fd = tcp, .events = POLLIN | POLLPRI};

	for (;;) {
		ssize_t n = NEXT(recv)(tcp, got, sizeof got, MSG_PEEK | MSG_DONTWAIT);
		int e = errno;
		// After recv: data of zeros that follows is the server's own. Urgent data of another value is too.
		if (told_plain(tcp) || (p.revents & POLLPRI))
			return 0;
		if (n == ZEROS)
			return !memcmp(got, zeros, ZEROS);
		if (n == 0 || (n < 0 && e != EAGAIN && e != EINTR) || (n > 0 && memcmp(got, zeros, n)))
			return 0;
		if (!left_until(end)) {
			if (n < 0)
				explain_wait();
			return 0;
		}
		if (n > 0)
			pause_ms(1); // some of the zeros are there, so poll does not wait
		else
			NEXT(poll)(&p, 1, left_until(end));
	}
}

static int connected(int rs, const union address *to)
{
	struct pollfd p = {.fd = rs, .events = POLLOUT};
	int e = 0;
	socklen_t n = sizeof e;

	if (!rconnect(rs, &to->any, length_of(to)))
		return 1;
	if (errno != EINPROGRESS || rpoll(&p, 1, connect_ms()) != 1)
		return 0;
	return !rgetsockopt(rs, SOL_SOCKET, SO_ERROR, &e, &n) && !e;
}

// connect_from connects an rsocket to a server, which takes it only from the address of the TCP connection.
static int connect_from(int rs, union address from, const union address *peer)
{
	from.v4.sin_port = 0; // at the same place as the port of IPv6
	rbind(rs, &from.any, length_of(&from));
	return connected(rs, peer);
}

int handshake_active(int tcp)
{
	int64_t end = now_ms() + wait_ms();
	union address local, peer;
	char zeros[ZEROS];

	if (!tcp_connected(tcp, end) || !ends(tcp, &local, &peer))
		return -1;
	int rs = new_stream(peer.any.sa_family); // before the wait, since the first one starts the engine
	int come = zeros_come(tcp, end); // also without an rsocket, since the zeros are no data of the program
	int made = come && rs >= 0 && connect_from(rs, local, &peer);
	if (come)
		NEXT(recv)(tcp, zeros, sizeof zeros, MSG_DONTWAIT); // unread they reset the TCP connection
	if (made)
		return rs;
	if (come)
		tell_plain(tcp);
	if (rs >= 0)
		release(rs);
	return -1;
}

// heard reports whether the peer of a TCP connection has sent something, has closed (2), or both. Urgent data counts.
static int heard(int tcp)
{
	struct pollfd p = {.fd = tcp, .events = POLLIN | POLLPRI};
	char one;

	if (NEXT(poll)(&p, 1, 0) != 1)
		return 0;
	if (told_plain(tcp) || !(p.revents & ~POLLPRI))
		return 1;
	return NEXT(recv)(tcp, &one, 1, MSG_PEEK | MSG_DONTWAIT) == 1 ? 1 : 2;
}

// listener returns an rsocket that listens at the port of a TCP socket, of all addresses; -1 without one. While another
// process listens there, for a connection of the same server, it waits, unless the peer is heard.
static int listener(int tcp, const union address *local, int64_t end)
{
	union address any = {.any.sa_family = local->any.sa_family};
	int one = 1, rs = new_stream(any.any.sa_family);

	if (rs < 0)
		return -1;
	any.v4.sin_port = local->v4.sin_port;
	rsetsockopt(rs, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	for (int pause = 1, bound = 0;; pause = pause < 8 ? 2 * pause : 8) {
		bound = bound || !rbind(rs, &any.any, length_of(&any));
		if (bound && !rlisten(rs, BACKLOG))
			return rs;
		if ((errno != EADDRINUSE && errno != EADDRNOTAVAIL) || heard(tcp) || !left_until(end))
			break;
		pause_ms(pause);
	}
	release(rs);
	return -1;
}

// accepted returns the next rsocket that waits at a listener, if it is of a host; -1 without one.
static int accepted(int l, const union address *peer)
{
	union address from = {0};
	socklen_t n = sizeof from;
	int rs = adopt(raccept(l, &from.any, &n), peer->any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (rs < 0)
		return -1;
	atomic_store(&own(rs)->rs, 0);
	unmap(&from);
	if (same_host(&from, peer))
		return rs;
	release(rs); // the program has let in another host
	return -1;
}

// awaited waits at a listener for the rsocket of the peer; -1 if it does not come.
static int awaited(int l, int tcp, const union address *peer)
{
	int64_t end = now_ms() + connect_ms();
	int closed = 0;

	for (;;) {
		struct pollfd p[2] = {{.fd = l, .events = POLLIN}, {.fd = closed ? -1 : tcp, .events = POLLIN | POLLPRI}};
		rpoll(p, 2, left_until(end));
		int rs = accepted(l, peer);
		if (rs >= 0)
			return rs;
		if (!left_until(end)) // also if rsockets of other hosts come all the time
			return -1;
		int how = closed ? 0 : heard(tcp);
		if (how == 1)
			return -1; // it goes on by TCP
		if (how == 2) {
			int64_t soon = now_ms() + CLOSED_MS;
			closed = 1;
			end = soon < end ? soon : end;
		}
	}
}

// turn is of the threads of this process, for listeners.
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

void handshake_forget(void) { pthread_mutex_init(&turn, NULL); }

// offer_rsocket listens for the peer's rsocket and returns it; -1 if it does not come. *told is set if the peer knows
// that it can come. The caller has the turn.
static int offer_rsocket(int tcp, const union address *local, const union address *peer, int64_t end, int *told)
{
	static const char zeros[ZEROS];
	int rs = -1, l = listener(tcp, local, end);

	if (l < 0)
		return -1;
	*told = !heard(tcp) && NEXT(send)(tcp, zeros, ZEROS, MSG_NOSIGNAL | MSG_DONTWAIT) == ZEROS;
	if (*told)
		rs = awaited(l, tcp, peer);
	release(l);
	return rs;
}

int handshake_passive(int tcp)
{
	union address local, peer;
	int64_t end = now_ms() + wait_ms();
	struct timespec until = {time(NULL) + left_until(end) / 1000, 0};
	int rs = -1, told = 0;

	// A client that has spoken or closed does not wait for the zeros, nor does one that another process, which was
	// executed with the connection, has told or served.
	if (heard(tcp) || has_sent(tcp) || !ends(tcp, &local, &peer))
		return -1;
	if (!pthread_mutex_timedlock(&turn, &until)) {
		rs = offer_rsocket(tcp, &local, &peer, end, &told);
		pthread_mutex_unlock(&turn);
	}
	if (!told && !heard(tcp))
		tell_plain(tcp);
	return rs;
}
