// The fork mode of sockets: servers that fork for each connection, or before, and peers that do the handshake by hand,
// well or badly.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <rdma/rsocket.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#define FAILED 1
#include "check.h"

static struct sockaddr_in here;
static socklen_t size = sizeof here;

static int listener(int flags)
{
	int on = 1, l = socket(AF_INET, SOCK_STREAM | flags, 0);

	here = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	CHECK(!setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
	CHECK(!bind(l, (struct sockaddr *)&here, size) && !listen(l, 16));
	CHECK(!getsockname(l, (struct sockaddr *)&here, &size) && here.sin_port);
	return l;
}

static int dial(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	CHECK(!connect(fd, (struct sockaddr *)&here, size));
	return fd;
}

// is_rsocket reports whether a descriptor has become an rsocket: the kernel's socket has no address then.
static int is_rsocket(int fd)
{
	struct sockaddr_in a;
	socklen_t n = sizeof a;

	CHECK(!syscall(SYS_getsockname, fd, &a, &n));
	return !a.sin_port;
}

// Calls of the kernel, of which the library knows nothing.
static int tcp_dial(uint32_t from)
{
	struct sockaddr_in local = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(from)};
	int fd = syscall(SYS_socket, AF_INET, SOCK_STREAM, 0);

	CHECK(!syscall(SYS_bind, fd, &local, size));
	CHECK(!syscall(SYS_connect, fd, &here, size));
	return fd;
}

static long tcp_send(int fd, const char *b, int n) { return syscall(SYS_sendto, fd, b, n, MSG_NOSIGNAL, NULL, 0); }

