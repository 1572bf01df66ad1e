// The calls of sockets.
#define _GNU_SOURCE
#include <fcntl.h>
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

int adopt(int rs, int domain, int type)
{
	struct slot *s;

	if (rs < 0)
		return -1;
	if (!(s = make_slot(rs))) {
		rclose(rs);
		return fail(ENOMEM);
	}
	link_leave(s);
	engine_runs();
	atomic_store(&s->uses, 1);
	atomic_store(&s->born, parent_forks());
	atomic_store(&s->domain, domain);
	atomic_store(&s->type, type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC));
	atomic_store(&s->nonblock, !!(type & SOCK_NONBLOCK));
	options_begin(rs, -1);
	atomic_store(&s->progress, UNCONNECTED);
	atomic_store(&s->shut, 0);
	atomic_store(&s->lost, 0);
	atomic_store(&s->error, 0);
	atomic_store(&s->cookie, 0);
	atomic_store(&s->received, 0);
	atomic_store(&s->sent, 0);
	atomic_store(&s->watcher, NULL);
	atomic_store(&s->rs, rs + 1);
	rfcntl(rs, F_SETFL, O_NONBLOCK);
	if (!(type & SOCK_CLOEXEC))
		NEXT(fcntl)(rs, F_SETFD, 0);
	return rs;
}

int socket(int domain, int type, int protocol)
{
	if (!wanted(domain, type, protocol))
		return NEXT(socket)(domain, type, protocol);
	GUARD(0);
	if (links() && (type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) == SOCK_STREAM)
		return link_new(NEXT(socket)(domain, type, protocol));
	int rs = adopt(rsocket(domain, type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC), protocol), domain, type);
	if (rs >= 0)
		set_sizes(rs);
	return rs;
}

// CALL calls r with the rsocket of a descriptor, or the function of the C library.
#define CALL(name, fd, ...) \
	({ \
		int rs_ = now_of(fd); \
		rs_ < 0 ? NEXT(name)(fd, ##__VA_ARGS__) : ({ \
			GUARD(0); \
			r##name(rs_, ##__VA_ARGS__); \
		}); \
	})

// foreign reports whether an address is of a family that the socket does not have.
static int foreign(int rs, const struct sockaddr *a, socklen_t n)
{
	if (!a || n < sizeof(struct sockaddr_in) || a->sa_family == AF_UNSPEC || a->sa_family == AF_INET)
		return 0;
	return a->sa_family != AF_INET6 || own(rs)->domain == AF_INET;
}

// sharer is what bind looks for: a descriptor that is bound with SO_REUSEPORT as another one wants to be.
struct sharer {
	int type, rs, fd; // rs: of the other one
	const struct sockaddr *a;
	socklen_t n;
};

static void find_sharer(int fd, struct slot *s, void *arg)
{
	struct sharer *wanted = arg;
	struct sockaddr_storage at = {0};
	socklen_t n = sizeof at;
	int rs = atomic_load(&s->rs) - 1;

	if (rs < 0 || rs == wanted->rs || wanted->fd >= 0 || own(rs)->type != wanted->type || kept_option(rs, SOL_SOCKET, SO_REUSEPORT) != 1)
		return;
	if (!rgetsockname(rs, (struct sockaddr *)&at, &n) && n <= wanted->n && !memcmp(&at, wanted->a, n))
		wanted->fd = fd;
}

// share makes a socket with SO_REUSEPORT a duplicate of the one of this process that has the address: each gets what is
// not taken by the other. An rsocket cannot have the address of another one. It returns -1 if there is none.
static int share(int fd, int rs, const struct sockaddr *a, socklen_t n)
{
	struct sharer other = {own(rs)->type, rs, -1, a, n};
	int closes = NEXT(fcntl)(fd, F_GETFD) & FD_CLOEXEC, nonblock = own(rs)->nonblock;

	if (kept_option(rs, SOL_SOCKET, SO_REUSEPORT) != 1)
		return -1;
	each_slot(find_sharer, &other);
	if (other.fd < 0 || dup3(other.fd, fd, closes ? O_CLOEXEC : 0) < 0)
		return -1;
	if (nonblock)
		atomic_store(&own(rs_of(fd))->nonblock, 1);
	return 0;
}

// share_own is share of a socket that is bound. Its place is taken if another one listens.
static int share_own(int fd, int rs)
{
	struct sockaddr_storage at = {0};
	socklen_t n = sizeof at;
	int e = errno, result = rgetsockname(rs, (struct sockaddr *)&at, &n) ? -1 : share(fd, rs, (struct sockaddr *)&at, n);

	errno = result ? e : errno;
	return result;
}

