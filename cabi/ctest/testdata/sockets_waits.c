// Waits of a program of sockets that a signal or a cancellation must end, descriptors that stand for one socket, and
// calls that wait for all bytes.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#define FAILED 1
#include "check.h"
#include "pair.h"

enum { LIMIT_S = 20 };

static volatile sig_atomic_t signals;
static void on_signal(int sig) { signals++; }

// ENDED checks that a signal which is pending ends a call that unblocks it, and that it ends no other call.
#define ENDED(call) \
	do { \
		signals = 0; \
		CHECK(!raise(SIGUSR1) && !signals); \
		CHECK((call) == -1 && errno == EINTR && signals == 1); \
	} while (0)

static void masked(const int p[2])
{
	struct sigaction a = {.sa_handler = on_signal};
	struct timespec limit = {LIMIT_S, 0}, none = {0};
	int ep = epoll_create1(0), pipes[2];
	struct epoll_event e;
	sigset_t all, usr1;
	fd_set set;

	sigemptyset(&all);
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	CHECK(!sigaction(SIGUSR1, &a, NULL) && !pthread_sigmask(SIG_BLOCK, &usr1, NULL) && !pipe(pipes));
	int fds[] = {pipes[0], p[1]};
	for (int i = 0; i < 2; i++) { // a descriptor of the kernel, and a socket
		struct pollfd wait = {.fd = fds[i], .events = POLLIN};
		ENDED(ppoll(&wait, 1, &limit, &all));
		ENDED(ppoll(&wait, 1, &none, &all));
		CHECK(ppoll(&wait, 1, &none, &all) == 0 && signals == 1);
		FD_ZERO(&set);
		FD_SET(fds[i], &set);
		ENDED(pselect(fds[i] + 1, &set, NULL, NULL, &limit, &all));
		CHECK(!epoll_add(ep, fds[i], EPOLLIN));
		ENDED(epoll_pwait(ep, &e, 1, LIMIT_S * 1000, &all));
		CHECK(epoll_pwait(ep, &e, 1, 0, &all) == 0 && signals == 1);
	}
	// An instance that has had sockets.
	CHECK(!epoll_ctl(ep, EPOLL_CTL_DEL, p[1], NULL));
	ENDED(epoll_pwait(ep, &e, 1, LIMIT_S * 1000, &all));
	CHECK(!pthread_sigmask(SIG_UNBLOCK, &usr1, NULL) && !close(ep) && !close(pipes[0]) && !close(pipes[1]));
}

struct waiter {
	int fd;
	_Atomic pid_t thread;
};

static void *receives(void *arg)
{
	struct waiter *w = arg;
	char c;

	w->thread = gettid();
	recvfrom(w->fd, &c, 1, 0, NULL, NULL);
	return NULL;
}

static void *watches(void *arg)
{
	struct waiter *w = arg;
	struct epoll_event e;

	w->thread = gettid();
	epoll_wait(w->fd, &e, 1, -1);
	return NULL;
}

// asleep waits until a thread sleeps in the kernel, as it does in the call that waits.
static void asleep(struct waiter *w)
{
	char path[64], state = 0;

	while (!w->thread)
		sched_yield();
	snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)w->thread);
	for (int times = 0; times < 20; times += state == 'S') {
		FILE *f = fopen(path, "r");
		CHECK(f && fscanf(f, "%*d (%*[^)]) %c", &state) == 1 && !fclose(f));
		sched_yield();
	}
}

struct sender {
	struct waiter to;
	pthread_t thread;
	int fd;
	_Atomic int over;
};

// signals_sleeper sends a signal to a thread that sleeps, and a byte when that sleeps again. Without a socket it sends
// signals until the call has ended: the first may come before the call waits.
static void *signals_sleeper(void *arg)
{
	struct sender *s = arg;

	do {
		asleep(&s->to);
		CHECK(!pthread_kill(s->thread, SIGUSR1));
	} while (s->fd < 0 && !s->over);
	if (s->fd >= 0) {
		while (!signals)
			sched_yield();
		asleep(&s->to);
		CHECK(write(s->fd, "x", 1) == 1);
	}
	return NULL;
}

