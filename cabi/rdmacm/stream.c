// Sockets: data, IO maps and polling.
#include <limits.h>

#include "lib.h"
#include "socket.h"

// result returns a number, or -1 with errno set.
static ssize_t result(int64_t n) { return n < 0 ? cm_result(-n) : n; }

_Static_assert(sizeof(struct vrb_rs_iov) == sizeof(struct iovec), "iovec");

static ssize_t receive(int fd, const struct iovec *iov, int n, int flags, struct sockaddr_storage *from)
{
	void *h = rs_handle(fd);

	return result(h ? rs_engine->recv(h, (const struct vrb_rs_iov *)iov, n, flags, from) : -rs_missing(fd));
}

static ssize_t transmit(int fd, const struct iovec *iov, int n, int flags, const struct sockaddr *to)
{
	void *h = rs_handle(fd);

	return result(h ? rs_engine->send(h, (const struct vrb_rs_iov *)iov, n, flags, to) : -rs_missing(fd));
}

ssize_t rrecv(int fd, void *buf, size_t n, int flags)
{
	struct iovec one = {buf, n};

	return receive(fd, &one, 1, flags, NULL);
}

ssize_t rrecvfrom(int fd, void *buf, size_t n, int flags, struct sockaddr *from, socklen_t *length)
{
	struct iovec one = {buf, n};
	struct sockaddr_storage a = {0};
	ssize_t got = receive(fd, &one, 1, flags, &a);

	if (got >= 0 && from && length) {
		socklen_t whole = cm_addr_len((struct sockaddr *)&a);
		memcpy(from, &a, *length < whole ? *length : whole);
		*length = whole;
	}
	return got;
}

ssize_t rrecvmsg(int fd, struct msghdr *m, int flags)
{
	if (m->msg_control && m->msg_controllen)
		return cm_result(ENOTSUP);
	struct sockaddr_storage a = {0};
	ssize_t got = receive(fd, m->msg_iov, m->msg_iovlen > INT_MAX ? INT_MAX : (int)m->msg_iovlen, flags, &a);
	if (got >= 0) {
		socklen_t whole = cm_addr_len((struct sockaddr *)&a);
		if (m->msg_name)
			memcpy(m->msg_name, &a, m->msg_namelen < whole ? m->msg_namelen : whole);
		m->msg_namelen = m->msg_name ? whole : 0;
		m->msg_flags = 0;
	}
	return got;
}

ssize_t rread(int fd, void *buf, size_t n) { return rrecv(fd, buf, n, 0); }
ssize_t rreadv(int fd, const struct iovec *iov, int n) { return receive(fd, iov, n, 0, NULL); }

// cut reports whether an address is shorter than those of its family.
static int cut(const struct sockaddr *a, socklen_t n) { return a && n && n < cm_addr_len(a); }

ssize_t rsendto(int fd, const void *buf, size_t n, int flags, const struct sockaddr *to, socklen_t length)
{
	struct iovec one = {(void *)buf, n};

	if (cut(to, length))
		return cm_result(EINVAL);
	return transmit(fd, &one, 1, flags, length ? to : NULL);
}

ssize_t rsend(int fd, const void *buf, size_t n, int flags) { return rsendto(fd, buf, n, flags, NULL, 0); }

ssize_t rsendmsg(int fd, const struct msghdr *m, int flags)
{
	if (m->msg_control && m->msg_controllen)
		return cm_result(ENOTSUP);
	if (cut(m->msg_name, m->msg_namelen))
		return cm_result(EINVAL);
	return transmit(fd, m->msg_iov, m->msg_iovlen > INT_MAX ? INT_MAX : (int)m->msg_iovlen, flags,
			m->msg_namelen ? m->msg_name : NULL);
}

ssize_t rwrite(int fd, const void *buf, size_t n) { return rsend(fd, buf, n, 0); }
ssize_t rwritev(int fd, const struct iovec *iov, int n) { return transmit(fd, iov, n, 0, NULL); }

off_t riomap(int fd, void *buf, size_t n, int prot, int flags, off_t offset)
{
	void *h = rs_handle(fd);

	return result(h ? rs_engine->iomap(h, buf, n, prot, offset) : -rs_missing(fd));
}

int riounmap(int fd, void *buf, size_t n)
{
	void *h = rs_handle(fd);

	return cm_result(h ? rs_engine->iounmap(h, buf, n) : rs_missing(fd));
}

size_t riowrite(int fd, const void *buf, size_t n, off_t offset, int flags)
{
	void *h = rs_handle(fd);

	return result(h ? rs_engine->iowrite(h, buf, n, offset, flags) : -rs_missing(fd));
}

