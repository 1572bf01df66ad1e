// How connections of Linux's TCP begin and end, what is not memory, and which options there are: the program ends with 0
// with and without the library.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>

#define FAILED 1
#include "check.h"

enum { LIMIT_MS = 20000, ENDED = POLLIN | POLLOUT | POLLRDHUP, OVER = ENDED | POLLHUP };

static struct sockaddr_in here = {.sin_family = AF_INET};
static int signals;

static void count(int sig) { signals++; }

// raised returns how many SIGPIPE have come.
static int raised(void)
{
	int n = signals;

	signals = 0;
	return n;
}

static int listener(void)
{
	socklen_t n = sizeof here;
	int l = socket(AF_INET, SOCK_STREAM, 0);

	here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	here.sin_port = 0;
	CHECK(!bind(l, (struct sockaddr *)&here, n) && !listen(l, 5) && !getsockname(l, (struct sockaddr *)&here, &n));
	return l;
}

static void connected(int l, int pair[2])
{
	pair[0] = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(!connect(pair[0], (struct sockaddr *)&here, sizeof here) && (pair[1] = accept(l, NULL, NULL)) >= 0);
}

static int now(int fd, int events)
{
	struct pollfd p = {.fd = fd, .events = events};

	return poll(&p, 1, 0) < 0 ? -1 : p.revents;
}

// comes reports whether a socket has exactly these events in time.
static int comes(int fd, int events)
{
	for (int i = 0; i < LIMIT_MS && now(fd, ENDED) != events; i++)
		usleep(1000);
	return now(fd, ENDED) == events;
}

static int state(int fd)
{
	struct tcp_info info = {0};
	socklen_t n = sizeof info;

	return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n) ? -1 : info.tcpi_state;
}

// becomes reports whether a connection gets a state in time.
static int becomes(int fd, int wanted)
{
	for (int i = 0; i < LIMIT_MS && state(fd) != wanted; i++)
		usleep(1000);
	return state(fd) == wanted;
}

static int number(int fd, int level, int name)
{
	int value = -1;
	socklen_t n = sizeof value;

	return getsockopt(fd, level, name, &value, &n) || n != sizeof value ? -errno : value;
}

// A socket that neither connects nor listens has hung up.
static void fresh(int l)
{
	struct epoll_event e = {.events = EPOLLIN | EPOLLOUT}, edge = {.events = EPOLLIN | EPOLLOUT | EPOLLET}, got;
	int s = socket(AF_INET, SOCK_STREAM, 0), level = epoll_create1(0), edges = epoll_create1(0), c;
	struct pollfd forever = {.fd = s, .events = POLLIN};
	fd_set set;

	FD_ZERO(&set);
	FD_SET(s, &set);
	CHECK(now(s, ENDED) == (POLLOUT | POLLHUP) && now(s, 0) == POLLHUP && poll(&forever, 1, -1) == 1);
	CHECK(select(s + 1, NULL, &set, NULL, NULL) == 1 && state(s) == TCP_CLOSE);
	CHECK(!epoll_ctl(level, EPOLL_CTL_ADD, s, &e) && !epoll_ctl(edges, EPOLL_CTL_ADD, s, &edge));
	for (int i = 0; i < 2; i++)
		CHECK(epoll_wait(level, &got, 1, LIMIT_MS) == 1 && got.events == (EPOLLOUT | EPOLLHUP));
	CHECK(epoll_wait(edges, &got, 1, LIMIT_MS) == 1 && got.events == (EPOLLOUT | EPOLLHUP));
	CHECK(!epoll_wait(edges, &got, 1, 20));
	CHECK(!connect(s, (struct sockaddr *)&here, sizeof here) && (c = accept(l, NULL, NULL)) >= 0);
	CHECK(epoll_wait(edges, &got, 1, LIMIT_MS) == 1 && got.events == EPOLLOUT && now(s, ENDED) == POLLOUT);
	CHECK(epoll_wait(level, &got, 1, LIMIT_MS) == 1 && got.events == EPOLLOUT && !close(s) && !close(c));
	CHECK((s = socket(AF_INET, SOCK_STREAM, 0)) >= 0 && shutdown(s, SHUT_RDWR) == -1 && errno == ENOTCONN);
	CHECK(now(s, ENDED) == OVER && !close(s) && !close(level) && !close(edges));
}

