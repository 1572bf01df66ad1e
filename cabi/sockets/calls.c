// The calls of sockets.
#define _GNU_SOURCE
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/time.h>

#include "link.h"

// wanted reports whether a socket is to be an rsocket: streams, and with VERBENA_SOCKETS=all datagrams too. Datagrams
// are left to the kernel otherwise, because name resolution needs them.
static int wanted(int domain, int type, int protocol)
{
	const char *which = getenv("VERBENA_SOCKETS");
	int kind = type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (domain != AF_INET && domain != AF_INET6)
		return 0;
	switch (kind) {
	case SOCK_STREAM:
		return (!protocol || protocol == IPPROTO_TCP) && intercepted(domain, kind, protocol);
	case SOCK_DGRAM:
		return which && !strcmp(which, "all") && (!protocol || protocol == IPPROTO_UDP) &&
		       intercepted(domain, kind, protocol);
	}
	return 0;
}

int adopt(int rs, int type)
{
	struct slot *s;

	if (rs < 0)
		return -1;
	if (!(s = make_slot(rs))) {
		rclose(rs);
		return fail(ENOMEM);
	}
	link_leave(s);
	atomic_store(&s->uses, 1);
	atomic_store(&s->type, type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC));
	atomic_store(&s->nonblock, !!(type & SOCK_NONBLOCK));
	atomic_store(&s->receive_ms, 0);
	atomic_store(&s->send_ms, 0);
	atomic_store(&s->watcher, NULL);
	atomic_store(&s->rs, rs + 1);
	rfcntl(rs, F_SETFL, type & SOCK_NONBLOCK ? O_NONBLOCK : 0);
	if (!(type & SOCK_CLOEXEC))
		NEXT(fcntl)(rs, F_SETFD, 0);
	return rs;
}

int socket(int domain, int type, int protocol)
{
	if (!wanted(domain, type, protocol))
		return NEXT(socket)(domain, type, protocol);
	if (links() && (type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) == SOCK_STREAM)
		return link_new(NEXT(socket)(domain, type, protocol));
	int rs = adopt(rsocket(domain, type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC), protocol), type);
	if (rs >= 0)
		set_sizes(rs);
	return rs;
}

