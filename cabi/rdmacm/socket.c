// Sockets: numbers, connections, names and options.
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#include "lib.h"
#include "socket.h"

enum { FD_LIMIT = 1 << 20, PAGE = 1024 };

// A socket's number is a descriptor, so that no other file of the program has it.
struct slot {
	void *_Atomic h; // NULL: no socket
	unsigned int gen;
};

const struct vrb_rs *rs_engine;

static const unsigned int *generation;
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static unsigned int loaded; // the generation of rs_engine; 0 for none
static struct slot *_Atomic pages[FD_LIMIT / PAGE];

static void after_fork(void) { pthread_mutex_init(&mu, NULL); }

int rs_load(void)
{
	static int hooked;
	int e = 0;

	pthread_mutex_lock(&mu);
	if (!loaded || loaded != *generation) {
		if (!hooked) {
			hooked = 1;
			pthread_atfork(NULL, NULL, after_fork);
		}
		const struct vrb_rs *table = verbena_table("verbena_rs", VERBENA_RS_ABI, &generation);
		if (table) {
			rs_engine = table;
			loaded = *generation;
		} else {
			e = errno;
		}
	}
	pthread_mutex_unlock(&mu);
	return e;
}

static struct slot *slot_of(int fd)
{
	struct slot *page = fd >= 0 && fd < FD_LIMIT ? atomic_load(&pages[fd / PAGE]) : NULL;

	return page ? &page[fd % PAGE] : NULL;
}

void *rs_handle(int fd)
{
	struct slot *s = slot_of(fd);

	if (!s)
		return NULL;
	void *h = atomic_load(&s->h); // once, since another thread may close the socket
	return h && s->gen == *generation ? h : NULL;
}

int rs_of_parent(int fd)
{
	struct slot *s = slot_of(fd);

	return s && atomic_load(&s->h) && s->gen != *generation;
}

int rs_missing(int fd) { return rs_of_parent(fd) ? EIO : EBADF; }

// number returns a number for a socket; -1 with errno set on failure. It is that of a socket of the kernel that has no
// connection, so that files of the process and other programs, which it executes, know what it is. A preloaded library
// may have another function socket.
static int number(void)
{
	int fd = syscall(SYS_socket, AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int e = fd < 0 ? errno : fd >= FD_LIMIT ? EMFILE : 0;

	pthread_mutex_lock(&mu);
	if (!e && !atomic_load(&pages[fd / PAGE])) {
		struct slot *page = calloc(PAGE, sizeof *page);
		if (page)
			atomic_store(&pages[fd / PAGE], page);
		else
			e = ENOMEM;
	}
	pthread_mutex_unlock(&mu);
	if (!e)
		return fd;
	if (fd >= 0)
		close(fd);
	return cm_result(e);
}

// give gives a number to the socket that a call has made, and returns it. If the call has failed, e is its errno.
static int give(int fd, int e, void *h)
{
	if (e) {
		close(fd);
		return cm_result(e);
	}
	pthread_mutex_lock(&mu);
	*slot_of(fd) = (struct slot){h, *generation};
	pthread_mutex_unlock(&mu);
	return fd;
}

// RS_CALL calls the engine with the socket of a number; rs_missing without one. The number is looked up once: another
// thread may close it at any time.
#define RS_CALL(fd, function, ...) \
	({ \
		void *socket_ = rs_handle(fd); \
		socket_ ? rs_engine->function(socket_, ##__VA_ARGS__) : rs_missing(fd); \
	})

int rsocket(int domain, int type, int protocol)
{
	void *h = NULL;
	int e = rs_load(), fd = e ? cm_result(e) : number();

	if (fd < 0)
		return -1;
	e = rs_engine->socket(domain, type, protocol, &h);
	return give(fd, e, h);
}

int rclose(int fd)
{
	struct slot *s = slot_of(fd);
	void *h = s ? atomic_exchange(&s->h, NULL) : NULL;

	if (!h)
		return cm_result(repoll_close(fd));
	int e = s->gen == *generation ? rs_engine->close(h) : 0;
	repoll_forget(fd);
	close(fd);
	return cm_result(e);
}

// known returns an address that the engine can read, NULL for another one.
static const struct sockaddr *known(const struct sockaddr *a, socklen_t n)
{
	return a && cm_addr_len(a) && n >= cm_addr_len(a) ? a : NULL;
}

int rbind(int fd, const struct sockaddr *a, socklen_t n)
{
	return cm_result(known(a, n) ? RS_CALL(fd, bind, a) : EINVAL);
}

int rlisten(int fd, int backlog) { return cm_result(RS_CALL(fd, listen, backlog)); }

int rconnect(int fd, const struct sockaddr *a, socklen_t n)
{
	int none = a && n >= sizeof a->sa_family && a->sa_family == AF_UNSPEC; // for datagrams

	return cm_result(none || known(a, n) ? RS_CALL(fd, connect, a) : EINVAL);
}

int rshutdown(int fd, int how) { return cm_result(RS_CALL(fd, shutdown, how)); }

// put copies an address to a program, cut to its room, and returns the whole length.
static void put(const struct sockaddr_storage *from, struct sockaddr *to, socklen_t *n)
{
	socklen_t whole = cm_addr_len((const struct sockaddr *)from);

	if (!to || !n)
		return;
	memcpy(to, from, *n < whole ? *n : whole);
	*n = whole;
}

// raccept has the number before the connection, which otherwise would be lost if there is no free descriptor.
int raccept(int fd, struct sockaddr *a, socklen_t *n)
{
	struct sockaddr_storage from = {0};
	void *h = NULL;
	int e = rs_handle(fd) ? 0 : rs_missing(fd), new = e ? cm_result(e) : number();

	if (new < 0)
		return -1;
	e = RS_CALL(fd, accept, &h, &from);
	if (!e)
		put(&from, a, n);
	return give(new, e, h);
}

static int name(int fd, int peer, struct sockaddr *a, socklen_t *n)
{
	struct sockaddr_storage from = {0};
	int e = RS_CALL(fd, name, peer, &from);

	if (!e)
		put(&from, a, n);
	return cm_result(e);
}

int rgetpeername(int fd, struct sockaddr *a, socklen_t *n) { return name(fd, 1, a, n); }
int rgetsockname(int fd, struct sockaddr *a, socklen_t *n) { return name(fd, 0, a, n); }

int rsetsockopt(int fd, int level, int option, const void *value, socklen_t n)
{
	return cm_result(RS_CALL(fd, set_option, level, option, value, value ? n : 0));
}

int rgetsockopt(int fd, int level, int option, void *value, socklen_t *n)
{
	if (!value || !n)
		return cm_result(EINVAL);
	void *h = rs_handle(fd);
	int64_t got = h ? rs_engine->option(h, level, option, value, *n) : -rs_missing(fd);
	if (got < 0)
		return cm_result(-got);
	*n = got;
	return 0;
}

int rfcntl(int fd, int cmd, ...)
{
	va_list args;

	va_start(args, cmd);
	long arg = cmd == F_SETFL || cmd == F_SETFD ? va_arg(args, int) : 0;
	va_end(args);
	void *h = rs_handle(fd);
	int64_t got = h ? rs_engine->fcntl(h, cmd, arg) : -rs_missing(fd);
	return got < 0 ? cm_result(-got) : (int)got;
}
