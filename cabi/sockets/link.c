// Fork mode (RDMAV_FORK_SAFE): a stream is a TCP socket until the server's first I/O, so that a server may fork after
// accept, and its workers may share a listener. A link is such a TCP socket. handshake.c makes it an rsocket.
//
// The client's part of the handshake begins with connect: a server that waits for it holds up its other connections.
//
// The handshake has a thread of its own, since it takes as long as the peer does: a program with one thread may serve
// other connections meanwhile, or be both ends. Its result waits in the link until a call of the program on a
// descriptor of the link, which puts the rsocket in the place of the TCP socket.
#define _GNU_SOURCE
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/time.h>

#include "link.h"

// mu guards links, and the slots' pointers to them. A handler may fork while its thread has it.
static pthread_mutex_t mu = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static struct link *all;
static int on;

int links(void) { return on; }

// start_mode reads the variable as libibverbs does: anything but 0 sets it.
static void start_mode(void)
{
	const char *safe = getenv("RDMAV_FORK_SAFE");

	on = safe && strcmp(safe, "0");
}

static void before_fork(void) { pthread_mutex_lock(&mu); }
static void in_parent(void) { pthread_mutex_unlock(&mu); }

// in_child leaves the handshakes of the parent to the parent.
static void in_child(void)
{
	mu = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
	handshake_forget();
	for (struct link *l = all; l; l = l->next) {
		if (l->state != RUNNING)
			continue;
		l->state = LOST;
		l->uses--; // the thread is not here
		NEXT(close)(l->tcp);
		NEXT(close)(l->done);
		l->tcp = l->done = -1;
	}
}

__attribute__((constructor)) static void begin(void)
{
	start_mode();
	if (!on)
		return;
	pthread_atfork(before_fork, in_parent, in_child);
	inherit();
}

// drop ends one use of a link. mu is held.
static void drop(struct link *l)
{
	struct link **at = &all;

	// The program has closed the last descriptor during the handshake: that ends, since its TCP connection does.
	if (--l->uses == 1 && l->state == RUNNING)
		NEXT(shutdown)(l->tcp, SHUT_RDWR);
	if (l->uses)
		return;
	while (*at != l)
		at = &(*at)->next;
	*at = l->next;
	if (l->done >= 0)
		NEXT(close)(l->done);
	if (l->rs >= 0)
		release(l->rs);
	free(l->names);
	free(l);
}

// attach makes a slot one of a link, or of none. mu is held.
static void attach(struct slot *s, struct link *l)
{
	struct link *before = atomic_exchange(&s->link, l);

	if (l) {
		l->uses++;
		atomic_store(&s->was_link, 1);
	}
	if (before)
		drop(before);
}

static int new_link(int fd, enum state state)
{
	struct slot *s = make_slot(fd);
	struct link *l = s ? calloc(1, sizeof *l) : NULL;

	GUARD(0);
	if (!l) {
		NEXT(close)(fd);
		return fail(ENOMEM);
	}
	l->state = state;
	l->rs = l->done = l->tcp = -1;
	pthread_mutex_lock(&mu);
	l->next = all;
	all = l;
	attach(s, l);
	pthread_mutex_unlock(&mu);
	return fd;
}

int link_new(int fd) { return fd < 0 ? fd : new_link(fd, FRESH); }

void link_listens(int fd)
{
	struct slot *s = slot_of(fd);

	if (!s || !atomic_load(&s->link))
		return;
	pthread_mutex_lock(&mu);
	struct link *l = atomic_load(&s->link);
	if (l && l->state == FRESH)
		l->state = LISTENS;
	pthread_mutex_unlock(&mu);
}

int link_listens_at(int fd)
{
	struct slot *s = slot_of(fd);

	if (!s || !atomic_load(&s->link))
		return 0;
	pthread_mutex_lock(&mu);
	struct link *l = atomic_load(&s->link);
	int listens = l && l->state == LISTENS;
	pthread_mutex_unlock(&mu);
	return listens;
}

