// repoll: instances that watch sockets and other descriptors, by level, as release 65 has them. Functions return a
// positive errno on failure, but repoll_create, which returns -1 with errno set.
#include <limits.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>

#include "lib.h"
#include "socket.h"

// An instance's number is an eventfd, which wakes those that wait when the list changes.
struct repoll {
	int fd;
	int uses; // one of the list of instances, one for each call that runs; under all_mu
	int closed;
	pthread_mutex_t mu; // guards fds, data, n, room
	struct pollfd *fds; // the first one is the instance's own
	epoll_data_t *data;
	size_t n, room;
	struct repoll *next;
};

static pthread_mutex_t all_mu = PTHREAD_MUTEX_INITIALIZER;
static struct repoll *all;

// after_fork runs in the child, in which no other thread holds a lock.
static void after_fork(void)
{
	pthread_mutex_init(&all_mu, NULL);
	for (struct repoll *r = all; r; r = r->next)
		pthread_mutex_init(&r->mu, NULL);
}

static void hook(void) { pthread_atfork(NULL, NULL, after_fork); }

// borrow returns the instance with a number; NULL for none. The caller drops it.
static struct repoll *borrow(int fd)
{
	struct repoll *r;

	pthread_mutex_lock(&all_mu);
	for (r = all; r && r->fd != fd; r = r->next)
		;
	if (r)
		r->uses++;
	pthread_mutex_unlock(&all_mu);
	return r;
}

// drop ends a use. The last one closes the number, so that no call that runs sees it as another descriptor.
static void drop(struct repoll *r)
{
	pthread_mutex_lock(&all_mu);
	int last = !--r->uses;
	pthread_mutex_unlock(&all_mu);
	if (!last)
		return;
	close(r->fd);
	pthread_mutex_destroy(&r->mu);
	free(r->fds);
	free(r->data);
	free(r);
}

// more makes room for one more descriptor. It returns 0 or an errno.
static int more(struct repoll *r)
{
	size_t room = r->room ? 2 * r->room : 16;

	if (r->n < r->room)
		return 0;
	struct pollfd *fds = realloc(r->fds, room * sizeof *fds);
	if (!fds)
		return ENOMEM;
	r->fds = fds;
	epoll_data_t *data = realloc(r->data, room * sizeof *data);
	if (!data)
		return ENOMEM;
	r->data = data;
	r->room = room;
	return 0;
}

int repoll_create(int flags)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct repoll *r = calloc(1, sizeof *r);

	if (!r || more(r)) {
		free(r);
		return cm_result(ENOMEM);
	}
	pthread_once(&once, hook);
	r->fd = eventfd(0, EFD_NONBLOCK | (flags & EPOLL_CLOEXEC ? EFD_CLOEXEC : 0));
	if (r->fd < 0) {
		int e = errno;
		free(r->fds);
		free(r->data);
		free(r);
		return cm_result(e);
	}
	pthread_mutex_init(&r->mu, NULL);
	r->fds[r->n++] = (struct pollfd){.fd = r->fd, .events = POLLIN};
	r->uses = 1;
	pthread_mutex_lock(&all_mu);
	r->next = all;
	all = r;
	pthread_mutex_unlock(&all_mu);
	return r->fd;
}

int repoll_close(int fd)
{
	struct repoll **at, *r;

	pthread_mutex_lock(&all_mu);
	for (at = &all; *at && (*at)->fd != fd; at = &(*at)->next)
		;
	r = *at;
	if (r) {
		*at = r->next;
		r->closed = 1;
	}
	pthread_mutex_unlock(&all_mu);
	if (!r)
		return EBADF;
	eventfd_write(fd, 1); // those that wait end
	drop(r);
	return 0;
}

enum { KNOWN = EPOLLIN | EPOLLOUT | EPOLLPRI | EPOLLERR | EPOLLHUP };

static int change(struct repoll *r, int op, int fd, const struct epoll_event *e)
{
	size_t i;

	for (i = 1; i < r->n && r->fds[i].fd != fd; i++)
		;
	if (op == EPOLL_CTL_ADD ? i < r->n : i == r->n)
		return op == EPOLL_CTL_ADD ? EEXIST : ENOENT;
	if (op == EPOLL_CTL_DEL) {
		r->fds[i] = r->fds[--r->n];
		r->data[i] = r->data[r->n];
		return 0;
	}
	if (op == EPOLL_CTL_ADD) {
		int full = more(r);
		if (full)
			return full;
		r->n++;
	}
	r->fds[i] = (struct pollfd){.fd = fd, .events = e->events & (POLLIN | POLLOUT | POLLPRI)};
	r->data[i] = e->data;
	return 0;
}

