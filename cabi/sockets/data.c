// The calls that receive and send.
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <unistd.h>

#include "sockets.h"

// Flags that have no meaning for an rsocket: no signal is raised, and nothing is held back.
enum { IGNORED = MSG_NOSIGNAL | MSG_MORE | MSG_CMSG_CLOEXEC | MSG_CONFIRM | MSG_DONTROUTE };

static size_t length_of(const struct msghdr *m)
{
	size_t n = 0;

	for (size_t i = 0; i < m->msg_iovlen; i++)
		n += m->msg_iov[i].iov_len;
	return n;
}

// blocks reports whether a call may wait.
static int blocks(int rs, int flags) { return !(flags & MSG_DONTWAIT) && !own(rs)->nonblock; }

// scatter receives a datagram into all buffers of a message: rrecvmsg uses one, and does not tell what is lost.
static ssize_t scatter(int rs, struct msghdr *m, int flags)
{
	char whole[4096]; // more than a datagram has
	struct iovec one = {whole, sizeof whole};
	struct msghdr all = *m;
	size_t used = 0, part;

	all.msg_iov = &one;
	all.msg_iovlen = 1;
	ssize_t n = rrecvmsg(rs, &all, flags & ~MSG_TRUNC);
	if (n < 0)
		return -1;
	for (size_t i = 0; i < m->msg_iovlen; i++, used += part) {
		part = m->msg_iov[i].iov_len < n - used ? m->msg_iov[i].iov_len : n - used;
		if (put(m->msg_iov[i].iov_base, whole + used, part))
			return -1;
	}
	m->msg_namelen = all.msg_namelen;
	m->msg_flags = used < (size_t)n ? MSG_TRUNC : 0;
	return flags & MSG_TRUNC ? n : (ssize_t)used;
}

static ssize_t take_once(int rs, struct msghdr *m, int flags)
{
	int now = (flags & ~(IGNORED | MSG_WAITALL)) | MSG_DONTWAIT;

	for (;;) {
		ssize_t n = own(rs)->type == SOCK_DGRAM ? scatter(rs, m, now) : rrecvmsg(rs, m, now);
		if (n < 0 && errno == EIO)
			parent_tell(rs);
		if (n >= 0 || errno != EAGAIN || !blocks(rs, flags) || ready(rs, POLLIN, own(rs)->receive_ms))
			return n;
	}
}

enum { FEW = 8 };

// copy_of returns a copy of the buffers of a message, which is few if they fit; NULL without memory.
static struct iovec *copy_of(const struct msghdr *m, struct iovec few[FEW])
{
	struct iovec *copy = m->msg_iovlen > FEW ? malloc(m->msg_iovlen * sizeof *copy) : few;

	if (copy)
		memcpy(copy, m->msg_iov, m->msg_iovlen * sizeof *copy);
	return copy;
}

// skip removes n bytes from the beginning of a list of buffers.
static void skip(struct msghdr *m, size_t n)
{
	while (m->msg_iovlen && n >= m->msg_iov->iov_len) {
		n -= m->msg_iov->iov_len;
		m->msg_iov++;
		m->msg_iovlen--;
	}
	if (n) {
		m->msg_iov->iov_base = (char *)m->msg_iov->iov_base + n;
		m->msg_iov->iov_len -= n;
	}
}

// take_all fills the buffers of a message, unless the stream ends before.
static ssize_t take_all(int rs, struct msghdr *m, int flags)
{
	struct iovec few[FEW], *copy = copy_of(m, few);
	struct msghdr rest = *m;
	size_t all = length_of(m), got = 0;
	ssize_t n = 0;

	if (!copy)
		return fail(ENOMEM);
	for (rest.msg_iov = copy; got < all && (n = take_once(rs, &rest, flags)) > 0; got += n)
		skip(&rest, n);
	if (copy != few)
		free(copy);
	m->msg_namelen = rest.msg_namelen;
	m->msg_flags = rest.msg_flags;
	return got ? (ssize_t)got : n;
}

// done returns the result of a call. If the call has succeeded errno is as before, although it was EAGAIN during the
// wait: programs that see the end of a stream read it too.
static ssize_t done(ssize_t n, int before)
{
	if (n >= 0)
		errno = before;
	return n;
}