// CALL calls r with the rsocket of a descriptor, or the function of the C library.
#define CALL(name, fd, ...) \
	({ \
		int rs_ = now_of(fd); \
		rs_ < 0 ? NEXT(name)(fd, ##__VA_ARGS__) : r##name(rs_, ##__VA_ARGS__); \
	})

int bind(int fd, const struct sockaddr *a, socklen_t n) { return CALL(bind, fd, a, n); }

int listen(int fd, int backlog)
{
	int result = CALL(listen, fd, backlog);

	if (!result)
		link_listens(fd);
	return result;
}

int shutdown(int fd, int how)
{
	int result = link_shutdown(fd, how);

	return result == 1 ? CALL(shutdown, fd, how) : result;
}

// known_name writes an address of the TCP connection that was before an rsocket, if one was.
static int known_name(int rs, int peer, struct sockaddr *a, socklen_t *n)
{
	struct names *names = rs < 0 ? NULL : own(rs)->names;

	if (!names || !a || !n)
		return 0;
	socklen_t whole = peer ? names->peer_length : names->local_length;
	memcpy(a, peer ? &names->peer : &names->local, *n < whole ? *n : whole);
	*n = whole;
	return 1;
}

int getpeername(int fd, struct sockaddr *a, socklen_t *n)
{
	return known_name(now_of(fd), 1, a, n) ? 0 : CALL(getpeername, fd, a, n);
}

int getsockname(int fd, struct sockaddr *a, socklen_t *n)
{
	return known_name(now_of(fd), 0, a, n) ? 0 : CALL(getsockname, fd, a, n);
}

int accept4(int fd, struct sockaddr *a, socklen_t *n, int flags)
{
	int rs = rs_of(fd);

	if (rs < 0)
		return link_accepted(fd, NEXT(accept4)(fd, a, n, flags));
	if (flags & ~(SOCK_NONBLOCK | SOCK_CLOEXEC))
		return fail(EINVAL);
	if (!own(rs)->nonblock && ready(rs, POLLIN, own(rs)->receive_ms))
		return -1;
	int new = raccept(rs, a, n);
	used_up(rs, POLLIN);
	return adopt(new, SOCK_STREAM | flags);
}

int accept(int fd, struct sockaddr *a, socklen_t *n)
{
	return ours(fd) ? accept4(fd, a, n, 0) : NEXT(accept)(fd, a, n);
}

int connect(int fd, const struct sockaddr *a, socklen_t n)
{
	int rs = now_of(fd), result;

	if (rs < 0) {
		result = NEXT(connect)(fd, a, n);
		if (!result || errno == EINPROGRESS || errno == EINTR)
			link_connects(fd, !result);
		return result;
	}
	result = rconnect(rs, a, n);
	if (result && errno == EINPROGRESS)
		used_up(rs, POLLOUT);
	return result;
}

int milliseconds(const void *value, socklen_t n)
{
	struct timeval t;

	if (n < sizeof t)
		return -1;
	memcpy(&t, value, sizeof t);
	if (t.tv_sec < 0 || t.tv_usec < 0 || t.tv_usec > 999999)
		return -1;
	return t.tv_sec > 1000000 ? 0 : (int)(t.tv_sec * 1000 + (t.tv_usec + 999) / 1000);
}

static atomic_int *timeout_of(int rs, int level, int name)
{
	if (level != SOL_SOCKET)
		return NULL;
	return name == SO_RCVTIMEO ? &own(rs)->receive_ms : name == SO_SNDTIMEO ? &own(rs)->send_ms : NULL;
}

// harmless reports whether a program loses nothing if an option has no effect: it tunes TCP.
static int harmless(int level, int name)
{
	switch (level) {
	case SOL_SOCKET:
		return name == SO_REUSEPORT || name == SO_PRIORITY || name == SO_RCVLOWAT || name == SO_INCOMING_CPU ||
		       name == SO_TIMESTAMP || name == SO_BUSY_POLL;
	case IPPROTO_TCP:
		return name == TCP_CORK || name == TCP_QUICKACK || name == TCP_DEFER_ACCEPT || name == TCP_FASTOPEN ||
		       name == TCP_KEEPIDLE || name == TCP_KEEPINTVL || name == TCP_KEEPCNT || name == TCP_USER_TIMEOUT ||
		       name == TCP_CONGESTION || name == TCP_MAXSEG || name == TCP_LINGER2 || name == TCP_SYNCNT ||
		       name == TCP_WINDOW_CLAMP || name == TCP_FASTOPEN_CONNECT || name == TCP_NOTSENT_LOWAT;
	case IPPROTO_IP:
		return name == IP_MTU_DISCOVER || name == IP_RECVERR || name == IP_TTL || name == IP_BIND_ADDRESS_NO_PORT;
	case IPPROTO_IPV6:
		return name == IPV6_MTU_DISCOVER || name == IPV6_RECVERR || name == IPV6_TCLASS;
	}
	return 0;
}

int setsockopt(int fd, int level, int name, const void *value, socklen_t n)
{
	int rs = now_of(fd);

	if (rs < 0)
		return NEXT(setsockopt)(fd, level, name, value, n);
	atomic_int *timeout = timeout_of(rs, level, name);
	if (timeout) {
		int ms = value ? milliseconds(value, n) : -1;
		if (ms < 0)
			return fail(value && n >= sizeof(struct timeval) ? EDOM : EINVAL);
		atomic_store(timeout, ms);
		return 0;
	}
	int result = rsetsockopt(rs, level, name, value, n);
	return result && (errno == ENOPROTOOPT || errno == ENOTSUP) && harmless(level, name) ? 0 : result;
}

int getsockopt(int fd, int level, int name, void *restrict value, socklen_t *restrict n)
{
	int rs = now_of(fd);

	if (rs < 0)
		return NEXT(getsockopt)(fd, level, name, value, n);
	atomic_int *timeout = timeout_of(rs, level, name);
	if (timeout && value && n && *n >= sizeof(struct timeval)) {
		struct timeval t = {*timeout / 1000, *timeout % 1000 * 1000};
		memcpy(value, &t, *n = sizeof t);
		return 0;
	}
	if (level == SOL_SOCKET && name == SO_TYPE && value && n && *n >= sizeof(int)) {
		int type = own(rs)->type;
		memcpy(value, &type, *n = sizeof type);
		return 0;
	}
	return rgetsockopt(rs, level, name, value, n);
}

int fstat(int fd, struct stat *st)
{
	int result = NEXT(fstat)(fd, st);

	if (!result && rs_of(fd) >= 0)
		st->st_mode = S_IFSOCK | 0777;
	return result;
}

int fstat64(int fd, struct stat64 *st)
{
	int result = NEXT(fstat64)(fd, st);

	if (!result && rs_of(fd) >= 0)
		st->st_mode = S_IFSOCK | 0777;
	return result;
}