int link_accepted(int fd, int new) { return new >= 0 && link_listens_at(fd) ? new_link(new, PASSIVE) : new; }

int link_share(int old, int new)
{
	struct slot *from = slot_of(old), *to;

	if (!from || !atomic_load(&from->link))
		return new;
	if (!(to = make_slot(new))) {
		NEXT(close)(new);
		return fail(ENOMEM);
	}
	pthread_mutex_lock(&mu);
	attach(to, atomic_load(&from->link));
	pthread_mutex_unlock(&mu);
	return new;
}

void link_leave(struct slot *s)
{
	atomic_store(&s->was_link, 0);
	if (!atomic_load(&s->link))
		return;
	GUARD(0);
	pthread_mutex_lock(&mu);
	attach(s, NULL);
	pthread_mutex_unlock(&mu);
}

int read_names(int tcp, struct names *n)
{
	memset(n, 0, sizeof *n);
	n->local_length = n->peer_length = sizeof n->local;
	return !NEXT(getsockname)(tcp, (struct sockaddr *)&n->local, &n->local_length) &&
	       !NEXT(getpeername)(tcp, (struct sockaddr *)&n->peer, &n->peer_length);
}

// names_of returns the addresses of a TCP connection; NULL without memory or connection. The caller frees them.
static struct names *names_of(int tcp)
{
	struct names *n = malloc(sizeof *n);

	if (n && read_names(tcp, n))
		return n;
	free(n);
	return NULL;
}

static void *handshake(void *arg)
{
	struct link *l = arg;
	// A client may reset the TCP connection as soon as it has its rsocket, and a server is known once it has accepted.
	struct names *early = l->active ? NULL : names_of(l->tcp);
	int rs = l->active ? handshake_active(l->tcp) : handshake_passive(l->tcp);
	struct names *names = l->active ? names_of(l->tcp) : early;

	pthread_mutex_lock(&mu);
	free(l->names);
	l->names = names;
	l->rs = rs;
	// Without a connection the program may connect again.
	l->state = l->active && rs < 0 && is_tcp(l->tcp) == 1 ? FRESH : DONE;
	NEXT(close)(l->tcp);
	l->tcp = -1;
	eventfd_write(l->done, 1);
	drop(l);
	pthread_mutex_unlock(&mu);
	return NULL;
}

// run starts the thread of a handshake, which has no signals of the program.
static int run(struct link *l)
{
	enum { STACK = 256 << 10 };
	sigset_t every, before;
	pthread_attr_t attr;
	pthread_t thread;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, STACK);
	sigfillset(&every);
	pthread_sigmask(SIG_SETMASK, &every, &before);
	int e = pthread_create(&thread, &attr, handshake, l);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	return e;
}

// start starts the handshake of a link. Without descriptors, memory or a thread the connection
// stays TCP, and so does a descriptor that is no connection: a call that this library does not see has closed the TCP
// socket. mu is held.
static void start(struct link *l, int fd)
{
	eventfd_t count;

	if (l->done >= 0)
		eventfd_read(l->done, &count); // of an attempt to connect that failed
	else
		l->done = raise_fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	l->tcp = raise_fd(NEXT(fcntl)(fd, F_DUPFD_CLOEXEC, 0));
	l->state = RUNNING;
	l->uses++;
	if (l->done >= 0 && l->tcp >= 0 && is_tcp(l->tcp) && !run(l))
		return;
	if (l->tcp >= 0)
		NEXT(close)(l->tcp);
	l->tcp = -1;
	l->state = DONE;
	if (!l->active)
		tell_plain(fd);
	drop(l);
}

void link_connects(int fd)
{
	struct slot *s = slot_of(fd);
	int e = errno;

	if (!s || !atomic_load(&s->link))
		return;
	GUARD(0);
	pthread_mutex_lock(&mu);
	struct link *l = atomic_load(&s->link);
	if (l && l->state == FRESH) {
		l->active = 1;
		l->announced = 0;
		start(l, fd);
	}
	pthread_mutex_unlock(&mu);
	errno = e;
}