// Programs go on without an address that the host does not have, if the errno is that of the kernel.
int bind(int fd, const struct sockaddr *a, socklen_t n)
{
	int rs = now_of(fd);

	if (rs >= 0 && !readable(a, n))
		return fail(EFAULT);
	if (rs >= 0 && foreign(rs, a, n))
		return fail(EAFNOSUPPORT);
	int result = CALL(bind, fd, a, n);
	if (result && rs >= 0 && errno == EADDRINUSE)
		return share(fd, rs, a, n) ? fail(EADDRINUSE) : 0;
	return result && errno == ENODEV ? fail(EADDRNOTAVAIL) : result;
}

int listen(int fd, int backlog)
{
	int rs = now_of(fd);

	if (rs >= 0 && own(rs)->progress == ENDED) // the rsocket cannot begin again
		return fail(EINVAL);
	int result = CALL(listen, fd, backlog);
	if (result && rs >= 0 && errno == EADDRINUSE && !share_own(fd, rs))
		return 0;
	if (!result && rs < 0)
		link_listens(fd);
	else if (!result && atomic_exchange(&own(rs)->progress, LISTENING) != LISTENING)
		used_up(rs, POLLIN);
	return result;
}

int shutdown(int fd, int how)
{
	int result = link_shutdown(fd, how), rs;

	if (result != 1)
		return result;
	return (rs = now_of(fd)) < 0 ? NEXT(shutdown)(fd, how) : end_stream(rs, how);
}

// put_name writes an address for a program, cut to its room.
static int put_name(const struct sockaddr_storage *from, socklen_t whole, struct sockaddr *a, socklen_t *n)
{
	if (!readable(n, sizeof *n))
		return fail(EFAULT);
	if ((int)*n < 0)
		return fail(EINVAL);
	return put(a, from, *n < whole ? *n : whole) || put(n, &whole, sizeof whole) ? -1 : 0;
}

// map makes an IPv4 address of an IPv6 socket one of IPv6, as the kernel does: programs read it as such.
static void map(int rs, struct sockaddr_storage *a, socklen_t *n)
{
	struct sockaddr_in v4;
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};

	if (own(rs)->domain != AF_INET6 || a->ss_family != AF_INET)
		return;
	memcpy(&v4, a, sizeof v4);
	v6.sin6_port = v4.sin_port;
	memset(&v6.sin6_addr.s6_addr[10], 0xff, 2);
	memcpy(&v6.sin6_addr.s6_addr[12], &v4.sin_addr, 4);
	memcpy(a, &v6, *n = sizeof v6);
}

// name_of writes a name of an rsocket: that of the TCP connection that was before it, if one was.
static int name_of(int rs, int peer, struct sockaddr *a, socklen_t *n)
{
	struct names *names = own(rs)->names;
	struct sockaddr_storage at = {0};
	socklen_t length = sizeof at;

	GUARD(0);
	if (!a || !n)
		return fail(EFAULT);
	if (peer && made(rs) && tcp_state(rs) == TCP_CLOSE)
		return fail(ENOTCONN);
	if (names && peer)
		return put_name(&names->peer, names->peer_length, a, n);
	if (names)
		return put_name(&names->local, names->local_length, a, n);
	if ((peer ? rgetpeername : rgetsockname)(rs, (struct sockaddr *)&at, &length)) {
		parent_tell(rs);
		return -1;
	}
	map(rs, &at, &length);
	return put_name(&at, length, a, n);
}