// SIGNALED is a call during which a signal comes, and then a byte by a socket, if that is not -1.
#define SIGNALED(socket, call) \
	do { \
		struct sender s_ = {{.thread = gettid()}, pthread_self(), socket, 0}; \
		pthread_t t_; \
		signals = 0; \
		CHECK(!pthread_create(&t_, NULL, signals_sleeper, &s_)); \
		CHECK(call); \
		s_.over = 1; \
		CHECK(!pthread_join(t_, NULL)); \
	} while (0)

#pragma GCC diagnostic ignored "-Wdeprecated-declarations" // of siginterrupt

// A handler with SA_RESTART ends no call that receives, but for a socket with a time-out, and those that only wait.
static void restarted(const int p[2])
{
	struct timeval limit = {.tv_sec = LIMIT_S};
	struct pollfd wait = {.fd = p[1], .events = POLLIN};
	int ep = epoll_create1(0);
	struct epoll_event e;
	char c;

	signal(SIGUSR1, on_signal);
	errno = 0;
	SIGNALED(p[0], read(p[1], &c, 1) == 1 && c == 'x' && !errno);
	SIGNALED(-1, poll(&wait, 1, LIMIT_S * 1000) == -1 && errno == EINTR);
	CHECK(!epoll_add(ep, p[1], EPOLLIN) && !epoll_ctl(ep, EPOLL_CTL_DEL, p[1], NULL) && epoll_wait(ep, &e, 1, 0) == 0);
	SIGNALED(-1, epoll_wait(ep, &e, 1, LIMIT_S * 1000) == -1 && errno == EINTR);
	CHECK(poll(&wait, 1, 0) == 0); // the signal ends one call
	CHECK(!siginterrupt(SIGUSR1, 1));
	SIGNALED(-1, read(p[1], &c, 1) == -1 && errno == EINTR);
	signal(SIGUSR1, on_signal); // siginterrupt holds for it too
	SIGNALED(-1, read(p[1], &c, 1) == -1 && errno == EINTR);
	CHECK(!siginterrupt(SIGUSR1, 0));
	SIGNALED(p[0], read(p[1], &c, 1) == 1);
	CHECK(!setsockopt(p[1], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
	SIGNALED(-1, read(p[1], &c, 1) == -1 && errno == EINTR);
	close(ep);
}

static volatile sig_atomic_t on_stack;

static void on_other_stack(int sig)
{
	stack_t now;

	on_stack = !sigaltstack(NULL, &now) && (now.ss_flags & SS_ONSTACK);
}

// The functions of System V install handlers too, which end calls and run on the alternate stack.
static void old_functions(const int p[2])
{
	char c;

	CHECK(sigset(SIGUSR1, on_signal) == SIG_DFL);
	SIGNALED(-1, read(p[1], &c, 1) == -1 && errno == EINTR);
	CHECK(sigset(SIGUSR1, SIG_HOLD) == on_signal && sigset(SIGUSR1, on_other_stack) == SIG_HOLD);
	CHECK(!raise(SIGUSR1) && on_stack && sigset(SIGUSR1, SIG_DFL) == on_other_stack);
	CHECK(sigset(0, on_signal) == SIG_ERR && errno == EINVAL);
	CHECK(ssignal(SIGUSR1, on_other_stack) == SIG_DFL);
	on_stack = 0;
	CHECK(!raise(SIGUSR1) && on_stack && ssignal(SIGUSR1, SIG_DFL) == on_other_stack);
}

static void cancelled(void *(*f)(void *), int fd)
{
	struct timespec end;
	struct waiter w = {.fd = fd};
	pthread_t t;
	void *result;

	CHECK(!pthread_create(&t, NULL, f, &w));
	asleep(&w);
	CHECK(!pthread_cancel(t) && !clock_gettime(CLOCK_REALTIME, &end));
	end.tv_sec += LIMIT_S;
	CHECK(!pthread_timedjoin_np(t, &result, &end) && result == PTHREAD_CANCELED);
}

static void cancellations(const int p[2])
{
	int ep = epoll_create1(0);

	cancelled(receives, p[1]);
	CHECK(!epoll_add(ep, p[1], EPOLLIN));
	cancelled(watches, ep);
	CHECK(!epoll_ctl(ep, EPOLL_CTL_DEL, p[1], NULL)); // the instance has no socket any more
	cancelled(watches, ep);
	close(ep);
}

// Two descriptors of a socket are in one instance, each for other events.
static void duplicates(const int p[2])
{
	struct epoll_event e[2];
	int ep = epoll_create1(0), other = dup(p[1]);

	CHECK(!epoll_add(ep, p[1], EPOLLOUT) && !epoll_add(ep, other, EPOLLIN));
	CHECK(epoll_wait(ep, e, 2, LIMIT_S * 1000) == 1 && e[0].data.fd == p[1] && e[0].events == EPOLLOUT);
	CHECK(write(p[0], "x", 1) == 1);
	struct pollfd wait = {.fd = p[1], .events = POLLIN};
	CHECK(poll(&wait, 1, LIMIT_S * 1000) == 1 && epoll_wait(ep, e, 2, LIMIT_S * 1000) == 2);
	close(ep), close(other);
}

// An instance that is closed with a range of descriptors is closed with its sockets: that with its number is a new one.
// The number is one that the engine does not use.
static void range(const int p[2])
{
	enum { HIGH = 900 };
	struct epoll_event e;
	int ep[] = {epoll_create1(0), epoll_create1(0)};

	CHECK(fcntl(ep[0], F_DUPFD, HIGH) == HIGH && !epoll_add(HIGH, p[1], EPOLLOUT) && !close_range(HIGH, HIGH, 0));
	CHECK(fcntl(HIGH, F_GETFD) == -1 && fcntl(ep[1], F_DUPFD, HIGH) == HIGH);
	CHECK(epoll_wait(HIGH, &e, 1, 0) == 0 && !epoll_add(HIGH, p[1], EPOLLOUT));
	CHECK(epoll_wait(HIGH, &e, 1, LIMIT_S * 1000) == 1 && !close(HIGH) && !close(ep[0]) && !close(ep[1]));
}

// The number of a socket is not closed before its last duplicate, as close does not.
static void number(int p[2])
{
	char c;
	int rs = p[1], other = dup(rs);

	CHECK(!close(rs) && !close_range(rs, rs, 0) && syscall(SYS_fcntl, rs, F_GETFD) >= 0);
	CHECK(write(p[0], "x", 1) == 1 && read(other, &c, 1) == 1 && c == 'x');
	p[1] = other;
}

// sends_rest sends when what has come is read.
static void *sends_rest(void *arg)
{
	const int *p = arg;
	int left = 1;

	while (left)
		CHECK(!ioctl(p[1], FIONREAD, &left) && !sched_yield());
	CHECK(write(p[0], "de", 2) == 2);
	return NULL;
}

// MSG_WAITALL fills all buffers of a message.
static void whole(int p[2])
{
	char got[2][3] = {0};
	struct iovec parts[] = {{got[0], 3}, {got[1], 2}};
	struct msghdr m = {.msg_iov = parts, .msg_iovlen = 2};
	struct pollfd wait = {.fd = p[1], .events = POLLIN};
	pthread_t t;

	CHECK(write(p[0], "abc", 3) == 3 && poll(&wait, 1, LIMIT_S * 1000) == 1);
	CHECK(!pthread_create(&t, NULL, sends_rest, p));
	CHECK(recvmsg(p[1], &m, MSG_WAITALL) == 5 && !memcmp(got, "abcde", 5) && m.msg_iovlen == 2 && parts[0].iov_len == 3);
	CHECK(!pthread_join(t, NULL));
}

// MSG_WAITALL does not join datagrams.
static void datagrams(void)
{
	struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof here;
	int to = socket(AF_INET, SOCK_DGRAM, 0), from = socket(AF_INET, SOCK_DGRAM, 0);
	char got[6];

	CHECK(!bind(to, (struct sockaddr *)&here, n) && !getsockname(to, (struct sockaddr *)&here, &n));
	for (int i = 0; i < 2; i++)
		CHECK(sendto(from, "abc", 3, 0, (struct sockaddr *)&here, n) == 3);
	for (int i = 0; i < 2; i++)
		CHECK(recv(to, got, sizeof got, MSG_WAITALL) == 3 && !memcmp(got, "abc", 3));
	close(to), close(from);
}

static int steals;

// raccept is called by the library. It takes a connection first, as another thread does that waits too.
int raccept(int fd, struct sockaddr *a, socklen_t *n)
{
	int (*real)(int, struct sockaddr *, socklen_t *) = dlsym(RTLD_NEXT, "raccept");

	if (steals)
		steals = 0, close(real(fd, NULL, NULL));
	return real(fd, a, n);
}

// A wait to accept has its time-out also if the connection that has ended it is gone.
static void stolen(void)
{
	struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct timeval limit = {.tv_usec = 1000}, none = {0};
	socklen_t n = sizeof here;
	int l = socket(AF_INET, SOCK_STREAM, 0), c = socket(AF_INET, SOCK_STREAM, 0), s;
	struct pollfd wait = {.fd = l, .events = POLLIN};

	CHECK(!bind(l, (struct sockaddr *)&here, n) && !listen(l, 1) && !getsockname(l, (struct sockaddr *)&here, &n));
	CHECK(!connect(c, (struct sockaddr *)&here, n) && poll(&wait, 1, LIMIT_S * 1000) == 1);
	CHECK(!setsockopt(l, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) && !(fcntl(l, F_GETFL) & O_NONBLOCK));
	steals = 1;
	alarm(LIMIT_S);
	CHECK(accept(l, NULL, NULL) == -1 && errno == EAGAIN && !steals);
	alarm(0);
	CHECK(!setsockopt(l, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none) && !fcntl(l, F_SETFL, 0) && !close(c));
	c = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(!connect(c, (struct sockaddr *)&here, n) && (s = accept(l, NULL, NULL)) >= 0 && !fcntl(s, F_GETFD));
	CHECK(!(fcntl(s, F_GETFL) & O_NONBLOCK) && !close(s) && !close(c) && !close(l));
}

// A server that stops itself before it answers anything.
struct server {
	pid_t child;
	struct sockaddr_in at;
};

static struct server stopped_server(void)
{
	struct server s = {.at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}};
	socklen_t n = sizeof s.at;
	int pipes[2], status;

	CHECK(!pipe(pipes) && (s.child = fork()) >= 0);
	if (!s.child) {
		int l = socket(AF_INET, SOCK_STREAM, 0);
		CHECK(!bind(l, (struct sockaddr *)&s.at, n) && !listen(l, 1) && !getsockname(l, (struct sockaddr *)&s.at, &n));
		CHECK(write(pipes[1], &s.at, sizeof s.at) == sizeof s.at && !raise(SIGSTOP));
		int fd = accept(l, NULL, NULL);
		CHECK(fd >= 0 && write(fd, "x", 1) == 1 && !close(fd));
		_exit(0);
	}
	CHECK(read(pipes[0], &s.at, sizeof s.at) == sizeof s.at && waitpid(s.child, &status, WUNTRACED) == s.child);
	CHECK(WIFSTOPPED(status) && !close(pipes[0]) && !close(pipes[1]));
	return s;
}

// finish ends a connection attempt: the server continues.
static void finish(const struct server *s, int fd)
{
	int status;
	char c;

	CHECK(!kill(s->child, SIGCONT));
	errno = 0;
	CHECK(!connect(fd, (const struct sockaddr *)&s->at, sizeof s->at) && !errno && read(fd, &c, 1) == 1 && c == 'x');
	CHECK(!close(fd) && waitpid(s->child, &status, 0) == s->child && !status);
}

// continues lets a server continue when a thread sleeps again after a signal.
static void *continues(void *arg)
{
	struct sender *s = arg;

	asleep(&s->to);
	CHECK(!pthread_kill(s->thread, SIGUSR1));
	while (!signals)
		sched_yield();
	asleep(&s->to);
	CHECK(!kill(s->fd, SIGCONT));
	return NULL;
}

// A connect that waits ends as in the kernel: with a handler of a signal, with SO_SNDTIMEO, or when it is connected.
static void connects(void)
{
	struct timeval limit = {.tv_usec = 20000};
	struct sigaction a = {.sa_handler = on_signal};
	struct server s = stopped_server();
	const struct sockaddr *at = (struct sockaddr *)&s.at;
	int fd = socket(AF_INET, SOCK_STREAM, 0), status;
	char c;

	CHECK(!sigaction(SIGUSR1, &a, NULL));
	SIGNALED(-1, connect(fd, at, sizeof s.at) == -1 && errno == EINTR);
	finish(&s, fd);

	s = stopped_server();
	fd = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(!setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit));
	CHECK(connect(fd, at, sizeof s.at) == -1 && errno == EINPROGRESS);
	limit = (struct timeval){0};
	CHECK(!setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit));
	finish(&s, fd);

	s = stopped_server();
	fd = socket(AF_INET, SOCK_STREAM, 0);
	signal(SIGUSR1, on_signal); // with SA_RESTART
	struct sender by = {{.thread = gettid()}, pthread_self(), s.child, 0};
	pthread_t t;
	signals = 0;
	CHECK(!pthread_create(&t, NULL, continues, &by) && !connect(fd, at, sizeof s.at) && !pthread_join(t, NULL));
	CHECK(signals == 1 && read(fd, &c, 1) == 1 && c == 'x' && !close(fd));
	CHECK(waitpid(s.child, &status, 0) == s.child && !status);
	fd = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(connect(fd, at, sizeof s.at) == -1 && errno == ECONNREFUSED && !close(fd)); // the server has ended
}

