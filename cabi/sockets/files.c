// The calls that sockets share with files: close, duplicates, fcntl, ioctl.
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "sockets.h"

int release(int rs)
{
	struct slot *s = own(rs);

	if (atomic_fetch_sub(&s->uses, 1) != 1)
		return 0;
	free(s->names);
	s->names = NULL;
	return rclose(rs);
}

int close(int fd)
{
	struct slot *s = slot_of(fd);

	if (s && of_vfork())
		return NEXT(close)(fd);
	GUARD(0);
	if (s) {
		forget(fd);
		link_leave(s);
	}
	int rs = s ? atomic_exchange(&s->rs, 0) - 1 : -1;
	if (rs < 0)
		return s && atomic_load(&s->uses) > 0 ? fail(EBADF) : NEXT(close)(fd);
	// The number of the rsocket stays in use until its last duplicate is closed.
	if (fd != rs)
		NEXT(close)(fd);
	return release(rs);
}

struct range {
	unsigned int first, last;
};

static void close_in_range(int fd, struct slot *s, void *arg)
{
	struct range *r = arg;

	if ((unsigned int)fd < r->first || (unsigned int)fd > r->last)
		return;
	if (atomic_load(&s->rs) || atomic_load(&s->link) || atomic_load(&s->ep))
		close(fd);
}

int close_range(unsigned int first, unsigned int last, int flags)
{
	struct range r = {first, last};

	if (of_vfork())
		return NEXT(close_range)(first, last, flags);
	if (!flags) { // else they close at exec, or invalid flags
		each_slot(close_in_range, &r);
		last = last_to_close(first, last);
	}
	return NEXT(close_range)(first, last, flags);
}

void closefrom(int first)
{
	struct range r = {first < 0 ? 0 : first, ~0U};

	if (of_vfork()) {
		NEXT(closefrom)(first);
		return;
	}
	each_slot(close_in_range, &r);
	NEXT(close_range)(r.first, last_to_close(r.first, ~0U), 0);
}

// duplicate makes a descriptor stand for the same rsocket as another.
static int duplicate(int old, int new)
{
	struct slot *s;
	int rs = now_of(old);

	GUARD(0);
	if (new < 0)
		return new;
	if (rs < 0)
		return link_share(old, new);
	if (new <= STDERR_FILENO) // for a program that this process will execute
		parent_tell(rs);
	if (!(s = make_slot(new))) {
		NEXT(close)(new);
		return fail(ENOMEM);
	}
	atomic_fetch_add(&own(rs)->uses, 1);
	atomic_store(&s->rs, rs + 1);
	return new;
}

int dup(int fd)
{
	int new = NEXT(dup)(fd);

	return of_vfork() ? new : duplicate(fd, new);
}

// replace closes what a descriptor stands for, so that a duplicate of old takes its place, unless it is the number of
// an rsocket that has duplicates: to reuse it is not possible, since the rsocket is known by it.
static int replace(int old, int fd)
{
	struct slot *s = slot_of(fd);

	if (NEXT(fcntl)(old, F_GETFD) < 0)
		return -1;
	if (s && atomic_load(&s->uses) > (rs_of(fd) == fd))
		return fail(EBUSY);
	if (rs_of(fd) >= 0)
		close(fd);
	else if (s) {
		forget(fd);
		link_leave(s);
	}
	return 0;
}

int dup2(int old, int new)
{
	if (old == new || of_vfork())
		return NEXT(dup2)(old, new);
	return replace(old, new) ? -1 : duplicate(old, NEXT(dup2)(old, new));
}

int dup3(int old, int new, int flags)
{
	if (old == new || flags & ~O_CLOEXEC)
		return fail(EINVAL);
	if (of_vfork())
		return NEXT(dup3)(old, new, flags);
	return replace(old, new) ? -1 : duplicate(old, NEXT(dup3)(old, new, flags));
}

static int set_flags(int rs, long flags)
{
	int nonblock = !!(flags & O_NONBLOCK);

	GUARD(0);
	int result = rfcntl(rs, F_SETFL, nonblock ? O_NONBLOCK : 0);

	if (result >= 0)
		atomic_store(&own(rs)->nonblock, nonblock);
	else
		parent_tell(rs);
	return result < 0 ? -1 : 0;
}

static int control(int fd, int cmd, long arg)
{
	int rs = rs_of(fd);

	switch (cmd) {
	case F_GETFL:
		return O_RDWR | (own(rs)->nonblock ? O_NONBLOCK : 0);
	case F_SETFL:
		return set_flags(rs, arg);
	case F_DUPFD:
	case F_DUPFD_CLOEXEC:
		return duplicate(fd, NEXT(fcntl)(fd, cmd, arg));
	}
	return NEXT(fcntl)(fd, cmd, arg); // the flags of the descriptor, and owners
}

int fcntl(int fd, int cmd, ...)
{
	va_list args;

	va_start(args, cmd);
	long arg = va_arg(args, long);
	va_end(args);
	if (ours(fd) && of_vfork())
		return NEXT(fcntl)(fd, cmd, arg);
	return now_of(fd) >= 0 || (ours(fd) && (cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC)) ? control(fd, cmd, arg) :
											     NEXT(fcntl)(fd, cmd, arg);
}

int fcntl64(int fd, int cmd, ...)
{
	va_list args;

	va_start(args, cmd);
	long arg = va_arg(args, long);
	va_end(args);
	return fcntl(fd, cmd, arg);
}

// available writes how many bytes can be received, at most 64 KiB.
static int available(int rs, int *n)
{
	enum { MOST = 64 << 10 };
	char *buf = malloc(MOST);
	struct iovec one = {buf, MOST};
	struct msghdr m = {.msg_iov = &one, .msg_iovlen = 1};
	int before = errno;

	GUARD(0);
	if (!buf)
		return fail(ENOMEM);
	ssize_t got = rrecvmsg(rs, &m, MSG_PEEK | MSG_DONTWAIT);
	free(buf);
	*n = got < 0 ? 0 : (int)got;
	if (got < 0 && errno != EAGAIN)
		return -1;
	errno = before;
	return 0;
}

int ioctl(int fd, unsigned long request, ...)
{
	va_list args;
	int rs = now_of(fd);

	va_start(args, request);
	void *arg = va_arg(args, void *);
	va_end(args);
	if (rs < 0 && ours(fd) && request == FIONREAD && (rs = io_of(fd, MSG_DONTWAIT)) == -2)
		return *(int *)arg = 0;
	if (rs < 0)
		return NEXT(ioctl)(fd, request, arg);
	switch (request) {
	case FIONBIO:
		return set_flags(rs, *(int *)arg ? O_NONBLOCK : 0);
	case FIONREAD:
		return available(rs, arg);
	}
	return NEXT(ioctl)(fd, request, arg);
}