// take_datagram is take for one that may have ancillary data.
static ssize_t take_datagram(int rs, struct msghdr *m, int flags)
{
	struct sockaddr_storage from = {0};
	struct msghdr plain = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = m->msg_iov,
		.msg_iovlen = m->msg_iovlen};
	ssize_t n = take_once(rs, &plain, flags);
	int before = errno;

	if (n < 0)
		return -1;
	m->msg_flags = plain.msg_flags;
	m->msg_controllen = m->msg_controllen && pktinfo_wanted(rs) ?
				    pktinfo_tell(rs, &from, m->msg_control, m->msg_controllen, &m->msg_flags) : 0;
	errno = before;
	if (!m->msg_name)
		return m->msg_namelen = 0, n;
	if (put(m->msg_name, &from, m->msg_namelen < plain.msg_namelen ? m->msg_namelen : plain.msg_namelen))
		return -1;
	m->msg_namelen = plain.msg_namelen;
	return n;
}

// drop receives bytes of a stream that the program does not want (MSG_TRUNC). With MSG_PEEK it counts some of them.
static ssize_t drop(int rs, struct msghdr *m, int flags)
{
	char some[16 << 10];
	size_t all = length_of(m), got = 0;
	ssize_t n = 1;

	for (; got < all && n > 0 && !(got && flags & MSG_PEEK); got += n > 0 ? n : 0) {
		struct iovec one = {some, all - got < sizeof some ? all - got : sizeof some};
		struct msghdr part = {.msg_iov = &one, .msg_iovlen = 1};
		n = take_once(rs, &part, got && !(flags & MSG_WAITALL) ? flags | MSG_DONTWAIT : flags);
	}
	m->msg_namelen = m->msg_flags = 0;
	return got ? (ssize_t)got : n;
}

// whole returns how many bytes MSG_PEEK waits for with MSG_WAITALL: those of the first buffer, or what there is always
// room for.
static size_t whole(int rs, const struct msghdr *m)
{
	int room = 0;
	socklen_t n = sizeof room;
	size_t most = rgetsockopt(rs, SOL_SOCKET, SO_RCVBUF, &room, &n) ? 1 : room / 2;

	for (size_t i = 0; i < m->msg_iovlen; i++)
		if (m->msg_iov[i].iov_len)
			return m->msg_iov[i].iov_len < most ? m->msg_iov[i].iov_len : most;
	return 0;
}

// peek_all is take_once for MSG_PEEK with MSG_WAITALL. The first bytes raise an event, so it looks for more at times.
static ssize_t peek_all(int rs, struct msghdr *m, int flags)
{
	int64_t end = now_ms() + own(rs)->receive_ms;
	struct pollfd none = {.fd = -1};

	for (int over = 0;;) {
		ssize_t n = take_once(rs, m, flags);
		if (n <= 0 || (size_t)n >= whole(rs, m) || over)
			return n;
		over = has_now(rs, POLLRDHUP) || (own(rs)->receive_ms && now_ms() >= end) ||
		       (wait_for(&none, 1, 1) < 0 && !restarted());
	}
}

static ssize_t take_stream(int rs, struct msghdr *m, int flags)
{
	if (flags & MSG_TRUNC)
		return drop(rs, m, flags & ~MSG_TRUNC);
	if (!(flags & MSG_WAITALL) || !blocks(rs, flags))
		return take_once(rs, m, flags);
	return flags & MSG_PEEK ? peek_all(rs, m, flags) : take_all(rs, m, flags);
}

ssize_t take(int rs, struct msghdr *m, int flags)
{
	struct msghdr plain = *m;
	int before = errno;

	if ((flags & MSG_OOB) && own(rs)->type == SOCK_STREAM) // there is no urgent data
		return fail(EINVAL);
	if (flags & MSG_ERRQUEUE) // nothing enters that queue, and no call waits for it
		return fail(EAGAIN);
	if (own(rs)->type == SOCK_DGRAM) {
		ssize_t n = take_datagram(rs, m, flags);
		used_up(rs, POLLIN);
		return done(n, before);
	}
	plain.msg_name = NULL; // as in the kernel
	plain.msg_namelen = 0;
	plain.msg_control = NULL;
	plain.msg_controllen = 0;
	if (own_events(rs) & POLLIN) // after shutdown
		return 0;
	ssize_t n = take_stream(rs, &plain, flags);
	used_up(rs, POLLIN);
	if (n > 0 && !(flags & MSG_PEEK))
		atomic_fetch_add(&own(rs)->received, n);
	m->msg_namelen = plain.msg_namelen;
	m->msg_controllen = 0;
	m->msg_flags = plain.msg_flags;
	return done(n, before);
}