// recvmmsg waits for each message, unless a flag or the time-out says otherwise.
static void list(int p[2])
{
	char got[2][4] = {0};
	struct iovec parts[] = {{got[0], 3}, {got[1], 3}};
	struct mmsghdr m[] = {{.msg_hdr = {.msg_iov = &parts[0], .msg_iovlen = 1}},
			      {.msg_hdr = {.msg_iov = &parts[1], .msg_iovlen = 1}}};
	struct timespec limit = {LIMIT_S, 0}, tiny = {0, 1}, wrong = {0, 1000000000};
	pthread_t t;

	CHECK(write(p[0], "abc", 3) == 3 && recvmmsg(p[1], m, 2, 0, &wrong) == -1 && errno == EINVAL);
	CHECK(!pthread_create(&t, NULL, sends_rest, p));
	CHECK(recvmmsg(p[1], m, 2, 0, &limit) == 2 && !strcmp(got[0], "abc") && !strcmp(got[1], "de"));
	CHECK(m[0].msg_len == 3 && m[1].msg_len == 2 && limit.tv_sec < LIMIT_S && !pthread_join(t, NULL));
	CHECK(write(p[0], "abc", 3) == 3 && recvmmsg(p[1], m, 2, MSG_WAITFORONE, NULL) == 1);
	CHECK(write(p[0], "abc", 3) == 3 && recvmmsg(p[1], m, 2, 0, &tiny) == 1 && !tiny.tv_sec && !tiny.tv_nsec);
}