void repoll_forget(int fd)
{
	pthread_mutex_lock(&all_mu);
	for (struct repoll *r = all; r; r = r->next) {
		pthread_mutex_lock(&r->mu);
		if (!change(r, EPOLL_CTL_DEL, fd, NULL))
			eventfd_write(r->fd, 1); // those that wait have it in their lists
		pthread_mutex_unlock(&r->mu);
	}
	pthread_mutex_unlock(&all_mu);
}

int repoll_ctl(int epfd, int op, int fd, struct epoll_event *e)
{
	if (fd < 0)
		return EBADF;
	if (epfd == fd || (op != EPOLL_CTL_ADD && op != EPOLL_CTL_MOD && op != EPOLL_CTL_DEL))
		return EINVAL;
	if (op != EPOLL_CTL_DEL && (!e || e->events & ~(uint32_t)KNOWN)) // neither edges nor EPOLLONESHOT
		return EINVAL;
	struct repoll *r = borrow(epfd);
	if (!r)
		return EINVAL;
	pthread_mutex_lock(&r->mu);
	int error = change(r, op, fd, e);
	pthread_mutex_unlock(&r->mu);
	if (!error)
		eventfd_write(r->fd, 1);
	drop(r);
	return error;
}

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

// copy returns the list to poll, and who is told; NULL without memory.
static struct pollfd *copy(struct repoll *r, epoll_data_t **data, size_t *n)
{
	pthread_mutex_lock(&r->mu);
	struct pollfd *fds = malloc(r->n * (sizeof *fds + sizeof **data));
	if (fds) {
		*data = (epoll_data_t *)(fds + r->n);
		memcpy(fds, r->fds, r->n * sizeof *fds);
		memcpy(*data, r->data, r->n * sizeof **data);
		*n = r->n;
	}
	pthread_mutex_unlock(&r->mu);
	return fds;
}

// forget removes a descriptor that was closed, as epoll does: a wait would end at once, each time.
static void forget(struct repoll *r, int fd)
{
	pthread_mutex_lock(&r->mu);
	if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
		change(r, EPOLL_CTL_DEL, fd, NULL);
	pthread_mutex_unlock(&r->mu);
}

// once polls the list that is there. It returns the number of events, a negated errno for a failure.
static int once(struct repoll *r, struct epoll_event *out, int most, int timeout_ms)
{
	epoll_data_t *data;
	eventfd_t count;
	size_t n;
	struct pollfd *fds = copy(r, &data, &n);
	int got = 0;

	if (!fds)
		return -ENOMEM;
	if (rpoll(fds, n, timeout_ms) < 0)
		got = -errno;
	for (size_t i = 1; got >= 0 && i < n && got < most; i++) {
		if (fds[i].revents & KNOWN)
			out[got++] = (struct epoll_event){.events = fds[i].revents & KNOWN, .data = data[i]};
		if (fds[i].revents & POLLNVAL)
			forget(r, fds[i].fd);
	}
	if (!got && fds[0].revents)
		eventfd_read(r->fd, &count);
	free(fds);
	return got;
}

int repoll_wait(int epfd, struct epoll_event *out, int most, int timeout_ms)
{
	int64_t end = now_ms() + timeout_ms;

	if (!out || most <= 0)
		return EINVAL;
	struct repoll *r = borrow(epfd);
	if (!r)
		return EINVAL;
	for (;;) {
		int64_t left = end - now_ms();
		int got = once(r, out, most, timeout_ms < 0 ? -1 : left > 0 ? (int)left : 0);
		pthread_mutex_lock(&all_mu);
		int closed = r->closed;
		pthread_mutex_unlock(&all_mu);
		if (closed && !got) {
			eventfd_write(r->fd, 1); // for the next one that waits
			got = -EBADF;
		}
		if (got || (timeout_ms >= 0 && left <= 0)) {
			drop(r);
			return got < 0 ? -got : got;
		}
	}
}