// give_all sends a message of a socket that blocks.
static ssize_t give_all(int rs, struct msghdr *m, int flags)
{
	size_t all = length_of(m), sent = 0;

	do {
		ssize_t n = rsendmsg(rs, m, flags);
		if (n >= 0) {
			sent += n;
			skip(m, n);
			continue;
		}
		if (errno == EIO)
			parent_tell(rs);
		if (errno != EAGAIN || ready(rs, POLLOUT, own(rs)->send_ms))
			return sent ? (ssize_t)sent : -1;
	} while (sent < all);
	return sent;
}

// given is the result of a call that sends. A stream without a reader raises SIGPIPE.
static ssize_t given(int rs, const struct msghdr *m, int flags, ssize_t n, int before)
{
	if (n > 0)
		atomic_fetch_add(&own(rs)->sent, n);
	if (n >= 0 || own(rs)->type != SOCK_STREAM || (errno != ENOTCONN && errno != ECONNRESET))
		return done(n, before);
	if (errno == ECONNRESET && !(own(rs)->shut & NO_WRITE)) {
		if (has_now(rs, POLLOUT) & POLLERR) // the connection has failed
			return fail(ECONNRESET);
		if (after_end(rs))
			return done(length_of(m), before);
	}
	if (!(flags & MSG_NOSIGNAL))
		pipe_signal();
	return fail(EPIPE);
}

ssize_t give(int rs, const struct msghdr *m, int flags)
{
	struct iovec few[FEW], *copy;
	struct msghdr plain = *m;
	int hard = (flags & ~IGNORED) | MSG_DONTWAIT, before = errno;

	if (m->msg_controllen && !readable(m->msg_control, m->msg_controllen))
		return fail(EFAULT);
	if (m->msg_controllen && (own(rs)->type == SOCK_STREAM || !pktinfo_only(m)))
		return fail(ENOTSUP);
	if (m->msg_namelen && !readable(m->msg_name, m->msg_namelen))
		return fail(EFAULT);
	if (own(rs)->type == SOCK_STREAM) // as in the kernel
		plain.msg_namelen = 0;
	plain.msg_control = NULL;
	plain.msg_controllen = 0;
	if (!blocks(rs, flags)) {
		ssize_t n = rsendmsg(rs, &plain, hard);
		if (n < 0 && errno == EIO)
			parent_tell(rs);
		if (n < 0 ? errno == EAGAIN : (size_t)n < length_of(m)) {
			int e = errno;
			used_up(rs, POLLOUT);
			errno = e;
		}
		return given(rs, m, flags, n, before);
	}
	if (!(copy = copy_of(m, few)))
		return fail(ENOMEM);
	plain.msg_iov = copy;
	ssize_t n = give_all(rs, &plain, hard);
	if (copy != few)
		free(copy);
	return given(rs, m, flags, n, before);
}

static ssize_t take_one(int rs, void *buf, size_t n, int flags)
{
	struct iovec one = {buf, n};
	struct msghdr m = {.msg_iov = &one, .msg_iovlen = 1};

	return take(rs, &m, flags);
}

static ssize_t give_one(int rs, const void *buf, size_t n, int flags)
{
	struct iovec one = {(void *)buf, n};
	struct msghdr m = {.msg_iov = &one, .msg_iovlen = 1};

	return give(rs, &m, flags);
}

// wrong_list returns the errno of a list of buffers that the kernel refuses, 0 for another one.
static int wrong_list(const struct iovec *iov, size_t n, int many)
{
	return n > UIO_MAXIOV ? many : readable(iov, n * sizeof *iov) ? 0 : EFAULT;
}

// wrong_message is wrong_list for a message.
static int wrong_message(const struct msghdr *m)
{
	return readable(m, sizeof *m) ? wrong_list(m->msg_iov, m->msg_iovlen, EMSGSIZE) : EFAULT;
}