// select says how much of its time-out is left, and which descriptor is none.
static void remaining(int p[2])
{
	struct timeval whole = {LIMIT_S, 0}, small = {0, 20000};
	struct sender s = {{.thread = gettid()}, pthread_self(), -1, 0};
	pthread_t t;
	fd_set set, before;
	int other = dup(p[1]);

	FD_ZERO(&set);
	FD_SET(p[1], &set);
	before = set;
	CHECK(!select(p[1] + 1, &set, NULL, NULL, &small) && !small.tv_sec && !small.tv_usec && !FD_ISSET(p[1], &set));
	CHECK(write(p[0], "x", 1) == 1);
	CHECK(select(p[1] + 1, (set = before, &set), NULL, NULL, &whole) == 1 && FD_ISSET(p[1], &set));
	CHECK(whole.tv_sec == LIMIT_S - 1 && whole.tv_usec > 0);
	CHECK(read(p[1], &(char){0}, 1) == 1);
	whole = (struct timeval){LIMIT_S - 1, 1500000};
	struct sigaction a = {.sa_handler = on_signal};
	CHECK(!sigaction(SIGUSR1, &a, NULL) && !pthread_create(&t, NULL, signals_sleeper, &s));
	CHECK(select(p[1] + 1, (set = before, &set), NULL, NULL, &whole) == -1 && errno == EINTR);
	s.over = 1;
	CHECK(!pthread_join(t, NULL) && whole.tv_sec == LIMIT_S && whole.tv_usec < 500000);
	FD_SET(other, &set);
	CHECK(!close(other) && select(other + 1, &set, NULL, NULL, &small) == -1 && errno == EBADF);
	CHECK(FD_ISSET(p[1], &set) && FD_ISSET(other, &set));
}