int toward(const struct sockaddr_storage *peer)
{
	socklen_t n = peer->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
	int s = NEXT(socket)(peer->ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (s < 0 || !NEXT(connect)(s, (const struct sockaddr *)peer, n))
		return s;
	int e = errno;
	NEXT(close)(s);
	return fail(e);
}

int getpeername(int fd, struct sockaddr *a, socklen_t *n)
{
	int rs = now_of(fd);

	return rs < 0 ? NEXT(getpeername)(fd, a, n) : name_of(rs, 1, a, n);
}

int getsockname(int fd, struct sockaddr *a, socklen_t *n)
{
	int rs = now_of(fd);

	return rs < 0 ? NEXT(getsockname)(fd, a, n) : name_of(rs, 0, a, n);
}

int accept4(int fd, struct sockaddr *a, socklen_t *n, int flags)
{
	int rs = rs_of(fd);

	if (rs < 0)
		return link_accepted(fd, NEXT(accept4)(fd, a, n, flags));
	if (flags & ~(SOCK_NONBLOCK | SOCK_CLOEXEC))
		return fail(EINVAL);
	GUARD(1);
	struct sockaddr_storage from = {0};
	socklen_t length;
	int new, before = errno;
	do { // the connection that has ended the wait may be gone
		length = sizeof from;
		new = raccept(rs, (struct sockaddr *)&from, &length);
	} while (new < 0 && errno == EAGAIN && !own(rs)->nonblock && !ready(rs, POLLIN, own(rs)->receive_ms));
	if (new < 0 && errno == EBADF && rs_of(fd) == rs)
		return fail(own(rs)->type == SOCK_STREAM ? EINVAL : EOPNOTSUPP); // it does not listen
	if (new >= 0)
		errno = before;
	used_up(rs, POLLIN);
	map(rs, &from, &length);
	if (new >= 0 && a && put_name(&from, length, a, n)) {
		rclose(new);
		return fail(errno == EINVAL ? EINVAL : EFAULT);
	}
	if (adopt(new, own(rs)->domain, SOCK_STREAM | flags) < 0)
		return -1;
	atomic_store(&own(new)->progress, CONNECTED);
	options_begin(new, rs);
	return new;
}

int accept(int fd, struct sockaddr *a, socklen_t *n)
{
	return ours(fd) ? accept4(fd, a, n, 0) : NEXT(accept)(fd, a, n);
}

// connection waits for the connection of an rsocket that blocks. A wait that a handler of a signal or SO_SNDTIMEO ends
// leaves the attempt running, as in the kernel.
static int connection(int rs, int before)
{
	int e = 0;
	socklen_t n = sizeof e;

	if (ready(rs, POLLOUT, own(rs)->send_ms))
		return errno == EAGAIN ? fail(EINPROGRESS) : -1;
	if (rgetsockopt(rs, SOL_SOCKET, SO_ERROR, &e, &n))
		return -1;
	struct sockaddr_storage peer;
	n = sizeof peer;
	int made = !e && !rgetpeername(rs, (struct sockaddr *)&peer, &n);
	atomic_store(&own(rs)->progress, made ? CONNECTED : UNCONNECTED);
	if (!made)
		return fail(e ? e : ECONNABORTED); // the program has read the error of the attempt
	errno = before;
	return 0;
}

// begun is connect of a stream that an earlier call has connected, or begun to. 1: there was none.
static int begun(int rs, int before)
{
	struct pollfd p = {.fd = rs, .events = POLLOUT};

	switch (atomic_load(&own(rs)->progress)) {
	case CONNECTED:
		return fail(EISCONN);
	case CONNECTING:
		return own(rs)->nonblock && !rpoll(&p, 1, 0) ? fail(EALREADY) : connection(rs, before);
	}
	return 1;
}

int listens(int rs) { return own(rs)->progress == LISTENING; }

// attempt is rconnect, but another attempt may follow one that has failed.
static int attempt(int rs, const struct sockaddr *a, socklen_t n)
{
	int result = rconnect(rs, a, n), yes = 1;

	if (!result || errno != ENOTCONN)
		return result;
	if (rsetsockopt(rs, SOL_RDMA, RDMA_AGAIN, &yes, sizeof yes))
		return fail(ENOTCONN); // it was connected
	used_up(rs, POLLIN);
	return rconnect(rs, a, n);
}

int connect(int fd, const struct sockaddr *a, socklen_t n)
{
	int rs = now_of(fd), result, before = errno;

	if (rs < 0) {
		result = NEXT(connect)(fd, a, n);
		if (!result || errno == EINPROGRESS || errno == EINTR)
			link_connects(fd);
		return result;
	}
	GUARD(1);
	if (!readable(a, n))
		return fail(EFAULT);
	if ((result = begun(rs, before)) != 1)
		return result;
	if (foreign(rs, a, n))
		return fail(EAFNOSUPPORT);
	result = attempt(rs, a, n);
	if (result && errno == EINVAL && listens(rs))
		return fail(EISCONN);
	if (own(rs)->type != SOCK_STREAM || (result && errno != EINPROGRESS))
		return result;
	atomic_store(&own(rs)->progress, result ? CONNECTING : CONNECTED);
	atomic_store(&own(rs)->shut, 0);
	used_up(rs, POLLIN); // epoll may have told of a socket without a connection
	used_up(rs, POLLOUT);
	return !result || own(rs)->nonblock ? result : connection(rs, before);
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