int link_ignores(int fd, int level, int name)
{
	struct slot *s = slot_of(fd);

	if (!s || !atomic_load(&s->link))
		return 0;
	return (level == IPPROTO_TCP && (name == TCP_DEFER_ACCEPT || name == TCP_FASTOPEN_CONNECT)) ||
	       (level == SOL_SOCKET && name == SO_OOBINLINE);
}

// copy_options gives an rsocket what the program has set of the TCP socket.
static void copy_options(int rs, int tcp)
{
	struct slot *s = own(rs);
	int value = 0;
	struct timeval t;
	socklen_t n = sizeof value;

	atomic_store(&s->nonblock, !!(NEXT(fcntl)(tcp, F_GETFL) & O_NONBLOCK));
	options_of_tcp(rs, tcp);
	if (!NEXT(getsockopt)(tcp, IPPROTO_TCP, TCP_NODELAY, &value, &n) && value)
		rsetsockopt(rs, IPPROTO_TCP, TCP_NODELAY, &value, sizeof value);
	n = sizeof value;
	if (!NEXT(getsockopt)(tcp, SOL_SOCKET, SO_KEEPALIVE, &value, &n) && value)
		rsetsockopt(rs, SOL_SOCKET, SO_KEEPALIVE, &value, sizeof value);
	n = sizeof t;
	if (!NEXT(getsockopt)(tcp, SOL_SOCKET, SO_RCVTIMEO, &t, &n))
		atomic_store(&s->receive_ms, milliseconds(&t, sizeof t));
	n = sizeof t;
	if (!NEXT(getsockopt)(tcp, SOL_SOCKET, SO_SNDTIMEO, &t, &n))
		atomic_store(&s->send_ms, milliseconds(&t, sizeof t));
}

// use_shutdown does what shutdown was asked for before the handshake had ended. mu is held.
static void use_shutdown(struct link *l, int fd)
{
	int how = l->shut - 1;

	if (l->shut && l->rs >= 0 && !rshutdown(l->rs, how))
		atomic_fetch_or(&own(l->rs)->shut, l->shut);
	else if (l->shut && l->rs < 0)
		NEXT(shutdown)(fd, how);
	l->shut = 0;
}

// resolve ends that a descriptor is a link whose handshake has ended. mu is held.
static int resolve(struct slot *s, struct link *l, int fd)
{
	int rs = l->rs;

	if (rs >= 0 && !l->used) {
		copy_options(rs, fd);
		own(rs)->names = l->names;
		atomic_store(&own(rs)->progress, CONNECTED);
		l->names = NULL;
		NEXT(shutdown)(fd, SHUT_RDWR); // the parent may have the TCP socket too
	}
	l->used = 1;
	use_shutdown(l, fd);
	if (rs >= 0) {
		int cloexec = NEXT(fcntl)(fd, F_GETFD) & FD_CLOEXEC;
		if (NEXT(dup3)(rs, fd, cloexec ? O_CLOEXEC : 0) < 0)
			return -2;
		atomic_fetch_add(&own(rs)->uses, 1);
		atomic_store(&s->rs, rs + 1);
	}
	attach(s, NULL);
	return rs;
}

int link_now(int fd)
{
	struct slot *s = slot_of(fd);

	GUARD(0);
	pthread_mutex_lock(&mu);
	struct link *l = atomic_load(&s->link);
	int e = errno, rs = l ? (l->state == DONE ? resolve(s, l, fd) : -1) : atomic_load(&s->rs) - 1;
	pthread_mutex_unlock(&mu);
	errno = e;
	return rs < 0 ? -1 : rs;
}