// A dup2 or dup3 that fails leaves the socket open that it was to replace.
static void replaced(int p[2])
{
	enum { HIGH = 900 };
	struct rlimit limit, low;
	int pipes[2];
	char c;

	CHECK(!pipe(pipes) && fcntl(p[1], F_DUPFD, HIGH) == HIGH && !getrlimit(RLIMIT_NOFILE, &limit));
	low = limit;
	low.rlim_cur = HIGH;
	CHECK(!setrlimit(RLIMIT_NOFILE, &low));
	CHECK(dup2(pipes[0], HIGH) == -1 && errno == EBADF && dup3(pipes[0], HIGH, O_CLOEXEC) == -1 && errno == EBADF);
	CHECK(dup2(pipes[0], -1) == -1 && errno == EBADF);
	CHECK(!setrlimit(RLIMIT_NOFILE, &limit));
	CHECK(write(p[0], "x", 1) == 1 && read(HIGH, &c, 1) == 1 && c == 'x');
	CHECK(dup2(pipes[0], HIGH) == HIGH && write(pipes[1], "y", 1) == 1 && read(HIGH, &c, 1) == 1 && c == 'y');
	CHECK(!close(HIGH) && !close(pipes[0]) && !close(pipes[1]));
}

// turns checks that an instance of epoll tells a program that takes one event at a time of all descriptors.
static void turns(const int p[2])
{
	int ep = epoll_create1(0), ordinary = eventfd(1, 0), told[2] = {0};
	struct epoll_event e;

	CHECK(ordinary >= 0 && !epoll_add(ep, p[0], EPOLLOUT) && !epoll_add(ep, ordinary, EPOLLIN));
	for (int i = 0; i < 20; i++) {
		CHECK(epoll_wait(ep, &e, 1, LIMIT_S * 1000) == 1);
		told[e.data.fd == ordinary]++;
	}
	CHECK(told[0] > 4 && told[1] > 4);
	close(ep), close(ordinary);
}