static ssize_t take_message(int rs, struct msghdr *m, int flags)
{
	int e = wrong_message(m);

	return e ? fail(e) : take(rs, m, flags);
}

static ssize_t give_message(int rs, const struct msghdr *m, int flags)
{
	int e = wrong_message(m);

	return e ? fail(e) : give(rs, m, flags);
}

ssize_t recvmsg(int fd, struct msghdr *m, int flags)
{
	return SERVE(fd, flags, NEXT(recvmsg)(fd, m, flags), take_message(rs, m, flags));
}

ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
	return SERVE(fd, flags, NEXT(sendmsg)(fd, m, flags), give_message(rs, m, flags));
}

ssize_t recvfrom(int fd, void *restrict buf, size_t n, int flags, struct sockaddr *restrict a, socklen_t *restrict length)
{
	struct sockaddr_storage from;
	struct iovec one = {buf, n};
	struct msghdr m = {.msg_name = a ? &from : NULL, .msg_namelen = a ? sizeof from : 0, .msg_iov = &one,
		.msg_iovlen = 1};

	int rs = io_of(fd, flags);
	if (rs == -1)
		return NEXT(recvfrom)(fd, buf, n, flags, a, length);
	if (rs < 0)
		return -1;
	GUARD(1);
	ssize_t got = take(rs, &m, flags);
	if (got < 0 || !a)
		return got;
	if (!readable(length, sizeof *length))
		return fail(EFAULT);
	socklen_t room = *length;
	if ((int)room < 0)
		return fail(EINVAL);
	if (put(a, &from, room < m.msg_namelen ? room : m.msg_namelen))
		return -1;
	*length = m.msg_namelen;
	return got;
}

ssize_t sendto(int fd, const void *buf, size_t n, int flags, const struct sockaddr *a, socklen_t length)
{
	struct iovec one = {(void *)buf, n};
	struct msghdr m = {.msg_name = (void *)a, .msg_namelen = a ? length : 0, .msg_iov = &one, .msg_iovlen = 1};

	return SERVE(fd, flags, NEXT(sendto)(fd, buf, n, flags, a, length), give(rs, &m, flags));
}

ssize_t recv(int fd, void *buf, size_t n, int flags)
{
	return SERVE(fd, flags, NEXT(recv)(fd, buf, n, flags), take_one(rs, buf, n, flags));
}

ssize_t send(int fd, const void *buf, size_t n, int flags)
{
	return SERVE(fd, flags, NEXT(send)(fd, buf, n, flags), give_one(rs, buf, n, flags));
}

ssize_t read(int fd, void *buf, size_t n)
{
	return SERVE(fd, 0, NEXT(read)(fd, buf, n), take_one(rs, buf, n, 0));
}

ssize_t write(int fd, const void *buf, size_t n)
{
	return SERVE(fd, 0, NEXT(write)(fd, buf, n), give_one(rs, buf, n, 0));
}

ssize_t readv(int fd, const struct iovec *iov, int n)
{
	struct msghdr m = {.msg_iov = (struct iovec *)iov, .msg_iovlen = n};
	int e = 0;

	return SERVE(fd, 0, NEXT(readv)(fd, iov, n), (e = wrong_list(iov, n, EINVAL)) ? fail(e) : take(rs, &m, 0));
}

ssize_t writev(int fd, const struct iovec *iov, int n)
{
	struct msghdr m = {.msg_iov = (struct iovec *)iov, .msg_iovlen = n};
	int e = 0;

	return SERVE(fd, 0, NEXT(writev)(fd, iov, n), (e = wrong_list(iov, n, EINVAL)) ? fail(e) : give(rs, &m, 0));
}