// shutdown of a listener ends it, but for SHUT_WR, which has no effect.
static void ends_listener(void)
{
	int l = listener();

	CHECK(state(l) == TCP_LISTEN && !shutdown(l, SHUT_WR) && !now(l, ENDED) && shutdown(l, 3) == -1 && errno == EINVAL);
	CHECK(!shutdown(l, SHUT_RD) && shutdown(l, SHUT_RD) == -1 && errno == ENOTCONN);
	CHECK(shutdown(l, SHUT_WR) == -1 && errno == ENOTCONN && accept(l, NULL, NULL) == -1 && errno == EINVAL);
	CHECK(now(l, ENDED) == OVER && state(l) == TCP_CLOSE && !number(l, SOL_SOCKET, SO_ACCEPTCONN));
	CHECK(!read(l, &(char){0}, 1) && write(l, "x", 1) == -1 && errno == EPIPE && raised() == 1 && !close(l));
}

// Both ends end their direction, one after the other.
static void ends_both(int l)
{
	struct sockaddr_in a;
	socklen_t n = sizeof a;
	int p[2];

	connected(l, p);
	CHECK(state(p[0]) == TCP_ESTABLISHED && !shutdown(p[0], SHUT_WR) && now(p[0], ENDED) == POLLOUT);
	CHECK(comes(p[1], ENDED) && becomes(p[0], TCP_FIN_WAIT2) && state(p[1]) == TCP_CLOSE_WAIT);
	CHECK(!shutdown(p[0], SHUT_WR) && write(p[1], "x", 1) == 1 && read(p[0], &(char){0}, 1) == 1);
	CHECK(write(p[0], "x", 1) == -1 && errno == EPIPE && raised() == 1);
	CHECK(send(p[0], "x", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE && !raised());
	CHECK(!shutdown(p[1], SHUT_WR) && comes(p[0], OVER) && comes(p[1], OVER));
	for (int i = 0; i < 2; i++) {
		CHECK(now(p[i], POLLOUT) == (POLLOUT | POLLHUP) && now(p[i], 0) == POLLHUP && becomes(p[i], TCP_CLOSE));
		CHECK(shutdown(p[i], SHUT_RDWR) == -1 && errno == ENOTCONN && !read(p[i], &(char){0}, 1));
		CHECK(write(p[i], "x", 1) == -1 && errno == EPIPE && raised() == 1);
		CHECK(getpeername(p[i], (struct sockaddr *)&a, &n) == -1 && errno == ENOTCONN && !close(p[i]));
	}
}

// The peer has closed. TCP does not know that it reads no more, until it answers something.
static void peer_closes(int l)
{
	struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET}, got;
	int p[2], ep = epoll_create1(0), file = memfd_create("file", 0);

	connected(l, p);
	CHECK(!epoll_ctl(ep, EPOLL_CTL_ADD, p[1], &e) && epoll_wait(ep, &got, 1, LIMIT_MS) == 1 && got.events == EPOLLOUT);
	CHECK(!close(p[0]) && comes(p[1], ENDED) && state(p[1]) == TCP_CLOSE_WAIT && !number(p[1], SOL_SOCKET, SO_ERROR));
	CHECK(now(p[1], POLLOUT) == POLLOUT && epoll_wait(ep, &got, 1, LIMIT_MS) == 1);
	CHECK((got.events & ~EPOLLOUT) == (EPOLLIN | EPOLLRDHUP));
	CHECK(!epoll_wait(ep, &got, 1, 20) && write(p[1], "lost", 4) == 4 && !raised() && comes(p[1], OVER | POLLERR));
	CHECK(epoll_wait(ep, &got, 1, LIMIT_MS) == 1 && (got.events & (EPOLLERR | EPOLLHUP)) == (EPOLLERR | EPOLLHUP));
	CHECK(write(p[1], "x", 1) == -1 && errno == EPIPE && raised() == 1);
	CHECK(write(file, "text", 4) == 4 && sendfile(p[1], file, &(off_t){0}, 4) == -1 && errno == EPIPE && raised() == 1);
	CHECK(!read(p[1], &(char){0}, 1) && shutdown(p[1], SHUT_RDWR) == -1 && errno == ENOTCONN && !close(p[1]));
	connected(l, p);
	CHECK(!close(p[0]) && comes(p[1], ENDED) && write(p[1], "lost", 4) == 4 && comes(p[1], OVER | POLLERR));
	CHECK(number(p[1], SOL_SOCKET, SO_ERROR) == EPIPE && !number(p[1], SOL_SOCKET, SO_ERROR) && comes(p[1], OVER));
	CHECK(write(p[1], "x", 1) == -1 && errno == EPIPE && raised() == 1 && !close(p[1]) && !close(ep) && !close(file));
}