static int64_t now_ns(void)
{
	struct timespec t;

	CHECK(!clock_gettime(CLOCK_MONOTONIC, &t));
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

// passes waits until a counter has passed a value, and returns whether it has in time.
static int passes(atomic_int *count, int value)
{
	int64_t end = now_ns() + INT64_C(1000000000) * LIMIT_S / 4;

	while (*count <= value && now_ns() < end)
		sched_yield();
	return *count > value;
}

// instance is one of epoll that threads share.
static struct {
	int ep, first, second;
	atomic_int firsts, seconds; // events
} instance;

static void *counts_edges(void *arg)
{
	struct epoll_event e;

	for (;;)
		if (epoll_wait(instance.ep, &e, 1, -1) == 1 && e.data.fd == instance.first)
			instance.firsts++;
	return NULL;
}

// edges checks that an event after data was read is told, also if it was read while another thread began to wait. That
// has many descriptors to look at before it sleeps.
static void edges(const int p[2])
{
	enum { MANY = 1000, TIMES = 300, PAUSE_NS = 60000 };
	int other[2];
	pthread_t t;
	char c;

	connected(other);
	instance.ep = epoll_create1(0);
	instance.first = p[1];
	for (int i = 0; i < MANY; i++)
		CHECK(!epoll_add(instance.ep, dup(other[0]), EPOLLIN | EPOLLET));
	CHECK(!fcntl(p[1], F_SETFL, O_NONBLOCK) && !epoll_add(instance.ep, p[1], EPOLLIN | EPOLLET));
	CHECK(!pthread_create(&t, NULL, counts_edges, NULL));
	for (int told = 0, i = 0; i < TIMES; i++) {
		CHECK(write(p[0], "x", 1) == 1 && passes(&instance.firsts, told));
		for (int64_t end = now_ns() + rand() % PAUSE_NS; now_ns() < end;)
			;
		while (read(p[1], &c, 1) == 1)
			told = instance.firsts;
		CHECK(errno == EAGAIN);
	}
}

static void again(int fd)
{
	struct epoll_event e = {.events = EPOLLIN | EPOLLONESHOT, .data.fd = fd};

	CHECK(!epoll_ctl(instance.ep, EPOLL_CTL_MOD, fd, &e));
}

// works reads what comes. With the second socket it is busy until another thread has read from the first one.
static void *works(void *arg)
{
	struct epoll_event e[2];
	char c;

	for (;;) {
		int n = epoll_wait(instance.ep, e, 2, -1), seconds = 0;
		for (int i = 0; i < n; i++) {
			CHECK(read(e[i].data.fd, &c, 1) == 1);
			if (e[i].data.fd == instance.first)
				instance.firsts++;
			else
				seconds++;
		}
		CHECK(!seconds || passes(&instance.firsts, instance.seconds));
		instance.seconds += seconds;
	}
	return NULL;
}

// team checks that a thread that waits learns of a change, although another thread that has waited is busy.
static void team(const int p[2])
{
	enum { TIMES = 200, PAUSE_US = 1500 };
	int q[2];
	pthread_t t;

	connected(q);
	instance.ep = epoll_create1(0);
	instance.first = p[1];
	instance.second = q[1];
	CHECK(!epoll_add(instance.ep, p[1], EPOLLONESHOT) && !epoll_add(instance.ep, q[1], EPOLLONESHOT));
	for (int i = 0; i < 2; i++)
		CHECK(!pthread_create(&t, NULL, works, NULL));
	for (int i = 0; i < TIMES; i++) {
		CHECK(write(p[0], "x", 1) == 1);
		again(q[1]);
		usleep(rand() % PAUSE_US);
		CHECK(write(q[0], "x", 1) == 1);
		again(p[1]);
		CHECK(passes(&instance.firsts, i) && passes(&instance.seconds, i));
	}
}

static void *has_event(void *arg)
{
	struct epoll_event e;

	instance.seconds++;
	CHECK(epoll_wait(instance.ep, &e, 1, -1) == 1);
	instance.firsts++;
	return NULL;
}

// early checks that threads which wait before an instance has sockets learn of these.
static void early(const int p[2])
{
	pthread_t t;
	int q[2];

	connected(q);
	instance.ep = epoll_create1(0);
	for (int i = 0; i < 2; i++)
		CHECK(!pthread_create(&t, NULL, has_event, NULL));
	CHECK(passes(&instance.seconds, 1) && !usleep(20000));
	CHECK(!epoll_add(instance.ep, p[1], EPOLLIN | EPOLLONESHOT));
	CHECK(!epoll_add(instance.ep, q[1], EPOLLIN | EPOLLONESHOT));
	CHECK(!usleep(5000) && write(p[0], "x", 1) == 1 && write(q[0], "x", 1) == 1 && passes(&instance.firsts, 1));
}

int main(int count, char **words)
{
	int p[2];

	CHECK(count == 2);
	connected(p);
	if (!strcmp(words[1], "masks"))
		masked(p);
	else if (!strcmp(words[1], "cancellations"))
		cancellations(p);
	else if (!strcmp(words[1], "duplicates"))
		duplicates(p);
	else if (!strcmp(words[1], "restarts"))
		restarted(p);
	else if (!strcmp(words[1], "old"))
		old_functions(p);
	else if (!strcmp(words[1], "range"))
		range(p), number(p);
	else if (!strcmp(words[1], "stolen"))
		stolen();
	else if (!strcmp(words[1], "connects"))
		connects();
	else if (!strcmp(words[1], "list"))
		list(p);
	else if (!strcmp(words[1], "remaining"))
		remaining(p);
	else if (!strcmp(words[1], "replaced"))
		replaced(p);
	else if (!strcmp(words[1], "turns"))
		turns(p);
	else if (!strcmp(words[1], "edges"))
		edges(p);
	else if (!strcmp(words[1], "early"))
		early(p);
	else if (!strcmp(words[1], "team"))
		team(p);
	else if (!strcmp(words[1], "whole"))
		whole(p);
	else
		datagrams();
	close(p[0]), close(p[1]);
	return 0;
}