static long tcp_recv(int fd, char *b, int n, int flags)
{
	struct timeval limit = {20, 0};

	syscall(SYS_setsockopt, fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	return syscall(SYS_recvfrom, fd, b, n, flags, NULL, NULL);
}

static void ended(pid_t child)
{
	int status;

	CHECK(waitpid(child, &status, 0) == child);
	if (status)
		fprintf(stderr, "a child ended with %#x\n", status);
	CHECK(!status);
}

// talk says a word and hears it again.
static void talk(int fd, const char *word)
{
	char got[64] = "";
	int n = strlen(word);

	CHECK(send(fd, word, n, 0) == n);
	CHECK(recv(fd, got, n, MSG_WAITALL) == n && !memcmp(got, word, n));
}

// echo answers all that comes until the end of the stream.
static void echo(int fd)
{
	char b[4096];
	ssize_t n;

	while ((n = read(fd, b, sizeof b)) > 0)
		CHECK(write(fd, b, n) == n);
	CHECK(!n);
}

// call makes a child that connects to the listener and calls f.
static pid_t call(void (*f)(int))
{
	pid_t child = fork();

	CHECK(child >= 0);
	if (!child) {
		f(dial());
		_exit(0);
	}
	return child;
}

// serve accepts n connections, and makes a child for each, which calls f.
static pid_t serve(int l, int n, void (*f)(int))
{
	pid_t child[8], server = fork();

	CHECK(server >= 0);
	if (server)
		return server;
	for (int i = 0; i < n; i++) {
		int fd = accept(l, NULL, NULL);
		CHECK(fd >= 0 && (child[i] = fork()) >= 0);
		if (!child[i]) {
			close(l);
			f(fd);
			close(fd); // what was sent is not lost then
			_exit(0);
		}
		close(fd);
	}
	for (int i = 0; i < n; i++)
		ended(child[i]);
	_exit(0);
}

static void names(int fd, int peer)
{
	struct sockaddr_in a = {0};
	socklen_t n = sizeof a;

	CHECK(!(peer ? getpeername : getsockname)(fd, (struct sockaddr *)&a, &n));
	CHECK(n == sizeof a && a.sin_port == here.sin_port && a.sin_addr.s_addr == here.sin_addr.s_addr);
}

static void answer(int fd)
{
	struct sockaddr_in before, after;
	socklen_t n = sizeof before;

	CHECK(!getpeername(fd, (struct sockaddr *)&before, &n));
	echo(fd);
	CHECK(is_rsocket(fd) && !getpeername(fd, (struct sockaddr *)&after, &n));
	CHECK(n == sizeof after && after.sin_port == before.sin_port);
	names(fd, 0);
}

static void server_forks(void)
{
	int l = listener(0), fd[3];
	pid_t server = serve(l, 3, answer);

	close(l);
	for (int i = 0; i < 3; i++)
		fd[i] = dial();
	for (int i = 0; i < 3; i++) {
		talk(fd[i], "hello");
		CHECK(is_rsocket(fd[i]));
		names(fd[i], 1);
		talk(fd[i], "again");
		CHECK(!shutdown(fd[i], SHUT_WR));
	}
	ended(server);
	for (int i = 0; i < 3; i++)
		CHECK(!close(fd[i]));
}

// greet speaks first, through a duplicate, and waits with select before it reads.
static void greet(int fd)
{
	char got[8];
	fd_set set;

	CHECK(dup2(fd, 100) == 100 && write(100, "hi", 2) == 2);
	CHECK(is_rsocket(100));
	FD_ZERO(&set);
	FD_SET(fd, &set);
	CHECK(select(fd + 1, &set, NULL, NULL, NULL) == 1 && read(fd, got, sizeof got) == 3);
	CHECK(!close(100) && is_rsocket(fd));
	echo(fd);
}

static void server_speaks_first(void)
{
	char got[8];
	int l = listener(0), fd;
	pid_t server = serve(l, 1, greet);

	close(l);
	fd = dial();
	struct pollfd p = {.fd = fd, .events = POLLIN};
	CHECK(poll(&p, 1, 20000) == 1 && p.revents == POLLIN);
	CHECK(read(fd, got, sizeof got) == 2 && !memcmp(got, "hi", 2));
	CHECK(write(fd, "yes", 3) == 3);
	close(fd);
	ended(server);
}

// waits_first waits with select for what the client says, before any I/O.
static void waits_first(int fd)
{
	fd_set set;

	FD_ZERO(&set);
	FD_SET(fd, &set);
	CHECK(select(fd + 1, &set, NULL, NULL, NULL) == 1);
	answer(fd);
}

// The client says all that it will say with its first call, which is shutdown.
static void early_shutdown(int fd)
{
	char got[8];

	CHECK(read(fd, got, sizeof got) == 0);
	CHECK(write(fd, "bye", 3) == 3);
}

// options are set, or read as they were set.
static void options(int fd, int set)
{
	struct linger linger = {1, 7};
	int count = 3, at_once = 1;
	socklen_t n = sizeof count, m = sizeof linger;

	if (set) {
		CHECK(!setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, n) && !setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, m));
		CHECK(!setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &at_once, n));
		return;
	}
	count = at_once = linger.l_linger = linger.l_onoff = 0;
	CHECK(!getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &at_once, &n) && at_once);
	CHECK(!getsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, &n) && count == 3);
	CHECK(!getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &m) && linger.l_onoff && linger.l_linger == 7);
}

static void server_waits_first(void)
{
	char got[8];
	int l = listener(0), fd;
	pid_t server = serve(l, 2, waits_first);

	for (int i = 0; i < 2; i++) {
		fd = dial();
		talk(fd, "hello");
		close(fd);
	}
	ended(server);
	server = serve(l, 1, early_shutdown);
	fd = dial();
	options(fd, 1);
	CHECK(!shutdown(fd, SHUT_WR));
	CHECK(recv(fd, got, 3, MSG_WAITALL) == 3 && !memcmp(got, "bye", 3) && is_rsocket(fd));
	options(fd, 0);
	CHECK(send(fd, "x", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE);
	close(fd);
	close(l);
	ended(server);
}

static int add(int ep, int fd, uint32_t events)
{
	struct epoll_event e = {.events = events, .data.fd = fd};

	return epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e);
}

// worker serves with one thread and edges of epoll, until all of n connections have ended.
static void worker(int l, int n)
{
	int ep = epoll_create1(0);
	struct epoll_event e;
	char b[64];

	CHECK(!add(ep, l, EPOLLIN));
	while (n > 0) {
		CHECK(epoll_wait(ep, &e, 1, 20000) == 1);
		if (e.data.fd == l) {
			int fd = accept4(l, NULL, NULL, SOCK_NONBLOCK);
			CHECK(fd >= 0 ? !add(ep, fd, EPOLLIN | EPOLLOUT | EPOLLET) : errno == EAGAIN);
			continue;
		}
		ssize_t got;
		while ((got = recv(e.data.fd, b, sizeof b, 0)) > 0)
			CHECK(send(e.data.fd, b, got, 0) == got);
		CHECK(got == 0 || errno == EAGAIN);
		if (!got) {
			CHECK(is_rsocket(e.data.fd));
			close(e.data.fd);
			n--;
		}
	}
	_exit(0);
}

