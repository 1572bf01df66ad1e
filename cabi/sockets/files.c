// The calls that sockets share with files: close, duplicates, fcntl, ioctl.
#define _GNU_SOURCE
#include <linux/sockios.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
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

// range is what is left to close of a range of descriptors. The kernel closes those up to leave. It does not close the
// number of a socket after this library has: a thread of the engine may have it by then.
struct range {
	unsigned int next, last, leave;
	int result;
};

// close_others closes the next descriptors up to a number, which are no sockets.
static void close_others(struct range *r, unsigned int to)
{
	unsigned int last = to < r->leave ? to : r->leave;

	if (r->next <= last && NEXT(close_range)(r->next, last, 0))
		r->result = -1;
}

// close_in_range closes a descriptor of this library, and those before it. Such are the numbers of rsockets of which
// duplicates are left, too: close leaves them.
static void close_in_range(int fd, struct slot *s, void *arg)
{
	struct range *r = arg;
	unsigned int at = fd;

	if (at < r->next || at > r->last)
		return;
	if (!atomic_load(&s->rs) && !atomic_load(&s->link) && !atomic_load(&s->ep) && atomic_load(&s->uses) <= 0)
		return;
	if (at > r->next)
		close_others(r, at - 1);
	close(fd);
	r->next = at + 1;
}

// close_all closes a range of descriptors.
static int close_all(unsigned int first, unsigned int last)
{
	struct range r = {first, last, last_to_close(first, last), 0};
	int e = errno;

	each_slot(close_in_range, &r);
	errno = e;
	close_others(&r, last);
	return r.result;
}

int close_range(unsigned int first, unsigned int last, int flags)
{
	// With flags they close at exec, or the flags are invalid.
	return of_vfork() || flags || first > last ? NEXT(close_range)(first, last, flags) : close_all(first, last);
}

void closefrom(int first)
{
	if (of_vfork())
		NEXT(closefrom)(first);
	else
		close_all(first < 0 ? 0 : first, ~0U);
}

// duplicate makes a descriptor stand for the same rsocket or instance of epoll as another.
static int duplicate(int old, int new)
{
	struct slot *s;
	int rs = now_of(old);

	GUARD(0);
	if (new < 0)
		return new;
	if (rs < 0) {
		epoll_share(old, new);
		return link_share(old, new);
	}
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
// an rsocket that has duplicates: to reuse it is not possible, since the rsocket is known by it. It checks before what
// the kernel would refuse.
static int replace(int old, int fd)
{
	struct slot *s = slot_of(fd);
	struct rlimit limit;

	if (NEXT(fcntl)(old, F_GETFD) < 0)
		return -1;
	if (fd < 0 || getrlimit(RLIMIT_NOFILE, &limit) || (rlim_t)fd >= limit.rlim_cur)
		return fail(EBADF);
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
	int result = rfcntl(rs, F_SETFL, O_NONBLOCK);

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
	}
	return NEXT(fcntl)(fd, cmd, arg); // the flags of the descriptor, and owners
}

int fcntl(int fd, int cmd, ...)
{
	va_list args;

	va_start(args, cmd);
	long arg = va_arg(args, long);
	va_end(args);
	int duplicates = cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC;
	if ((duplicates || ours(fd)) && of_vfork())
		return NEXT(fcntl)(fd, cmd, arg);
	if (duplicates)
		return duplicate(fd, NEXT(fcntl)(fd, cmd, arg));
	return now_of(fd) >= 0 ? control(fd, cmd, arg) : NEXT(fcntl)(fd, cmd, arg);
}

int fcntl64(int fd, int cmd, ...)
{
	va_list args;

	va_start(args, cmd);
	long arg = va_arg(args, long);
	va_end(args);
	return fcntl(fd, cmd, arg);
}

// lseek refuses sockets: the number of one stands for a descriptor that can seek.
off_t lseek(int fd, off_t offset, int whence)
{
	return ours(fd) ? fail(ESPIPE) : NEXT(lseek)(fd, offset, whence);
}

off64_t lseek64(int fd, off64_t offset, int whence)
{
	return ours(fd) ? fail(ESPIPE) : NEXT(lseek64)(fd, offset, whence);
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

// unacked writes how many bytes the peer has not acknowledged. A listening socket has none to tell of.
static int unacked(int rs, int *n)
{
	socklen_t length = sizeof *n;

	return listens(rs) ? fail(EINVAL) : rgetsockopt(rs, SOL_RDMA, RDMA_UNACKED, n, &length);
}

// of_interfaces is ioctl with a request about interfaces, for which any socket will do.
static int of_interfaces(int rs, unsigned long request, void *arg)
{
	int s = NEXT(socket)(own(rs)->domain, SOCK_DGRAM | SOCK_CLOEXEC, 0), e;

	if (s < 0)
		return -1;
	int result = NEXT(ioctl)(s, request, arg);
	e = errno;
	NEXT(close)(s);
	errno = e;
	return result;
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
	if ((request == FIONBIO || request == FIONREAD || request == TIOCOUTQ || request == SIOCOUTQNSD ||
	     request == SIOCATMARK) && !readable(arg, sizeof(int)))
		return fail(EFAULT);
	switch (request) {
	case FIONBIO:
		return set_flags(rs, *(int *)arg ? O_NONBLOCK : 0);
	case FIONREAD: // SIOCINQ
		return listens(rs) ? fail(EINVAL) : available(rs, arg);
	case TIOCOUTQ: // SIOCOUTQ
		return unacked(rs, arg);
	case SIOCOUTQNSD:
	case SIOCATMARK: // there is no urgent data, and nothing is held back
		return *(int *)arg = 0;
	}
	if (request >= SIOCGIFNAME && request <= SIOCGIFMAP)
		return of_interfaces(rs, request, arg);
	return NEXT(ioctl)(fd, request, arg);
}
