// poll and select.
#define _GNU_SOURCE
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "sockets.h"

static inline int has_rsocket(const struct pollfd *fds, nfds_t n)
{
	for (nfds_t i = 0; i < n; i++)
		if (ours(fds[i].fd) || may_be_instance(fds[i].fd))
			return 1;
	return 0;
}

// poll_once polls what stands for the descriptors now. It returns the number of events, or -2 if there is only a reason
// to poll again: a TCP connection has become an rsocket, or the like.
static int poll_once(struct pollfd *fds, nfds_t n, struct pollfd *list, int timeout_ms)
{
	unsigned char few[16], *kinds = few;
	int again = 0, dead = 0, count = 0;

	if (n > sizeof few && !(kinds = malloc(n)))
		return fail(ENOMEM);
	for (nfds_t i = 0; i < n; i++) {
		kinds[i] = link_poll(fds[i].fd, with_plain(fds[i].events), &list[i]);
		dead |= kinds[i] == DEAD || own_events(list[i].fd);
	}
	int got = wait_inside(list, n, dead ? 0 : timeout_ms);
	for (nfds_t i = 0; got >= 0 && i < n; i++) {
		int own = own_events(list[i].fd);
		short found = as_asked(own ? own : as_tcp(list[i].fd, list[i].revents, fds[i].events), fds[i].events);
		fds[i].revents = kinds[i] == DEAD ? POLLERR : kinds[i] == INSTEAD ? 0 : found;
		again |= kinds[i] == INSTEAD && list[i].revents;
		count += !!fds[i].revents;
	}
	if (kinds != few)
		free(kinds);
	return got < 0 ? -1 : !count && again ? -2 : count;
}

int poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
	struct pollfd few[16], *list = few;
	int64_t end = now_ms() + timeout_ms;
	int got;

	if (!has_rsocket(fds, n))
		return NEXT(poll)(fds, n, timeout_ms);
	GUARD(1);
	if (n > sizeof few / sizeof *few && !(list = malloc(n * sizeof *list)))
		return fail(ENOMEM);
	while ((got = poll_once(fds, n, list, timeout_ms)) == -2 && !(got = interrupted()))
		if (timeout_ms > 0)
			timeout_ms = end > now_ms() ? (int)(end - now_ms()) : 0;
	if (list != few)
		free(list);
	return got;
}

int to_ms(const struct timespec *t)
{
	return !t ? -1 : t->tv_sec > INT_MAX / 1000 - 1 ? INT_MAX : (int)(t->tv_sec * 1000 + (t->tv_nsec + 999999) / 1000000);
}

// is_wrong reports whether the kernel refuses a time-out.
static int is_wrong(const struct timespec *t)
{
	return t && (t->tv_sec < 0 || t->tv_nsec < 0 || t->tv_nsec >= SECOND);
}

int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask)
{
	struct masked m;

	if (!has_rsocket(fds, n) || is_wrong(timeout))
		return NEXT(ppoll)(fds, n, timeout, mask);
	GUARD(1);
	if (mask_begin(mask, &m))
		return -1;
	int got = poll(fds, n, to_ms(timeout));
	mask_end(&m);
	return got;
}

int __poll_chk(struct pollfd *fds, nfds_t n, int timeout_ms, size_t room)
{
	return n > room / sizeof *fds ? (abort(), -1) : poll(fds, n, timeout_ms);
}

int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask, size_t room)
{
	return n > room / sizeof *fds ? (abort(), -1) : ppoll(fds, n, timeout, mask);
}

static int in(int fd, const fd_set *set) { return set && FD_ISSET(fd, set); }

// any reports whether an rsocket is in sets, of which the kernel has no wrong size to report.
static int any(int n, const fd_set *r, const fd_set *w, const fd_set *e)
{
	for (int fd = 0; fd < n && n <= FD_SETSIZE; fd++)
		if ((in(fd, r) || in(fd, w) || in(fd, e)) && (ours(fd) || may_be_instance(fd)))
			return 1;
	return 0;
}

// list_of returns the entries of poll for sets.
static struct pollfd *list_of(int n, const fd_set *r, const fd_set *w, const fd_set *e, nfds_t *used)
{
	struct pollfd *fds = malloc((n + 1) * sizeof *fds);

	*used = 0;
	for (int fd = 0; fds && fd < n; fd++) {
		short events = (in(fd, r) ? POLLIN : 0) | (in(fd, w) ? POLLOUT : 0) | (in(fd, e) ? POLLPRI : 0);
		if (events)
			fds[(*used)++] = (struct pollfd){.fd = fd, .events = events};
	}
	return fds;
}

static int keep(int fd, fd_set *set, short revents, short events)
{
	if (!in(fd, set))
		return 0;
	if (revents & events)
		return 1;
	FD_CLR(fd, set);
	return 0;
}

// choose waits as select does.
static int choose(int n, fd_set *r, fd_set *w, fd_set *e, int ms)
{
	nfds_t used;
	int count = 0;

	GUARD(1);
	struct pollfd *fds = list_of(n, r, w, e, &used);
	if (!fds)
		return fail(ENOMEM);
	int got = poll(fds, used, ms);
	for (nfds_t i = 0; got >= 0 && i < used; i++) // before a set is changed
		if (fds[i].revents & POLLNVAL)
			got = fail(EBADF);
	for (nfds_t i = 0; got >= 0 && i < used; i++) {
		int fd = fds[i].fd;
		short events = fds[i].revents;
		count += keep(fd, r, events, POLLIN | POLLHUP | POLLERR);
		count += keep(fd, w, events, POLLOUT | POLLHUP | POLLERR);
		count += keep(fd, e, events, POLLPRI);
	}
	free(fds);
	return got < 0 ? -1 : count;
}

int select(int n, fd_set *restrict r, fd_set *restrict w, fd_set *restrict e, struct timeval *restrict timeout)
{
	struct timespec t = {0};

	if (timeout && (timeout->tv_sec < 0 || timeout->tv_usec < 0))
		return fail(EINVAL);
	if (!any(n, r, w, e))
		return NEXT(select)(n, r, w, e, timeout);
	if (!timeout)
		return choose(n, r, w, e, -1);
	int64_t begun = now_ns();
	t = (struct timespec){timeout->tv_sec + timeout->tv_usec / 1000000, timeout->tv_usec % 1000000 * 1000};
	int got = choose(n, r, w, e, to_ms(&t));
	t = left_of(&t, begun);
	*timeout = (struct timeval){t.tv_sec, t.tv_nsec / 1000};
	return got;
}

int pselect(int n, fd_set *restrict r, fd_set *restrict w, fd_set *restrict e, const struct timespec *restrict timeout,
	    const sigset_t *restrict mask)
{
	struct masked m;

	if (is_wrong(timeout))
		return fail(EINVAL);
	if (!any(n, r, w, e))
		return NEXT(pselect)(n, r, w, e, timeout, mask);
	GUARD(1);
	if (mask_begin(mask, &m))
		return -1;
	int got = choose(n, r, w, e, to_ms(timeout));
	mask_end(&m);
	return got;
}