// What the peer has sent before it closed can be read, and a socket that has ended both directions has hung up.
static void last_words(int l)
{
	char got[4] = "";
	int p[2];

	connected(l, p);
	CHECK(write(p[0], "abc", 3) == 3 && !close(p[0]) && comes(p[1], ENDED) && read(p[1], got, 4) == 3);
	CHECK(!strcmp(got, "abc") && !read(p[1], got, 4) && comes(p[1], ENDED) && !shutdown(p[1], SHUT_WR) && !close(p[1]));
	connected(l, p);
	CHECK(!shutdown(p[0], SHUT_RDWR) && now(p[0], ENDED) == OVER && comes(p[1], ENDED) && !read(p[0], got, 1));
	CHECK(write(p[0], "x", 1) == -1 && errno == EPIPE && raised() == 1 && !close(p[0]) && !close(p[1]));
	connected(l, p);
	CHECK(!shutdown(p[0], SHUT_RD) && now(p[0], ENDED) == ENDED && write(p[0], "x", 1) == 1 && read(p[1], got, 1) == 1);
	CHECK(!close(p[0]) && !close(p[1]));
}

// writes_until_killed writes to a socket and to a pipe that have no reader.
static void writes_until_killed(int l, int to_pipe, int ignores)
{
	int p[2], ends[2], status;

	fflush(NULL);
	pid_t child = fork();
	if (!child) {
		signal(SIGPIPE, ignores ? SIG_IGN : SIG_DFL);
		l = listener(); // of the child
		connected(l, p);
		CHECK(!pipe(ends) && !close(ends[0]) && !shutdown(p[0], SHUT_WR));
		CHECK(write(to_pipe ? ends[1] : p[0], "x", 1) == -1 && errno == EPIPE);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(ignores ? WIFEXITED(status) && !WEXITSTATUS(status) : WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE);
}

// Memory that the program does not have, as the argument of each call.
static void bad_memory(int l, int from, int to)
{
	long page = sysconf(_SC_PAGESIZE);
	char *mem = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *gone = mem + page;
	struct iovec *half = (struct iovec *)(gone - sizeof *half), one = {"x", 1};
	struct sockaddr *a = (struct sockaddr *)gone;
	struct msghdr list = {.msg_iov = (struct iovec *)gone, .msg_iovlen = 2}, name = {.msg_iov = &one, .msg_iovlen = 1};
	int s = socket(AF_INET, SOCK_STREAM, 0), file = memfd_create("file", 0);
	socklen_t n = sizeof here;

#define EFAULTS(call) CHECK((errno = 0, (call) == -1 && errno == EFAULT))
	CHECK(mem != MAP_FAILED && !mprotect(gone, page, PROT_NONE)); // an unmapped page would be used again
	*half = one;
	EFAULTS(writev(from, (struct iovec *)gone, 1));
	EFAULTS(writev(from, half, 2));
	EFAULTS(readv(to, half, 2));
	EFAULTS(sendmsg(from, &list, 0));
	EFAULTS(recvmsg(to, &list, MSG_DONTWAIT));
	EFAULTS(sendmsg(from, (struct msghdr *)gone, 0));
	EFAULTS(recvmsg(to, (struct msghdr *)gone, MSG_DONTWAIT));
	EFAULTS(sendmmsg(from, (struct mmsghdr *)gone, 1, 0));
	EFAULTS(recvmmsg(to, (struct mmsghdr *)gone, 1, MSG_DONTWAIT, NULL));
	EFAULTS(sendto(from, "x", 1, 0, a, n));
	name.msg_name = gone;
	name.msg_namelen = n;
	EFAULTS(sendmsg(from, &name, 0));
	EFAULTS(bind(s, a, n));
	EFAULTS(connect(s, a, n));
	EFAULTS(getsockname(to, a, &n));
	EFAULTS(getpeername(to, (struct sockaddr *)&here, (socklen_t *)gone));
	EFAULTS(getsockopt(to, SOL_SOCKET, SO_TYPE, gone, &n));
	EFAULTS(getsockopt(to, SOL_SOCKET, SO_TYPE, &n, (socklen_t *)gone));
	EFAULTS(setsockopt(to, SOL_SOCKET, SO_KEEPALIVE, gone, sizeof(int)));
	EFAULTS(setsockopt(to, IPPROTO_TCP, TCP_KEEPCNT, gone, sizeof(int)));
	EFAULTS(ioctl(to, FIONREAD, gone));
	EFAULTS(ioctl(to, FIONBIO, gone));
	EFAULTS(sendfile(from, file, (off_t *)gone, 1));
	n = -1;
	CHECK(getsockname(to, (struct sockaddr *)&here, &n) == -1 && errno == EINVAL);
	CHECK(!connect(s, (struct sockaddr *)&here, sizeof here));
	n = sizeof here;
	EFAULTS(accept(l, a, &n));
	CHECK(write(from, "x", 1) == 1 && read(to, &n, 1) == 1 && !close(s) && !close(file) && !munmap(mem, 2 * page));
}

// Options that programs read, with the errno of those that there are not.
static void options(int l)
{
	struct ucred of_peer = {1, 1, 1};
	struct tcp_info info = {0};
	uint64_t cookies[2] = {0};
	socklen_t n = sizeof of_peer, short_one = 4;
	char name[16] = "", data[1000] = "";
	int p[2];

	connected(l, p);
	CHECK(!getsockopt(p[0], SOL_SOCKET, SO_PEERCRED, &of_peer, &n) && n == sizeof of_peer);
	CHECK(!of_peer.pid && of_peer.uid == (uid_t)-1);
	for (int i = 0; i < 2; i++) {
		n = sizeof cookies[i];
		CHECK(!getsockopt(p[i], SOL_SOCKET, SO_COOKIE, &cookies[i], &n) && cookies[i] && n == sizeof cookies[i]);
	}
	uint64_t again = 0;
	CHECK(cookies[0] != cookies[1] && !getsockopt(p[0], SOL_SOCKET, SO_COOKIE, &again, &n) && again == cookies[0]);
	CHECK(getsockopt(p[0], SOL_SOCKET, SO_COOKIE, &again, &short_one) == -1 && errno == EINVAL);
	CHECK(number(p[0], IPPROTO_IP, IP_MTU) >= 1280 && number(p[1], IPPROTO_IP, IP_MTU) >= 1280);
	CHECK(number(l, IPPROTO_IP, IP_MTU) == -ENOTCONN && number(p[0], IPPROTO_IP, IP_PKTINFO) == 0);
	CHECK(number(p[0], SOL_SOCKET, SO_INCOMING_NAPI_ID) >= 0 && number(p[0], SOL_SOCKET, SO_PASSCRED) == -EOPNOTSUPP);
	CHECK(number(p[0], SOL_SOCKET, SO_PEERGROUPS) == -ENODATA && number(p[0], 99, 1) == -EOPNOTSUPP);
	CHECK(number(p[0], IPPROTO_IPV6, 26) == -EOPNOTSUPP && number(p[0], IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS) == 0);
	n = sizeof name;
	CHECK(!getsockopt(p[0], IPPROTO_TCP, TCP_CONGESTION, name, &n) && n == sizeof name);
	CHECK(name[0] >= 'a' && name[0] <= 'z');
	n = 2;
	CHECK(!getsockopt(p[0], SOL_SOCKET, SO_KEEPALIVE, data, &n) && n == 2);
	CHECK(setsockopt(p[0], 99, 1, data, 4) == -1 && errno == ENOPROTOOPT);
	CHECK(setsockopt(p[0], SOL_SOCKET, SO_PASSCRED, &(int){1}, 4) == -1 && errno == EOPNOTSUPP);
	CHECK(write(p[0], data, sizeof data) == sizeof data && recv(p[1], data, sizeof data, MSG_WAITALL) == sizeof data);
	n = sizeof info;
	CHECK(!getsockopt(p[0], IPPROTO_TCP, TCP_INFO, &info, &n) && n == sizeof info && info.tcpi_snd_mss > 500);
	CHECK(info.tcpi_rtt && info.tcpi_rto && info.tcpi_snd_cwnd && info.tcpi_pmtu > 500 && info.tcpi_rcv_space);
	CHECK(!close(p[0]) && !close(p[1]));
}

int main(void)
{
	int l = listener(), p[2], s = socket(AF_INET, SOCK_DGRAM, 0);

	alarm(100);
	signal(SIGPIPE, count);
	fresh(l);
	ends_listener();
	l = listener();
	ends_both(l);
	peer_closes(l);
	last_words(l);
	connected(l, p);
	const char *preload = getenv("LD_PRELOAD");
	if (!preload || !strstr(preload, "libasan")) // the functions of the sanitizer read that memory first
		bad_memory(l, p[0], p[1]);
	l = listener();
	options(l);
	CHECK(shutdown(s, SHUT_RDWR) == -1 && errno == ENOTCONN && !close(s));
	for (int i = 0; i < 4; i++)
		writes_until_killed(l, i & 1, i & 2);
	return 0;
}