// client connects without blocking, and waits with epoll for each step.
static void client(int flags)
{
	int ep = epoll_create1(0), fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), sent = 0;
	struct epoll_event e;
	char got[8];
	ssize_t n;

	CHECK(!connect(fd, (struct sockaddr *)&here, size) || errno == EINPROGRESS);
	CHECK(!add(ep, fd, EPOLLIN | EPOLLOUT | flags));
	for (;;) {
		CHECK(epoll_wait(ep, &e, 1, 20000) == 1 && !(e.events & EPOLLERR));
		if (!sent && (e.events & EPOLLOUT)) {
			n = send(fd, "ping", 4, 0);
			CHECK(n == 4 || errno == EAGAIN);
			sent = n == 4;
		}
		n = recv(fd, got, sizeof got, 0);
		if (n > 0)
			break;
		CHECK(errno == EAGAIN);
	}
	CHECK(n == 4 && !memcmp(got, "ping", 4) && is_rsocket(fd));
	CHECK(fcntl(fd, F_GETFL) & O_NONBLOCK);
	close(fd);
	close(ep);
}

// Workers have the listener of their parent.
static void workers(void)
{
	int l = listener(SOCK_NONBLOCK);
	pid_t w[2];

	for (int round = 0; round < 2; round++) {
		CHECK((w[0] = fork()) >= 0);
		if (!w[0])
			worker(l, 3);
		for (int i = 0; i < 3; i++)
			client(round ? EPOLLET : 0);
		ended(w[0]);
	}
	for (int i = 0; i < 2; i++) {
		CHECK((w[i] = fork()) >= 0);
		if (!w[i])
			worker(l, 1 << 30);
	}
	for (int i = 0; i < 4; i++)
		client(i % 2 ? EPOLLET : 0);
	for (int i = 0; i < 2; i++)
		CHECK(!kill(w[i], SIGKILL) && waitpid(w[i], NULL, 0) == w[i]);
	close(l);
}

// by_hand is the handshake of the other end, with librdmacm and the kernel's TCP: what librspreload does.
static void client_by_hand(void)
{
	char zeros[4] = "....", got[4];
	int l = listener(0), fd;
	pid_t server = serve(l, 1, answer);

	close(l);
	fd = tcp_dial(INADDR_ANY);
	CHECK(tcp_recv(fd, zeros, 4, MSG_PEEK | MSG_WAITALL) == 4 && !memcmp(zeros, "\0\0\0\0", 4));
	int rs = rsocket(AF_INET, SOCK_STREAM, 0);
	CHECK(!rconnect(rs, (struct sockaddr *)&here, size));
	syscall(SYS_close, fd);
	CHECK(rsend(rs, "word", 4, 0) == 4);
	CHECK(rrecv(rs, got, 4, MSG_WAITALL) == 4 && !memcmp(got, "word", 4));
	CHECK(!rclose(rs));
	ended(server);
}

static void talks_by_rsocket(int fd)
{
	talk(fd, "hello");
	CHECK(is_rsocket(fd));
}