// none reports whether there is no socket among the descriptors.
static int none(const struct pollfd *fds, nfds_t n)
{
	for (nfds_t i = 0; i < n; i++)
		if (rs_handle(fds[i].fd))
			return 0;
	return 1;
}

// of_parent marks the sockets of the parent, which have failed, and returns how many.
static int of_parent(struct pollfd *fds, nfds_t n)
{
	int count = 0;

	for (nfds_t i = 0; i < n; i++) {
		int is = rs_of_parent(fds[i].fd);
		fds[i].revents = is ? POLLERR | POLLHUP : 0;
		count += is;
	}
	return count;
}

// poll_few is rpoll without sockets of the parent.
static int poll_few(struct pollfd *fds, nfds_t n, int timeout_ms)
{
	struct vrb_rs_poll few[16], *list = few;

	if (none(fds, n))
		return poll(fds, n, timeout_ms);
	if (n > sizeof few / sizeof *few && !(list = calloc(n, sizeof *list)))
		return cm_result(ENOMEM);
	for (nfds_t i = 0; i < n; i++)
		list[i] = (struct vrb_rs_poll){rs_handle(fds[i].fd), fds[i].fd, fds[i].events, 0};
	int64_t got = rs_engine->poll(list, n, timeout_ms);
	for (nfds_t i = 0; i < n; i++)
		fds[i].revents = list[i].revents;
	if (list != few)
		free(list);
	return result(got);
}

// A socket of the parent has POLLERR and POLLHUP at once: a wait for it would not end.
int rpoll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
	int lost = of_parent(fds, n);

	if (!lost)
		return poll_few(fds, n, timeout_ms);
	struct pollfd *rest = malloc(n * sizeof *rest);
	if (!rest)
		return cm_result(ENOMEM);
	for (nfds_t i = 0; i < n; i++)
		rest[i] = (struct pollfd){.fd = fds[i].revents ? -1 : fds[i].fd, .events = fds[i].events};
	int got = poll_few(rest, n, 0);
	for (nfds_t i = 0; got > 0 && i < n; i++)
		fds[i].revents |= rest[i].revents;
	free(rest);
	return got < 0 ? got : got + lost;
}

// wanted returns the events of poll that the sets ask for.
static short wanted(int fd, const fd_set *r, const fd_set *w, const fd_set *e)
{
	return (r && FD_ISSET(fd, r) ? POLLIN : 0) | (w && FD_ISSET(fd, w) ? POLLOUT : 0) |
	       (e && FD_ISSET(fd, e) ? POLLPRI : 0);
}

// keep leaves a descriptor in a set if it has one of the events, and returns whether it does.
static int keep(int fd, fd_set *set, short revents, short events)
{
	if (!set || !FD_ISSET(fd, set))
		return 0;
	if (revents & events)
		return 1;
	FD_CLR(fd, set);
	return 0;
}

int rselect(int n, fd_set *r, fd_set *w, fd_set *e, struct timeval *timeout)
{
	if (n < 0 || n > FD_SETSIZE || (timeout && (timeout->tv_sec < 0 || timeout->tv_usec < 0)))
		return cm_result(EINVAL);
	struct pollfd *fds = calloc(n + 1, sizeof *fds);
	if (!fds)
		return cm_result(ENOMEM);
	nfds_t used = 0;
	for (int fd = 0; fd < n; fd++) {
		short events = wanted(fd, r, w, e);
		if (events)
			fds[used++] = (struct pollfd){.fd = fd, .events = events};
	}
	int64_t ms = -1;
	if (timeout)
		ms = timeout->tv_sec > INT_MAX / 1000 - 1 ? INT_MAX : timeout->tv_sec * 1000 + (timeout->tv_usec + 999) / 1000;
	int ready = rpoll(fds, used, ms), closed = 0;
	for (nfds_t i = 0, count = 0; ready >= 0 && i < used; i++) {
		int fd = fds[i].fd;
		short got = fds[i].revents;
		count += keep(fd, r, got, POLLIN | POLLHUP | POLLERR);
		count += keep(fd, w, got, POLLOUT | POLLERR);
		count += keep(fd, e, got, POLLPRI | POLLERR | POLLHUP | POLLNVAL);
		closed |= got & POLLNVAL;
		if (i == used - 1) // a closed descriptor that ends the wait is not the end of the time
			ready = !count && closed ? cm_result(EBADF) : (int)count;
	}
	free(fds);
	return ready;
}