// look starts the handshake of a descriptor, if it is time. It returns what link_settle does, or -3 if done, which the
// caller may poll, will tell of the end.
static int look(int fd, int *done)
{
	struct slot *s = slot_of(fd);
	int result = -1;

	pthread_mutex_lock(&mu);
	struct link *l = atomic_load(&s->link);
	if (l && l->state == PASSIVE)
		start(l, fd);
	switch (l ? l->state : FRESH) {
	case DONE:
		result = resolve(s, l, fd);
		break;
	case LOST:
		result = -2;
		errno = EIO;
		break;
	case RUNNING:
		result = -3;
		*done = l->done;
		break;
	default:
		result = l ? -1 : atomic_load(&s->rs) - 1;
	}
	pthread_mutex_unlock(&mu);
	return result;
}

// uses notes that the program uses the connection of a client. Until then it is told as often as it asks that the
// connection is made, as with TCP: curl asks twice, and then sends by another connection.
static void uses(int fd)
{
	struct link *l;

	pthread_mutex_lock(&mu);
	if ((l = atomic_load(&slot_of(fd)->link)))
		l->announced = 1;
	pthread_mutex_unlock(&mu);
}

int link_settle(int fd, int flags)
{
	int done, e = errno;

	GUARD(1);
	for (;;) {
		int rs = look(fd, &done);
		if (rs != -3) {
			errno = rs == -2 ? errno : e;
			return rs;
		}
		uses(fd);
		if ((flags & MSG_DONTWAIT) || (NEXT(fcntl)(fd, F_GETFL) & O_NONBLOCK)) {
			errno = EAGAIN;
			return -2;
		}
		struct pollfd p = {.fd = done, .events = POLLIN};
		if (wait_for(&p, 1, -1) < 0 && !restarted())
			return -2;
	}
}

int link_shutdown(int fd, int how)
{
	struct slot *s = slot_of(fd);
	int result = 1;

	GUARD(0);
	if (how < SHUT_RD || how > SHUT_RDWR || !s || !atomic_load(&s->link))
		return 1;
	pthread_mutex_lock(&mu);
	struct link *l = atomic_load(&s->link);
	if (l && l->state == RUNNING) {
		l->shut |= how + 1;
		result = 0;
	} else if (l && l->state == PASSIVE) {
		l->state = DONE; // it stays TCP
		tell_plain(fd);
	}
	pthread_mutex_unlock(&mu);
	return result;
}

// connecting writes what to poll for a client that does not know yet whether its connection is made. It returns -1 if
// the attempt has failed, which the end of the handshake tells. mu is held.
static int connecting(struct link *l, int fd, struct pollfd *out)
{
	struct pollfd now = {.fd = fd, .events = POLLOUT};

	*out = now;
	if (NEXT(poll)(&now, 1, 0) != 1)
		return INSTEAD;
	if (now.revents == POLLOUT)
		return TOLD_NOW;
	l->announced = 1;
	return -1;
}

int link_poll(int fd, short events, struct pollfd *out)
{
	struct slot *s = slot_of(fd);
	int kind = AS_IS, done = -1;

	*out = (struct pollfd){.fd = fd, .events = events};
	if (!s || !ours(fd))
		return AS_IS;
	GUARD(0);
	pthread_mutex_lock(&mu);
	struct link *l = atomic_load(&s->link);
	if (l && l->state == RUNNING && l->active && !l->announced && (events & POLLOUT))
		kind = connecting(l, fd, out);
	pthread_mutex_unlock(&mu);
	if (kind == INSTEAD || kind == TOLD_NOW)
		return kind;
	int rs = atomic_load(&s->link) ? look(fd, &done) : rs_of(fd);
	if (rs == -3) {
		*out = (struct pollfd){.fd = done, .events = POLLIN};
		return INSTEAD;
	}
	*out = (struct pollfd){.fd = rs >= 0 ? rs : rs == -2 ? -1 : fd, .events = events};
	return rs == -2 ? DEAD : AS_IS;
}