static void server_by_hand(void)
{
	struct sockaddr_in any = {.sin_family = AF_INET};
	int l = listener(0), on = 1;
	char got[5];
	pid_t child = call(talks_by_rsocket);

	int fd = syscall(SYS_accept4, l, NULL, NULL, 0), rl = rsocket(AF_INET, SOCK_STREAM, 0);
	any.sin_port = here.sin_port;
	CHECK(!rsetsockopt(rl, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
	CHECK(!rbind(rl, (struct sockaddr *)&any, size) && !rlisten(rl, 1));
	CHECK(tcp_send(fd, "\0\0\0\0", 4) == 4);
	int rs = raccept(rl, NULL, NULL);
	CHECK(rs >= 0 && !rclose(rl));
	CHECK(tcp_recv(fd, got, 1, 0) == 0); // the client has closed it
	syscall(SYS_close, fd);
	CHECK(rrecv(rs, got, 5, MSG_WAITALL) == 5 && rsend(rs, got, 5, 0) == 5);
	ended(child);
	rclose(rs);
	close(l);
}

// A child has no part in a handshake that its parent does.
static void fork_meanwhile(void)
{
	int l = listener(0), fd = dial(), peer = accept(l, NULL, NULL);

	CHECK(!fcntl(fd, F_SETFL, O_NONBLOCK) && write(fd, "x", 1) == -1 && errno == EAGAIN);
	pid_t child = fork();
	CHECK(child >= 0);
	if (!child) {
		CHECK(write(fd, "x", 1) == -1 && errno == EIO);
		struct pollfd p = {.fd = fd, .events = POLLOUT};
		CHECK(poll(&p, 1, 20000) == 1 && p.revents == POLLERR);
		CHECK(!close(fd));
		_exit(0);
	}
	ended(child);
	CHECK(write(peer, "y", 1) == 1 && is_rsocket(peer));
	close(fd);
	close(peer);
	close(l);
}

// stays_tcp is the child of a server whose client is not as it must be: it gets what that sends by TCP.
static void stays_tcp(int fd)
{
	char got[8];

	CHECK(recv(fd, got, 3, MSG_WAITALL) == 3 && !memcmp(got, "abc", 3));
	CHECK(!is_rsocket(fd) && write(fd, "def", 3) == 3);
}

static void sees_the_end(int fd)
{
	char got[8];

	CHECK(read(fd, got, sizeof got) == 0 && !is_rsocket(fd));
}

// bad_client connects by TCP and does one of several wrong things.
static void bad_client(int how)
{
	char got[8] = "";
	int l = listener(0), fd = how ? -1 : tcp_dial(INADDR_ANY);

	if (!how) // a client of plain TCP, which speaks before the server does
		CHECK(tcp_send(fd, "abc", 3) == 3);
	pid_t server = serve(l, 1, how == 3 || how == 4 ? sees_the_end : stays_tcp);
	close(l);
	if (how)
		fd = tcp_dial(how == 5 ? INADDR_LOOPBACK + 1 : INADDR_ANY);
	if (how && how != 4) // 4 closes at once, 3 after the zeros
		CHECK(tcp_recv(fd, got, 4, MSG_WAITALL) == 4 && !memcmp(got, "\0\0\0\0", 4));
	if (how == 1) // no rsocket, but data
		CHECK(tcp_send(fd, "abc", 3) == 3);
	if (how == 2) { // nothing for longer than the server waits
		struct timespec t = {1, 500000000};
		nanosleep(&t, NULL);
		CHECK(tcp_send(fd, "abc", 3) == 3);
	}
	if (how == 5) { // an rsocket from another address
		int rs = rsocket(AF_INET, SOCK_STREAM, 0);
		if (!rconnect(rs, (struct sockaddr *)&here, size))
			CHECK(rrecv(rs, got, 3, 0) <= 0);
		CHECK(!rclose(rs) && tcp_send(fd, "abc", 3) == 3);
	}
	if (how < 3 || how == 5)
		CHECK(tcp_recv(fd, got, 3, MSG_WAITALL) == 3 && !memcmp(got, "def", 3));
	syscall(SYS_close, fd);
	ended(server);
}

// bad_server accepts by TCP and does one of several wrong things; a child is its client.
static void bad_server(int how)
{
	static const char *const first[] = {"abc", "\0ab", "", "\0\0", "\0\0\0\0"};
	static const int lengths[] = {3, 3, 0, 2, 4};
	char got[8] = "";
	int l = listener(0);
	pid_t child = fork();

	CHECK(child >= 0);
	if (!child) {
		int fd = dial();
		if (how < 2) { // other bytes: they are data
			CHECK(recv(fd, got, 3, MSG_WAITALL) == 3 && !memcmp(got, first[how], 3));
		} else if (how == 3) { // ends in the middle
			CHECK(read(fd, got, sizeof got) == 2);
			CHECK(read(fd, got, sizeof got) == 0);
		} else { // nothing, or zeros without an rsocket: by TCP then
			talk(fd, "hello");
		}
		CHECK(!is_rsocket(fd));
		_exit(0);
	}
	int fd = syscall(SYS_accept4, l, NULL, NULL, 0);
	if (lengths[how])
		CHECK(tcp_send(fd, first[how], lengths[how]) == lengths[how]);
	if (how == 3)
		syscall(SYS_shutdown, fd, SHUT_WR);
	if (how == 2 || how == 4) {
		CHECK(tcp_recv(fd, got, 5, MSG_WAITALL) == 5 && !memcmp(got, "hello", 5));
		CHECK(tcp_send(fd, got, 5) == 5);
	}
	ended(child);
	syscall(SYS_close, fd);
	close(l);
}

// defers is a server that wants no connection before its client has spoken, which waits for the server.
static void defers(void)
{
	int l = listener(0), seconds = 60, fd;

	CHECK(!setsockopt(l, IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof seconds));
	pid_t server = serve(l, 1, answer);
	close(l);
	fd = dial();
	talk(fd, "hello");
	CHECK(is_rsocket(fd));
	close(fd);
	ended(server);
}

// A client is told that its connection is made as often as it asks, until it uses it: the server accepts later.
static void asks_twice(void)
{
	int l = listener(0), fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), ep = epoll_create1(0), error;
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	struct epoll_event e;
	socklen_t n = sizeof error;

	CHECK(!connect(fd, (struct sockaddr *)&here, size) || errno == EINPROGRESS);
	for (int i = 0; i < 2; i++)
		CHECK(poll(&p, 1, -1) == 1 && p.revents == POLLOUT && !getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) && !error);
	CHECK(!add(ep, fd, EPOLLOUT));
	for (int i = 0; i < 2; i++)
		CHECK(epoll_wait(ep, &e, 1, -1) == 1 && e.events == EPOLLOUT);
	CHECK(send(fd, "hello", 5, 0) == -1 && errno == EAGAIN && epoll_wait(ep, &e, 1, 0) == 0);
	pid_t server = serve(l, 1, answer);
	close(l);
	CHECK(epoll_wait(ep, &e, 1, -1) == 1 && e.events == EPOLLOUT && is_rsocket(fd) && !fcntl(fd, F_SETFL, 0));
	talk(fd, "hello");
	close(fd), close(ep);
	ended(server);
}

