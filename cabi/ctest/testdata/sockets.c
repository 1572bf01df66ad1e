// A program of ordinary sockets, without a word about RDMA: each thing that it expects of TCP holds for rsockets.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>

#define FAILED 1
#include "check.h"

static struct sockaddr_in here;

static int listener(int flags)
{
	socklen_t n = sizeof here;
	int on = 1, l = socket(AF_INET, SOCK_STREAM | flags, 0);

	CHECK(l >= 0);
	CHECK(!setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
	here = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	CHECK(!bind(l, (struct sockaddr *)&here, n));
	CHECK(!listen(l, 16));
	CHECK(!getsockname(l, (struct sockaddr *)&here, &n) && here.sin_port);
	return l;
}

// connected makes a pair: pair[0] has connected, pair[1] was accepted with flags.
static void connected(int l, int pair[2], int flags)
{
	struct sockaddr_in from;
	socklen_t n = sizeof from;

	pair[0] = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(!connect(pair[0], (struct sockaddr *)&here, sizeof here));
	CHECK((pair[1] = accept4(l, (struct sockaddr *)&from, &n, flags)) >= 0);
	CHECK(n == sizeof from && from.sin_family == AF_INET && from.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
}

static void calls(int l)
{
	struct stat st;
	char buf[64];
	int p[2], n = -1, one = 1;
	struct iovec iov[2] = {{"ab", 2}, {"cd", 2}};
	socklen_t length = sizeof n;

	connected(l, p, SOCK_NONBLOCK);
	CHECK(!fstat(p[0], &st) && S_ISSOCK(st.st_mode));
	CHECK(!getsockopt(p[0], SOL_SOCKET, SO_TYPE, &n, &length) && n == SOCK_STREAM);
	CHECK(!setsockopt(p[0], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one));
	CHECK(!setsockopt(p[0], IPPROTO_TCP, TCP_CORK, &one, sizeof one));
	CHECK(fcntl(p[1], F_GETFL) == (O_RDWR | O_NONBLOCK) && fcntl(p[0], F_GETFL) == O_RDWR);
	CHECK(read(p[1], buf, sizeof buf) == -1 && errno == EAGAIN);
	CHECK(writev(p[0], iov, 2) == 4);
	struct pollfd wait = {.fd = p[1], .events = POLLIN};
	CHECK(poll(&wait, 1, 10000) == 1 && wait.revents == POLLIN);
	CHECK(!ioctl(p[1], FIONREAD, &n) && n == 4);
	CHECK(recv(p[1], buf, 2, MSG_PEEK) == 2 && !memcmp(buf, "ab", 2));
	CHECK(recv(p[1], buf, sizeof buf, 0) == 4 && !memcmp(buf, "abcd", 4));
	n = 0;
	CHECK(!ioctl(p[1], FIONBIO, &n) && fcntl(p[1], F_GETFL) == O_RDWR);
	// All of 4 bytes that come in two parts.
	CHECK(send(p[0], "12", 2, MSG_NOSIGNAL) == 2 && write(p[0], "34", 2) == 2);
	CHECK(recv(p[1], buf, 4, MSG_WAITALL) == 4 && !memcmp(buf, "1234", 4));
	struct timeval t = {0, 50000};
	CHECK(!setsockopt(p[1], SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
	CHECK(read(p[1], buf, 1) == -1 && errno == EAGAIN);
	CHECK(!shutdown(p[0], SHUT_WR) && read(p[1], buf, 1) == 0);
	CHECK(!close(p[0]) && !close(p[1]));
	CHECK(read(p[1], buf, 1) == -1 && errno == EBADF);
}

static void duplicates(int l)
{
	char c;
	int p[2], pipes[2];

	connected(l, p, SOCK_CLOEXEC);
	int other = dup(p[0]);
	CHECK(other >= 0 && other != p[0] && !close(p[0]));
	CHECK(close(p[0]) == -1 && errno == EBADF); // it has not become another descriptor
	CHECK(write(other, "x", 1) == 1 && read(p[1], &c, 1) == 1 && c == 'x');
	CHECK(!pipe(pipes));
	CHECK(dup2(other, pipes[0]) == pipes[0] && !close(other));
	CHECK(write(pipes[0], "y", 1) == 1 && read(p[1], &c, 1) == 1 && c == 'y');
	CHECK(!close(pipes[0]) && !close(pipes[1]));
	CHECK(read(p[1], &c, 1) == 0); // the last duplicate is closed
	CHECK(!close(p[1]));
}

// A program that writes before it reads does not wait for ever if the peer has closed the connection.
static void ended(int l)
{
	char buf[8];
	int p[2];

	connected(l, p, SOCK_NONBLOCK);
	CHECK(write(p[0], "last", 4) == 4 && !close(p[0]));
	struct pollfd wait = {.fd = p[1], .events = POLLOUT};
	do
		CHECK(poll(&wait, 1, 10000) == 1);
	while (send(p[1], "x", 1, MSG_NOSIGNAL) == 1);
	CHECK(errno == EPIPE);
	CHECK(read(p[1], buf, sizeof buf) == 4 && read(p[1], buf, sizeof buf) == 0);
	struct timeval t = {10, 0};
	fd_set w;
	FD_ZERO(&w);
	FD_SET(p[1], &w);
	CHECK(select(p[1] + 1, NULL, &w, NULL, &t) == 1 && FD_ISSET(p[1], &w));
	CHECK(!close(p[1]));
}

// Sockets in a range of descriptors are closed with it.
static void ranges(int l)
{
	int p[2], high = 900;
	char c;

	for (int i = 0; i < 2; i++) {
		connected(l, p, 0);
		CHECK(fcntl(p[0], F_DUPFD, high) == high && !close(p[0]));
		CHECK(write(high, "x", 1) == 1 && read(p[1], &c, 1) == 1);
		CHECK(!close_range(high, high, CLOSE_RANGE_CLOEXEC) && write(high, "x", 1) == 1);
		CHECK(read(p[1], &c, 1) == 1);
		if (i == 0)
			CHECK(!close_range(high, high + 10, 0));
		else
			closefrom(high);
		CHECK(read(p[1], &c, 1) == 0); // the last duplicate is closed
		CHECK(write(high, "x", 1) == -1 && errno == EBADF);
		CHECK(!close(p[1]));
	}
}

// Ordinary descriptors and sockets wait together.
static void mixed(int l)
{
	char c;
	int p[2], pipes[2];
	fd_set set;

	connected(l, p, 0);
	CHECK(!pipe(pipes));
	struct pollfd fds[2] = {{.fd = p[1], .events = POLLIN}, {.fd = pipes[0], .events = POLLIN}};
	CHECK(poll(fds, 2, 0) == 0);
	CHECK(write(pipes[1], "p", 1) == 1);
	CHECK(poll(fds, 2, 10000) == 1 && !fds[0].revents && fds[1].revents == POLLIN);
	CHECK(read(pipes[0], &c, 1) == 1 && write(p[0], "s", 1) == 1);
	int most = (p[1] > pipes[0] ? p[1] : pipes[0]) + 1;
	FD_ZERO(&set);
	FD_SET(p[1], &set);
	FD_SET(pipes[0], &set);
	CHECK(select(most, &set, NULL, NULL, NULL) == 1 && FD_ISSET(p[1], &set) && !FD_ISSET(pipes[0], &set));
	CHECK(read(p[1], &c, 1) == 1);
	close(p[0]), close(p[1]), close(pipes[0]), close(pipes[1]);
}

static int epoll_add(int ep, int fd, uint32_t events)
{
	struct epoll_event e = {.events = events, .data.fd = fd};

	return epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e);
}

static void levels(int l)
{
	struct epoll_event e[4];
	char c;
	int p[2], pipes[2], ep = epoll_create1(0);

	connected(l, p, 0);
	CHECK(!pipe(pipes) && !epoll_add(ep, pipes[0], EPOLLIN));
	CHECK(!epoll_add(ep, p[1], EPOLLIN) && epoll_add(ep, p[1], EPOLLIN) == -1 && errno == EEXIST);
	CHECK(epoll_wait(ep, e, 4, 0) == 0 && epoll_wait(ep, e, 4, 20) == 0);
	CHECK(write(p[0], "a", 1) == 1);
	for (int i = 0; i < 2; i++) // a level stays
		CHECK(epoll_wait(ep, e, 4, 10000) == 1 && e[0].data.fd == p[1] && e[0].events == EPOLLIN);
	CHECK(write(pipes[1], "b", 1) == 1 && epoll_wait(ep, e, 4, 10000) == 2);
	CHECK(read(p[1], &c, 1) == 1 && epoll_wait(ep, e, 4, 10000) == 1 && e[0].data.fd == pipes[0]);
	CHECK(read(pipes[0], &c, 1) == 1);
	struct epoll_event out = {.events = EPOLLOUT | EPOLLONESHOT, .data.fd = p[1]};
	CHECK(!epoll_ctl(ep, EPOLL_CTL_MOD, p[1], &out));
	CHECK(epoll_wait(ep, e, 4, 10000) == 1 && e[0].events == EPOLLOUT && epoll_wait(ep, e, 4, 0) == 0);
	CHECK(!epoll_ctl(ep, EPOLL_CTL_MOD, p[1], &out) && epoll_wait(ep, e, 4, 10000) == 1);
	CHECK(!epoll_ctl(ep, EPOLL_CTL_DEL, p[1], NULL) && epoll_ctl(ep, EPOLL_CTL_DEL, p[1], NULL) == -1);
	CHECK(!epoll_add(ep, p[1], EPOLLOUT));
	close(p[0]), close(p[1]); // which leaves the instance
	CHECK(epoll_wait(ep, e, 4, 0) == 0);
	close(ep), close(pipes[0]), close(pipes[1]);
}

static void edges(int l)
{
	struct epoll_event e[4];
	char buf[8];
	int p[2], ep = epoll_create1(EPOLL_CLOEXEC);

	connected(l, p, SOCK_NONBLOCK);
	CHECK(!epoll_add(ep, p[1], EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET));
	CHECK(epoll_wait(ep, e, 4, 10000) == 1 && e[0].events == EPOLLOUT);
	CHECK(epoll_wait(ep, e, 4, 0) == 0); // told once
	CHECK(write(p[0], "abcd", 4) == 4);
	CHECK(epoll_wait(ep, e, 4, 10000) == 1 && (e[0].events & EPOLLIN) && epoll_wait(ep, e, 4, 0) == 0);
	CHECK(read(p[1], buf, 8) == 4 && read(p[1], buf, 8) == -1 && errno == EAGAIN);
	CHECK(epoll_wait(ep, e, 4, 0) == 0 && write(p[0], "e", 1) == 1);
	CHECK(epoll_wait(ep, e, 4, 10000) == 1 && (e[0].events & EPOLLIN) && read(p[1], buf, 8) == 1);
	ssize_t n, sent = 0;
	int room;
	do {
		while ((n = write(p[1], buf, 8)) > 0)
			sent += n;
		CHECK(errno == EAGAIN);
		room = epoll_wait(ep, e, 4, 0); // by what has been sent since then
		CHECK(room == 0 || (room == 1 && e[0].events == EPOLLOUT));
	} while (room);
	for (; sent > 0; sent -= n)
		CHECK((n = read(p[0], buf, 8)) > 0);
	close(p[0]);
	do { // the end of the stream is an edge
		CHECK(epoll_wait(ep, e, 4, 10000) == 1);
		while ((n = read(p[1], buf, 8)) > 0)
			;
	} while (n);
	close(p[1]), close(ep);
}

// An instance is closed whose socket was removed before. The socket must not use it any more: its memory has an eventfd
// in place of what wakes the instance.
static void removed(int l)
{
	int p[2], ep = epoll_create1(0), fd = eventfd(0, EFD_NONBLOCK);
	char c;

	connected(l, p, SOCK_NONBLOCK);
	CHECK(!epoll_add(ep, p[1], EPOLLIN | EPOLLET) && !epoll_ctl(ep, EPOLL_CTL_DEL, p[1], NULL) && !close(ep));
	for (size_t n = 64; n <= 192; n += 16) {
		int *again = malloc(n);
		for (size_t i = 0; i < n / sizeof *again; i++)
			again[i] = fd;
	}
	CHECK(read(p[1], &c, 1) == -1 && errno == EAGAIN);
	eventfd_t count;
	CHECK(eventfd_read(fd, &count) == -1 && errno == EAGAIN);
	CHECK(epoll_add(-1, p[1], EPOLLIN) == -1 && errno == EBADF);
	close(p[0]), close(p[1]), close(fd);
}

// A duplicate takes the place of an instance that has sockets.
static void replaced(int l)
{
	struct epoll_event e;
	int p[2], pipes[2], ep = epoll_create1(0);

	connected(l, p, 0);
	CHECK(dup2(9999, p[0]) == -1 && errno == EBADF && dup3(p[1], p[0], O_NONBLOCK) == -1 && errno == EINVAL);
	CHECK(fcntl(p[0], F_GETFL) == O_RDWR && write(p[0], "x", 1) == 1);
	CHECK(!pipe(pipes) && !epoll_add(ep, p[1], EPOLLIN) && epoll_wait(ep, &e, 1, 10000) == 1);
	CHECK(dup2(pipes[0], ep) == ep && epoll_wait(ep, &e, 1, 0) == -1 && errno == EINVAL);
	close(p[0]), close(p[1]), close(ep), close(pipes[0]), close(pipes[1]);
}

struct job {
	int ep, fd;
};

static void *add_later(void *arg)
{
	struct job *j = arg;

	usleep(50000);
	CHECK(!epoll_add(j->ep, j->fd, EPOLLOUT));
	return NULL;
}

// A socket that a thread adds ends the wait of another.
static void later(int l)
{
	struct epoll_event e;
	int p[2], ep = epoll_create1(0);
	pthread_t t;

	connected(l, p, 0);
	for (int i = 0; i < 2; i++) { // the first and a second socket of the instance
		struct job j = {ep, p[i]};
		CHECK(!pthread_create(&t, NULL, add_later, &j));
		CHECK(epoll_wait(ep, &e, 1, 60000) == 1 && e.events == EPOLLOUT && e.data.fd == p[i]);
		pthread_join(t, NULL);
		struct epoll_event none = {.events = 0, .data.fd = p[i]};
		CHECK(!epoll_ctl(ep, EPOLL_CTL_MOD, p[i], &none));
	}
	close(p[0]), close(p[1]), close(ep);
}

struct meeting {
	int ep, fd, pipe;
};

static void *add_and_write(void *arg)
{
	struct meeting *m = arg;

	usleep(2000);
	CHECK(!epoll_add(m->ep, m->fd, EPOLLIN) && write(m->pipe, "x", 1) == 1);
	return NULL;
}

// The first socket of an instance and an event of another descriptor come while a thread waits. On one processor the
// wait mostly ends with both.
static void together(int l)
{
	struct epoll_event e[4];
	cpu_set_t before, one;
	int p[2], pipes[2];
	pthread_t t;

	CHECK(!sched_getaffinity(0, sizeof before, &before));
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	sched_setaffinity(0, sizeof one, &one);
	connected(l, p, 0);
	for (int i = 0; i < 50; i++) {
		int ep = epoll_create1(0);
		CHECK(!pipe(pipes) && !epoll_add(ep, pipes[0], EPOLLIN));
		struct meeting m = {ep, p[0], pipes[1]};
		CHECK(!pthread_create(&t, NULL, add_and_write, &m));
		CHECK(epoll_wait(ep, e, 4, -1) == 1 && e[0].data.fd == pipes[0]);
		CHECK(!pthread_join(t, NULL) && !close(ep) && !close(pipes[0]) && !close(pipes[1]));
	}
	CHECK(!sched_setaffinity(0, sizeof before, &before));
	close(p[0]), close(p[1]);
}

static volatile sig_atomic_t alarms;
static void on_alarm(int sig) { alarms++; }

// INTERRUPTED checks that a signal ends a call. The timer repeats it: on a busy machine the first may come before the
// call.
#define INTERRUPTED(call) \
	do { \
		struct itimerval in = {{.tv_usec = 100000}, {.tv_usec = 100000}}, off = {0}; \
		alarms = 0; \
		setitimer(ITIMER_REAL, &in, NULL); \
		CHECK((call) == -1 && errno == EINTR && alarms > 0); \
		setitimer(ITIMER_REAL, &off, NULL); \
	} while (0)

// A handler ends each call that waits.
static void interrupted(int l)
{
	struct sigaction a = {.sa_handler = on_alarm}, old;
	struct epoll_event e;
	char c;
	int p[2], ep = epoll_create1(0);

	CHECK(!sigaction(SIGALRM, &a, NULL) && !sigaction(SIGALRM, NULL, &old) && old.sa_handler == on_alarm);
	connected(l, p, 0);
	CHECK(!epoll_add(ep, p[1], EPOLLIN));
	struct pollfd wait = {.fd = p[1], .events = POLLIN};
	INTERRUPTED(poll(&wait, 1, -1));
	INTERRUPTED(epoll_wait(ep, &e, 1, -1));
	INTERRUPTED(read(p[1], &c, 1));
	INTERRUPTED(accept(l, NULL, NULL));
	close(p[0]), close(p[1]), close(ep);
}

// again installs a handler, itself, as handlers may.
static void again(int sig)
{
	alarms++;
	signal(SIGALRM, again);
}

// A handler that installs one interrupts the installation of another.
static void installed(void)
{
	struct itimerval often = {{.tv_usec = 100}, {.tv_usec = 100}}, off = {0};

	alarms = 0;
	signal(SIGALRM, again);
	setitimer(ITIMER_REAL, &often, NULL);
	while (alarms < 2000)
		signal(SIGUSR1, on_alarm);
	setitimer(ITIMER_REAL, &off, NULL);
	signal(SIGALRM, SIG_DFL);
}

static void *urge(void *thread)
{
	usleep(50000);
	CHECK(!pthread_kill(*(pthread_t *)thread, SIGURG));
	return NULL;
}

// The engine's own signals end no wait, in a child neither.
static void urged(int s)
{
	struct pollfd wait = {.fd = s, .events = POLLIN};
	pthread_t t, self = pthread_self();

	CHECK(!pthread_create(&t, NULL, urge, &self));
	CHECK(poll(&wait, 1, 200) == 0 && !pthread_join(t, NULL));
}

// A child's signals do not end the waits of its parent.
static void inherited(int l)
{
	struct sigaction a = {.sa_handler = on_alarm};
	int p[2], status;

	connected(l, p, 0);
	struct pollfd wait = {.fd = p[1], .events = POLLIN};
	urged(p[1]);
	pid_t child = fork();
	if (!child) {
		wait.fd = socket(AF_INET, SOCK_STREAM, 0);
		CHECK(wait.fd >= 0 && !listen(wait.fd, 1) && !sigaction(SIGALRM, &a, NULL));
		urged(wait.fd);
		for (int i = 0; i < 5; i++)
			INTERRUPTED(poll(&wait, 1, -1));
		_exit(0);
	}
	while (!waitpid(child, &status, WNOHANG))
		CHECK(poll(&wait, 1, 20) == 0);
	CHECK(status == 0);
	close(p[0]), close(p[1]);
}

static atomic_int enough;

// busy uses a socket that an instance watches, and installs handlers.
static void *busy(void *fd)
{
	char c;

	while (!atomic_load(&enough)) {
		CHECK(read((int)(intptr_t)fd, &c, 1) == -1 && errno == EAGAIN);
		signal(SIGUSR1, on_alarm);
	}
	return NULL;
}

// A child closes its copies of the sockets, whatever the threads of its parent did when it was made.
static void forked(int l)
{
	int p[2], status, ep = epoll_create1(0);
	pthread_t t;

	connected(l, p, SOCK_NONBLOCK);
	CHECK(!epoll_add(ep, p[1], EPOLLIN | EPOLLET));
	CHECK(!pthread_create(&t, NULL, busy, (void *)(intptr_t)p[1]));
	for (int i = 0; i < 100; i++) {
		pid_t child = fork();
		if (!child) {
			signal(SIGALRM, SIG_DFL);
			alarm(20);
			_exit(close(p[0]) || close(p[1]) || close(ep));
		}
		CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
	}
	atomic_store(&enough, 1);
	CHECK(!pthread_join(t, NULL));
	close(p[0]), close(p[1]), close(ep);
}

// A child cannot use a socket of its parent, and does not wait for it.
static void of_parent(int l)
{
	int p[2], status, ep = epoll_create1(0);
	struct epoll_event e;
	char c;
	fd_set set;

	connected(l, p, 0);
	CHECK(!epoll_add(ep, p[1], EPOLLIN));
	pid_t child = fork();
	if (!child) {
		struct pollfd wait = {.fd = p[1], .events = POLLIN};
		signal(SIGALRM, SIG_DFL);
		alarm(60);
		CHECK(poll(&wait, 1, -1) == 1 && (wait.revents & POLLERR));
		FD_ZERO(&set);
		FD_SET(p[1], &set);
		CHECK(select(p[1] + 1, &set, NULL, NULL, NULL) == 1 && FD_ISSET(p[1], &set));
		CHECK(epoll_wait(ep, &e, 1, -1) == 1 && (e.events & EPOLLERR));
		CHECK(read(p[1], &c, 1) == -1 && errno == EIO && write(p[1], "x", 1) == -1 && errno == EIO);
		_exit(0);
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
	CHECK(write(p[0], "x", 1) == 1 && read(p[1], &c, 1) == 1); // the parent can
	close(p[0]), close(p[1]), close(ep);
}

// A child of vfork has the memory of its parent, and descriptors of its own, which it closes before exec, as Python's
// subprocess does.
static void vforked(int l)
{
	int p[2], status;
	char c;

	connected(l, p, 0);
	pid_t child = vfork();
	if (!child) {
		close(p[0]);
		dup2(p[1], 100);
		dup2(STDERR_FILENO, p[1]);
		close_range(3, ~0U, 0);
		closefrom(3);
		_exit(0);
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
	CHECK(write(p[0], "x", 1) == 1 && read(p[1], &c, 1) == 1 && fcntl(100, F_GETFD) == -1);
	close(p[0]), close(p[1]);
}

static volatile pid_t by_handler;
static volatile int talks;

// fork_once forks. The first child returns, the second one makes sockets of its own before.
static void fork_once(int sig)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof a;
	char c;

	if (by_handler || (by_handler = fork()))
		return;
	signal(SIGALRM, SIG_DFL);
	alarm(60);
	if (!talks)
		return;
	int own = socket(AF_INET, SOCK_STREAM, 0), from = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(!bind(own, (struct sockaddr *)&a, n) && !listen(own, 1) && !getsockname(own, (struct sockaddr *)&a, &n));
	CHECK(!connect(from, (struct sockaddr *)&a, n));
	int to = accept(own, NULL, NULL);
	CHECK(to >= 0 && write(from, "x", 1) == 1 && read(to, &c, 1) == 1 && c == 'x');
	close(from), close(to), close(own);
}

// A handler that forks has interrupted a thread that waits in the engine. The engine is not in the child.
static void forked_by_handler(int l)
{
	struct sigaction a = {.sa_handler = fork_once};
	struct itimerval often = {{.tv_usec = 100000}, {.tv_usec = 100000}}, off = {0};
	pid_t self = getpid();
	int p[2], status;
	char c;

	CHECK(!sigaction(SIGALRM, &a, NULL));
	connected(l, p, 0);
	for (talks = 0; talks < 2; talks++) {
		by_handler = 0;
		setitimer(ITIMER_REAL, &often, NULL);
		CHECK(read(p[1], &c, 1) == -1 && errno == EINTR);
		if (getpid() != self)
			_exit(!(read(p[1], &c, 1) == -1 && errno == EIO));
		setitimer(ITIMER_REAL, &off, NULL);
		CHECK(by_handler > 0 && waitpid(by_handler, &status, 0) == by_handler && status == 0);
	}
	CHECK(write(p[0], "x", 1) == 1 && read(p[1], &c, 1) == 1);
	signal(SIGALRM, SIG_DFL);
	close(p[0]), close(p[1]);
}

// A time-out that is wrong is not an endless one.
static void timeouts(int l)
{
	struct timeval t = {-1, 0};
	struct timespec s = {-1, 0};
	struct pollfd wait = {.fd = l, .events = POLLIN};
	struct epoll_event e;
	int ep = epoll_create1(0);
	fd_set set;

	FD_ZERO(&set);
	FD_SET(l, &set);
	alarm(20);
	signal(SIGALRM, on_alarm);
	CHECK(!epoll_add(ep, l, EPOLLIN));
	CHECK(select(l + 1, &set, NULL, NULL, &t) == -1 && errno == EINVAL);
	CHECK(pselect(l + 1, &set, NULL, NULL, &s, NULL) == -1 && errno == EINVAL);
	CHECK(ppoll(&wait, 1, &s, NULL) == -1 && errno == EINVAL);
	CHECK(epoll_pwait2(ep, &e, 1, &s, NULL) == -1 && errno == EINVAL);
	alarm(0);
	close(ep);
}

static void *drain(void *arg)
{
	int fd = *(int *)arg;
	size_t *sum = calloc(1, sizeof *sum);
	unsigned char buf[5000];
	ssize_t n;

	while ((n = read(fd, buf, sizeof buf)) > 0)
		for (ssize_t i = 0; i < n; i++)
			*sum = *sum * 31 + buf[i];
	CHECK(n == 0);
	return sum;
}

static void files(int l)
{
	enum { SIZE = 3000000 };
	unsigned char *data = malloc(SIZE);
	char name[] = "/tmp/verbena-sockets-XXXXXX";
	int p[2], f = mkstemp(name);
	size_t want = 0;
	void *got;
	off_t at = 1000;
	pthread_t t;

	CHECK(f >= 0 && !unlink(name));
	for (int i = 0; i < SIZE; i++)
		data[i] = i * 7 + i / 1000;
	CHECK(write(f, data, SIZE) == SIZE);
	connected(l, p, 0);
	CHECK(!pthread_create(&t, NULL, drain, &p[1]));
	CHECK(sendfile(p[0], f, &at, SIZE) == SIZE - 1000 && at == SIZE);
	CHECK(lseek(f, 1000, SEEK_SET) == 1000 && sendfile(p[0], f, NULL, 500) == 500);
	CHECK(lseek(f, 0, SEEK_CUR) == 1500 && !shutdown(p[0], SHUT_WR) && !pthread_join(t, &got));
	for (int i = 1000; i < SIZE; i++)
		want = want * 31 + data[i];
	for (int i = 1000; i < 1500; i++)
		want = want * 31 + data[i];
	CHECK(want == *(size_t *)got);
	close(p[0]), close(p[1]), close(f);
	free(data);
	free(got);
}

struct reader {
	int fd, type, state;
	atomic_int begun;
};

// receive_all reads until the peer ends the stream.
static void *receive_all(void *arg)
{
	struct reader *r = arg;
	ssize_t n;
	char c;

	CHECK(!pthread_setcanceltype(r->type, NULL) && !pthread_setcancelstate(r->state, NULL));
	atomic_store(&r->begun, 1);
	while ((n = read(r->fd, &c, 1)) > 0 || (n < 0 && errno == EAGAIN))
		;
	CHECK(n == 0);
	return NULL;
}

static void *nothing(void *arg) { return NULL; }

// Threads that wait, and threads that are anywhere in a call, can be cancelled; others receive afterwards as before.
static void cancelled(int l)
{
	static const int types[] = {PTHREAD_CANCEL_DEFERRED, PTHREAD_CANCEL_ASYNCHRONOUS};
	void *result;
	int p[2];

	for (int i = 0; i < 4; i++) { // these most probably wait
		pthread_t t;
		connected(l, p, 0);
		// A new thread may have the result of one that has ended until it has its own.
		CHECK(!pthread_create(&t, NULL, nothing, NULL) && !pthread_join(t, &result) && !result);
		struct reader r = {.fd = p[1], .type = types[i & 1], .state = PTHREAD_CANCEL_ENABLE};
		CHECK(!pthread_create(&t, NULL, receive_all, &r));
		while (!atomic_load(&r.begun))
			sched_yield();
		usleep(20000);
		CHECK(!pthread_cancel(t) && !pthread_join(t, &result) && result == PTHREAD_CANCELED);
		close(p[0]), close(p[1]);
	}
	for (int i = 0; i < 40; i++) {
		pthread_t t;
		connected(l, p, i & 2 ? SOCK_NONBLOCK : 0);
		int state = i & 4 ? PTHREAD_CANCEL_DISABLE : PTHREAD_CANCEL_ENABLE;
		struct reader r = {.fd = p[1], .type = types[i & 1], .state = state};
		CHECK(!pthread_create(&t, NULL, receive_all, &r));
		while (!atomic_load(&r.begun))
			CHECK(write(p[0], "x", 1) == 1);
		CHECK(!pthread_cancel(t));
		if (state == PTHREAD_CANCEL_DISABLE)
			CHECK(write(p[0], "y", 1) == 1 && !shutdown(p[0], SHUT_WR));
		CHECK(!pthread_join(t, &result));
		CHECK(result == (state == PTHREAD_CANCEL_DISABLE ? NULL : PTHREAD_CANCELED));
		close(p[0]), close(p[1]);
	}
}

// A cancellation that meets a thread of asynchronous cancellation between two calls, or at the start of one, leaves the
// engine usable: the thread ends, and its successors receive.
static void cancelled_between(int l)
{
	void *result;
	int p[2];

	connected(l, p, 0);
	for (int i = 0; i < 3000; i++) {
		struct reader r = {.fd = p[1], .type = PTHREAD_CANCEL_ASYNCHRONOUS, .state = PTHREAD_CANCEL_ENABLE};
		pthread_t t;
		CHECK(!pthread_create(&t, NULL, receive_all, &r));
		while (!atomic_load(&r.begun))
			CHECK(write(p[0], "x", 1) == 1);
		for (volatile int k = 0; k < i; k++) // so that it meets other instructions
			;
		CHECK(!pthread_cancel(t) && !pthread_join(t, &result) && result == PTHREAD_CANCELED);
	}
	close(p[0]), close(p[1]);
}

// An IPv6 socket has IPv4 addresses as mapped ones, in each call that gives or takes an address.
static void mapped(void)
{
	struct sockaddr_in6 at = {.sin6_family = AF_INET6}, a;
	int l = socket(AF_INET6, SOCK_STREAM, 0), s[3];
	socklen_t n = sizeof at;

	CHECK(inet_pton(AF_INET6, "::ffff:127.0.0.1", &at.sin6_addr) == 1);
	CHECK(!bind(l, (struct sockaddr *)&at, sizeof at) && !listen(l, 4));
	CHECK(!getsockname(l, (struct sockaddr *)&at, &n) && n == sizeof at);
	CHECK(at.sin6_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&at.sin6_addr) && at.sin6_port);
	s[0] = socket(AF_INET6, SOCK_STREAM, 0);
	CHECK(!connect(s[0], (struct sockaddr *)&at, sizeof at));
	s[1] = accept4(l, (struct sockaddr *)&a, &n, 0);
	CHECK(s[1] >= 0 && n == sizeof a && a.sin6_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&a.sin6_addr));
	struct sockaddr_in6 peer;
	CHECK(!getpeername(s[1], (struct sockaddr *)&peer, &n) && n == sizeof peer && !memcmp(&peer, &a, sizeof a));
	s[2] = socket(AF_INET, SOCK_STREAM, 0);
	here = (struct sockaddr_in){AF_INET, at.sin6_port, {htonl(INADDR_LOOPBACK)}};
	CHECK(!connect(s[2], (struct sockaddr *)&here, sizeof here));
	CHECK(!getpeername(s[2], (struct sockaddr *)&peer, &n) && n == sizeof here && peer.sin6_family == AF_INET);
	int from = socket(AF_INET6, SOCK_STREAM, 0); // of all addresses, as programs of IPv6 have them
	struct sockaddr_in6 any = {.sin6_family = AF_INET6};
	CHECK(!bind(from, (struct sockaddr *)&any, sizeof any) && !connect(from, (struct sockaddr *)&at, sizeof at));
	CHECK(!getsockname(from, (struct sockaddr *)&a, &n) && IN6_IS_ADDR_V4MAPPED(&a.sin6_addr));
	close(from);
	for (int i = 0; i < 3; i++)
		close(s[i]);
	close(l);
}

static void refused(void)
{
	int s = socket(AF_INET, SOCK_STREAM, 0), tcp, l;
	struct sockaddr_in nobody = here;

	l = listener(0);
	nobody = here;
	CHECK(!close(l));
	CHECK(connect(s, (struct sockaddr *)&nobody, sizeof nobody) == -1 && errno == ECONNREFUSED);
	CHECK(!close(s));
	tcp = socket(AF_UNIX, SOCK_STREAM, 0); // stays what it is
	CHECK(tcp >= 0 && !close(tcp));
}

int main(void)
{
	int l = listener(SOCK_CLOEXEC);

	calls(l);
	ended(l);
	duplicates(l);
	ranges(l);
	mixed(l);
	levels(l);
	edges(l);
	removed(l);
	replaced(l);
	later(l);
	together(l);
	interrupted(l);
	installed();
	inherited(l);
	forked(l);
	of_parent(l);
	vforked(l);
	forked_by_handler(l);
	timeouts(l);
	files(l);
	cancelled(l);
	cancelled_between(l);
	CHECK(!close(l));
	mapped();
	refused();
	return 0;
}