// The time-out counts after a message only, as in the kernel.
int recvmmsg(int fd, struct mmsghdr *list, unsigned int n, int flags, struct timespec *timeout)
{
	unsigned int i;
	int rs = io_of(fd, flags), each = flags & ~MSG_WAITFORONE, over = 0;
	int64_t begun = now_ns();

	if (rs < 0)
		return rs == -1 ? NEXT(recvmmsg)(fd, list, n, flags, timeout) : -1;
	if ((timeout && !readable(timeout, sizeof *timeout)) || !readable(list, n * sizeof *list))
		return fail(EFAULT);
	if (timeout && (timeout->tv_sec < 0 || timeout->tv_nsec < 0 || timeout->tv_nsec >= SECOND))
		return fail(EINVAL);
	GUARD(1);
	struct timespec whole = timeout ? *timeout : (struct timespec){0};
	for (i = 0; i < n && !over; i++) {
		ssize_t got = take_message(rs, &list[i].msg_hdr, each);
		if (got < 0)
			return i ? (int)i : -1;
		list[i].msg_len = got;
		if (flags & MSG_WAITFORONE)
			each |= MSG_DONTWAIT;
		if (timeout) {
			*timeout = left_of(&whole, begun);
			over = !timeout->tv_sec && !timeout->tv_nsec;
		}
	}
	return i;
}

int sendmmsg(int fd, struct mmsghdr *list, unsigned int n, int flags)
{
	unsigned int i;
	int rs = io_of(fd, flags);

	if (rs < 0)
		return rs == -1 ? NEXT(sendmmsg)(fd, list, n, flags) : -1;
	if (!readable(list, n * sizeof *list))
		return fail(EFAULT);
	GUARD(1);
	for (i = 0; i < n; i++) {
		ssize_t sent = give_message(rs, &list[i].msg_hdr, flags);
		if (sent < 0)
			return i ? (int)i : -1;
		list[i].msg_len = sent;
	}
	return i;
}

// The names that a program has if it was built with _FORTIFY_SOURCE.
ssize_t __recv_chk(int fd, void *buf, size_t n, size_t room, int flags)
{
	return n > room ? (abort(), -1) : recv(fd, buf, n, flags);
}

ssize_t __recvfrom_chk(int fd, void *restrict buf, size_t n, size_t room, int flags, struct sockaddr *restrict a,
		       socklen_t *restrict length)
{
	return n > room ? (abort(), -1) : recvfrom(fd, buf, n, flags, a, length);
}

ssize_t __read_chk(int fd, void *buf, size_t n, size_t room) { return n > room ? (abort(), -1) : read(fd, buf, n); }

// piece sends a part of a file, and returns how many bytes.
static ssize_t piece(int rs, int in, off_t at, char *buf, size_t n)
{
	struct iovec one = {buf, n};
	struct msghdr m = {.msg_iov = &one, .msg_iovlen = 1};
	ssize_t got = pread(in, buf, n, at);

	one.iov_len = got;
	return got <= 0 ? got : give(rs, &m, 0);
}

ssize_t sendfile(int fd, int in, off_t *offset, size_t n)
{
	enum { PIECE = 128 << 10 };
	int rs = io_of(fd, 0);

	if (rs < 0)
		return rs == -1 ? NEXT(sendfile)(fd, in, offset, n) : -1;
	GUARD(1);
	if (offset && !readable(offset, sizeof *offset))
		return fail(EFAULT);
	off_t start = offset ? *offset : lseek(in, 0, SEEK_CUR);
	if (start < 0)
		return offset || errno == ESPIPE ? fail(EINVAL) : -1;
	char *buf = malloc(PIECE);
	if (!buf)
		return fail(ENOMEM);
	size_t sent = 0;
	ssize_t last = 0;
	while (sent < n) {
		size_t want = n - sent < PIECE ? n - sent : PIECE;
		last = piece(rs, in, start + sent, buf, want);
		if (last <= 0)
			break;
		sent += last;
		if ((size_t)last < want && own(rs)->nonblock)
			break;
	}
	free(buf);
	if (offset)
		*offset = start + sent;
	else
		lseek(in, start + sent, SEEK_SET);
	return sent || last >= 0 ? (ssize_t)sent : -1;
}

ssize_t sendfile64(int fd, int in, off64_t *offset, size_t n) { return sendfile(fd, in, (off_t *)offset, n); }

ssize_t splice(int in, off64_t *in_offset, int out, off64_t *out_offset, size_t n, unsigned int flags)
{
	if (ours(in) || ours(out))
		return fail(EINVAL); // programs copy then
	return NEXT(splice)(in, in_offset, out, out_offset, n, flags);
}