// no_room takes the address space that an engine needs. The caller has no engine.
static void no_room(void)
{
	unsigned long pages;
	FILE *f = fopen("/proc/self/statm", "r");

	CHECK(f && fscanf(f, "%lu", &pages) == 1 && !fclose(f));
	struct rlimit limit = {pages * sysconf(_SC_PAGESIZE) + (256UL << 20), RLIM_INFINITY};
	CHECK(!setrlimit(RLIMIT_AS, &limit));
}

// The child of a server that cannot make an rsocket, and waits for the client first.
static void without_engine(int fd)
{
	no_room();
	echo(fd);
	CHECK(!is_rsocket(fd));
}

// The same without a thread for the handshake.
static void without_thread(int fd)
{
	struct rlimit limit;

	CHECK(!getrlimit(RLIMIT_NOFILE, &limit));
	limit.rlim_cur = 0;
	CHECK(!setrlimit(RLIMIT_NOFILE, &limit));
	echo(fd);
}

// The client first says nothing, and then all that it will say with shutdown.
static void shuts_down(int fd)
{
	char got[8];

	CHECK(!shutdown(fd, SHUT_WR));
	CHECK(read(fd, got, sizeof got) == 5 && !memcmp(got, "hello", 5));
	CHECK(read(fd, got, sizeof got) == 0); // the end, not a reset
}

// server_stays_tcp is a server that tells its client that the connection stays TCP: without that the client waits.
static void server_stays_tcp(void (*f)(int))
{
	int l = listener(0), fd;
	pid_t server = serve(l, 1, f);

	close(l);
	fd = dial();
	if (f == shuts_down) {
		CHECK(send(fd, "hello", 5, 0) == 5);
	} else {
		struct pollfd p = {.fd = fd, .events = POLLIN | POLLPRI};
		talk(fd, "hello");
		CHECK(!poll(&p, 1, 0)); // neither the byte that tells nor zeros are left
	}
	CHECK(!is_rsocket(fd));
	close(fd);
	ended(server);
}

static void greet_by_tcp(int fd)
{
	CHECK(write(fd, "hi", 2) == 2 && !is_rsocket(fd));
	echo(fd);
}

// A client that cannot make an rsocket gets no zeros, and its server does not wait for the rsocket.
static void client_stays_tcp(void)
{
	char got[8];
	int l = listener(0);
	pid_t server = serve(l, 1, greet_by_tcp), child = fork();

	close(l);
	CHECK(child >= 0);
	if (!child) {
		no_room();
		int fd = dial();
		CHECK(read(fd, got, sizeof got) == 2 && !memcmp(got, "hi", 2));
		talk(fd, "hello");
		_exit(0);
	}
	ended(child);
	ended(server);
}

static void reads_zeros(int fd)
{
	char got[8];

	CHECK(recv(fd, got, 8, MSG_WAITALL) == 8 && !memcmp(got, "\0\0\0\0data", 8) && !is_rsocket(fd));
}

// A server says that it stays TCP, and the zeros that follow are its data.
static void zeros_are_data(void)
{
	int l = listener(0);
	pid_t child = call(reads_zeros);

	int fd = syscall(SYS_accept4, l, NULL, NULL, 0);
	CHECK(syscall(SYS_sendto, fd, "T", 1, MSG_OOB, NULL, 0) == 1 && tcp_send(fd, "\0\0\0\0data", 8) == 8);
	ended(child);
	syscall(SYS_close, fd);
	close(l);
}

static void reads_urgent(int fd)
{
	char got;

	CHECK(recv(fd, &got, 1, MSG_OOB) == 1 && got == 'X' && !is_rsocket(fd));
	talk(fd, "hello");
}

// A server sends urgent data of its own, and its client must neither wait nor take it for the byte that tells.
static void urgent_is_data(void)
{
	char got[8];
	int l = listener(0);
	pid_t child = call(reads_urgent);

	int fd = syscall(SYS_accept4, l, NULL, NULL, 0);
	CHECK(syscall(SYS_sendto, fd, "X", 1, MSG_OOB, NULL, 0) == 1);
	CHECK(tcp_recv(fd, got, 5, MSG_WAITALL) == 5 && tcp_send(fd, got, 5) == 5);
	ended(child);
	syscall(SYS_close, fd);
	close(l);
}

// executed is the program after executes.
static int executed(const char *role)
{
	int fd = strcmp(role, "listener") ? STDIN_FILENO : accept(STDIN_FILENO, NULL, NULL);

	CHECK(fd >= 0);
	echo(fd);
	CHECK(!is_rsocket(fd) == !strcmp(role, "connection"));
	return close(fd);
}

// executes executes this program with a descriptor as its standard input.
static void executes(int fd, char *role)
{
	char *words[] = {"executed", role, NULL};

	CHECK(dup2(fd, STDIN_FILENO) == STDIN_FILENO && !close(fd));
	execv("/proc/self/exe", words);
	CHECK(!"execv");
}

// As inetd does: the client speaks first, and must not wait for an rsocket.
static void executes_connection(int fd) { executes(fd, "connection"); }

// A supervisor has made the listener of a server.
static void executed_listener(void)
{
	int l = listener(0), fd;
	pid_t server = fork();

	CHECK(server >= 0);
	if (!server)
		executes(l, "listener");
	close(l);
	fd = dial();
	talk(fd, "hello");
	CHECK(is_rsocket(fd) && !shutdown(fd, SHUT_WR));
	ended(server);
	close(fd);
}

int main(int count, char **words)
{
	if (count > 1)
		return executed(words[1]);
	if (getenv("PLAIN_PEERS")) { // these do not wait
		server_stays_tcp(executes_connection);
		server_stays_tcp(without_engine);
		server_stays_tcp(without_thread);
		server_stays_tcp(shuts_down);
		client_stays_tcp();
		zeros_are_data();
		urgent_is_data();
		return 0;
	}
	if (getenv("BAD_PEERS")) {
		for (int how = 0; how < 6; how++)
			bad_client(how);
		for (int how = 0; how < 5; how++)
			bad_server(how);
		return 0;
	}
	server_forks();
	server_speaks_first();
	server_waits_first();
	defers();
	asks_twice();
	workers();
	client_by_hand();
	server_by_hand();
	fork_meanwhile();
	executed_listener();
	return 0;
}
