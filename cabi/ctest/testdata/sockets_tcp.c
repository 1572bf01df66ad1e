// What Linux's TCP and UDP do, and rsockets in their place: the program ends with 0 with and without the library.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>

#define FAILED 1
#include "check.h"

enum { LIMIT_S = 20, LIMIT_MS = LIMIT_S * 1000 };

static struct sockaddr_in here = {.sin_family = AF_INET};

static int listener(void)
{
	socklen_t n = sizeof here;
	int l = socket(AF_INET, SOCK_STREAM, 0);

	here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	here.sin_port = 0;
	CHECK(!bind(l, (struct sockaddr *)&here, n) && !listen(l, 1) && !getsockname(l, (struct sockaddr *)&here, &n));
	return l;
}

// connected makes a pair: pair[0] has connected, pair[1] was accepted.
static void connected(int l, int pair[2])
{
	pair[0] = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(!connect(pair[0], (struct sockaddr *)&here, sizeof here) && (pair[1] = accept(l, NULL, NULL)) >= 0);
}

static int events(int fd, int wanted)
{
	struct pollfd p = {.fd = fd, .events = wanted};

	return poll(&p, 1, LIMIT_MS) == 1 ? p.revents : -1;
}

static int option(int fd, int name)
{
	int value = -1;
	socklen_t n = sizeof value;

	return getsockopt(fd, SOL_SOCKET, name, &value, &n) ? -errno : value;
}

// No connection comes to a socket that does not listen.
static void not_listening(int connection)
{
	int fresh = socket(AF_INET, SOCK_STREAM, 0);

	CHECK(accept(fresh, NULL, NULL) == -1 && errno == EINVAL);
	CHECK(accept(connection, NULL, NULL) == -1 && errno == EINVAL);
	CHECK(!fcntl(fresh, F_SETFL, O_NONBLOCK) && accept(fresh, NULL, NULL) == -1 && errno == EINVAL && !close(fresh));
}

// An accepted socket has the time-outs of the listening one.
static void time_outs(void)
{
	struct timeval t = {.tv_usec = 50000}, got[2];
	socklen_t n = sizeof t;
	int l = listener(), p[2];

	CHECK(!setsockopt(l, SOL_SOCKET, SO_RCVTIMEO, &t, n) && !setsockopt(l, SOL_SOCKET, SO_SNDTIMEO, &t, n));
	connected(l, p);
	CHECK(recv(p[1], &(char){0}, 1, 0) == -1 && errno == EAGAIN);
	CHECK(!getsockopt(p[1], SOL_SOCKET, SO_RCVTIMEO, &got[0], &n) && got[0].tv_usec >= t.tv_usec);
	CHECK(!getsockopt(p[1], SOL_SOCKET, SO_SNDTIMEO, &got[1], &n) && got[1].tv_usec >= t.tv_usec);
	CHECK(!close(p[0]) && !close(p[1]) && !close(l));
}

// POLLRDNORM and POLLWRNORM are other names of POLLIN and POLLOUT.
static void other_names(const int p[2])
{
	struct epoll_event e = {.events = EPOLLRDNORM}, got;
	int ep = epoll_create1(0);

	CHECK(events(p[0], POLLWRNORM) == POLLWRNORM && events(p[0], POLLOUT | POLLWRNORM) == (POLLOUT | POLLWRNORM));
	CHECK(write(p[0], "x", 1) == 1 && events(p[1], POLLRDNORM) == POLLRDNORM && events(p[1], POLLIN) == POLLIN);
	CHECK(!epoll_ctl(ep, EPOLL_CTL_ADD, p[1], &e) && epoll_wait(ep, &got, 1, LIMIT_MS) == 1);
	CHECK(got.events == EPOLLRDNORM && !close(ep) && read(p[1], &(char){0}, 1) == 1);
}

// POLLRDHUP says that the peer sends no more, although its last byte is not read.
static void ended(int l)
{
	struct epoll_event e = {.events = EPOLLRDHUP | EPOLLET}, got;
	int ep = epoll_create1(0), p[2];

	connected(l, p);
	CHECK(!epoll_ctl(ep, EPOLL_CTL_ADD, p[1], &e) && !epoll_wait(ep, &got, 1, 20));
	CHECK(write(p[0], "x", 1) == 1 && !shutdown(p[0], SHUT_WR));
	CHECK(events(p[1], POLLRDHUP) == POLLRDHUP && epoll_wait(ep, &got, 1, LIMIT_MS) == 1);
	CHECK(got.events == EPOLLRDHUP && !epoll_wait(ep, &got, 1, 20));
	CHECK(events(p[1], POLLIN | POLLOUT | POLLRDHUP) == (POLLIN | POLLOUT | POLLRDHUP));
	CHECK(read(p[1], &(char){0}, 1) == 1 && !read(p[1], &(char){0}, 1) && write(p[1], "y", 1) == 1);
	CHECK(read(p[0], &(char){0}, 1) == 1 && !close(p[0]) && !close(p[1]) && !close(ep));
}

// Programs ask for the name of the peer to learn whether an attempt has succeeded.
static void refused(void)
{
	struct sockaddr_in peer;
	socklen_t n = sizeof peer;
	int l = listener(), c = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

	CHECK(!close(l) && connect(c, (struct sockaddr *)&here, n) == -1);
	CHECK(errno == EINPROGRESS && events(c, POLLOUT) & POLLOUT);
	CHECK(getpeername(c, (struct sockaddr *)&peer, &n) == -1 && errno == ENOTCONN && !close(c));
}

// A client tries until the server listens, by the same socket.
static void tries_again(void)
{
	socklen_t n = sizeof here;
	int c = socket(AF_INET, SOCK_STREAM, 0), l = listener(), s, yes = 1;

	CHECK(!close(l));
	for (int i = 0; i < 2; i++)
		CHECK(connect(c, (struct sockaddr *)&here, n) == -1 && errno == ECONNREFUSED);
	l = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(!setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes));
	CHECK(!bind(l, (struct sockaddr *)&here, n) && !listen(l, 1) && !connect(c, (struct sockaddr *)&here, n));
	CHECK((s = accept(l, NULL, NULL)) >= 0 && write(c, "x", 1) == 1 && read(s, &(char){0}, 1) == 1);
	CHECK(!close(c) && !close(s) && !close(l));
}

static int connects(int fd) { return connect(fd, (struct sockaddr *)&here, sizeof here) ? errno : 0; }

// A second call of connect has the result of the first one, once.
static void connects_twice(void)
{
	struct sockaddr_in other = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int l = listener(), c = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), p[2];

	CHECK(connects(l) == EISCONN);
	CHECK(connects(c) == EINPROGRESS && events(c, POLLOUT) == POLLOUT && !option(c, SO_ERROR));
	CHECK(!connects(c) && connects(c) == EISCONN && !close(c));
	CHECK((c = accept(l, NULL, NULL)) >= 0 && connects(c) == EISCONN && !close(c));
	connected(l, p);
	CHECK(connects(p[0]) == EISCONN && connects(p[1]) == EISCONN);
	CHECK(sendto(p[0], "x", 1, 0, (struct sockaddr *)&other, sizeof other) == 1 && read(p[1], &(char){0}, 1) == 1);
	CHECK(!close(p[1]) && !read(p[0], &(char){0}, 1) && connects(p[0]) == EISCONN && !close(p[0]) && !close(l));
	for (int read_it = 0; read_it < 2; read_it++) {
		c = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		CHECK(connects(c) == EINPROGRESS && events(c, POLLOUT) & POLLERR);
		CHECK(!read_it || option(c, SO_ERROR) == ECONNREFUSED);
		CHECK(connects(c) == (read_it ? ECONNABORTED : ECONNREFUSED) && connects(c) == EINPROGRESS && !close(c));
	}
}

static void *stops(void *arg)
{
	usleep(50000); // the other thread waits, mostly; the test passes if it does not
	CHECK(!shutdown(*(int *)arg, SHUT_RDWR));
	return NULL;
}

// Programs end a thread that accepts by shutdown of the listening socket.
static void stopped(void)
{
	int l = listener();
	pthread_t t;

	CHECK(!pthread_create(&t, NULL, stops, &l) && accept(l, NULL, NULL) == -1 && errno == EINVAL);
	CHECK(!pthread_join(t, NULL) && accept(l, NULL, NULL) == -1 && errno == EINVAL && !close(l));
}

static void options(int l, int connection)
{
	int yes = 1;

	CHECK(option(l, SO_DOMAIN) == AF_INET && option(l, SO_PROTOCOL) == IPPROTO_TCP && option(l, SO_TYPE) == SOCK_STREAM);
	CHECK(option(l, SO_ACCEPTCONN) == 1 && option(connection, SO_ACCEPTCONN) == 0 && option(l, SO_BROADCAST) == 0);
	CHECK(option(l, 12345) == -ENOPROTOOPT);
	CHECK(setsockopt(l, SOL_SOCKET, 12345, &yes, sizeof yes) == -1 && errno == ENOPROTOOPT);
}

static int number(int fd, int level, int name)
{
	int value = -1;
	socklen_t n = sizeof value;

	return getsockopt(fd, level, name, &value, &n) || n != sizeof value ? -errno : value;
}

// Options are read as they were set, and have the values of TCP before.
static void option_values(void)
{
	static const int zero[][2] = {{SOL_SOCKET, SO_DEBUG}, {SOL_SOCKET, SO_DONTROUTE}, {SOL_SOCKET, SO_REUSEPORT},
		{SOL_SOCKET, SO_PRIORITY}, {SOL_SOCKET, SO_TIMESTAMP}, {SOL_SOCKET, SO_MARK}, {SOL_SOCKET, SO_ZEROCOPY},
		{SOL_SOCKET, SO_KEEPALIVE}, {SOL_SOCKET, SO_OOBINLINE}, {SOL_SOCKET, SO_ERROR}, {SOL_SOCKET, SO_REUSEADDR},
		{IPPROTO_TCP, TCP_CORK}, {IPPROTO_TCP, TCP_DEFER_ACCEPT}, {IPPROTO_TCP, TCP_USER_TIMEOUT},
		{IPPROTO_TCP, TCP_NODELAY}, {IPPROTO_TCP, TCP_FASTOPEN_CONNECT}, {IPPROTO_IP, IP_TOS}, {IPPROTO_IP, IP_RECVERR},
		{IPPROTO_IP, IP_FREEBIND}};
	static const int set[][3] = {{IPPROTO_TCP, TCP_KEEPIDLE, 40}, {IPPROTO_TCP, TCP_KEEPINTVL, 7},
		{IPPROTO_TCP, TCP_KEEPCNT, 5}, {IPPROTO_TCP, TCP_USER_TIMEOUT, 2000}, {IPPROTO_TCP, TCP_CORK, 1},
		{IPPROTO_TCP, TCP_SYNCNT, 3}, {IPPROTO_IP, IP_TTL, 9}, {IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO},
		{SOL_SOCKET, SO_REUSEPORT, 1}, {SOL_SOCKET, SO_PRIORITY, 3}, {SOL_SOCKET, SO_RCVLOWAT, 2}};
	struct linger on = {1, 7}, off = {0, 5}, got;
	socklen_t n = sizeof got;
	char name[16];
	int l = listener(), p[2];

	for (size_t i = 0; i < sizeof zero / sizeof *zero; i++)
		CHECK((errno = 0, number(l, zero[i][0], zero[i][1])) == 0);
	CHECK(number(l, SOL_SOCKET, SO_RCVLOWAT) == 1 && number(l, SOL_SOCKET, SO_SNDLOWAT) == 1);
	CHECK(number(l, IPPROTO_IP, IP_TTL) > 0 && number(l, IPPROTO_TCP, TCP_KEEPCNT) > 1);
	CHECK(!getsockopt(l, SOL_SOCKET, SO_LINGER, &got, &n) && !got.l_onoff && !got.l_linger);
	CHECK(!setsockopt(l, SOL_SOCKET, SO_LINGER, &on, n) && !setsockopt(l, SOL_SOCKET, SO_LINGER, &off, n));
	CHECK(!getsockopt(l, SOL_SOCKET, SO_LINGER, &got, &n) && !got.l_onoff && got.l_linger == 7);
	CHECK(setsockopt(l, SOL_SOCKET, SO_LINGER, &on, 4) == -1 && errno == EINVAL && !setsockopt(l, SOL_SOCKET, SO_LINGER, &on, n));
	for (size_t i = 0; i < sizeof set / sizeof *set; i++) {
		CHECK(!setsockopt(l, set[i][0], set[i][1], &set[i][2], sizeof(int)));
		CHECK(number(l, set[i][0], set[i][1]) == set[i][2]);
	}
	connected(l, p);
	CHECK(!getsockopt(p[1], SOL_SOCKET, SO_LINGER, &got, &n) && got.l_onoff && got.l_linger == 7 && n == sizeof got);
	CHECK(number(p[1], IPPROTO_TCP, TCP_KEEPCNT) == 5);
	n = sizeof name;
	CHECK(!getsockopt(l, SOL_SOCKET, SO_BINDTODEVICE, name, &n) && !n);
	struct tcp_info info = {.tcpi_snd_mss = 1};
	n = sizeof info;
	CHECK(!getsockopt(p[1], IPPROTO_TCP, TCP_INFO, &info, &n) && info.tcpi_state == TCP_ESTABLISHED && n > 100);
	CHECK(!close(p[0]) && !close(p[1]) && !close(l));
}

// Programs ask how much waits at either end, and for interfaces by any socket.
static void controls(const int p[2], int l)
{
	struct ifreq r = {.ifr_name = "lo"};
	char data[1000] = "";
	int n = -1;

	CHECK(!ioctl(p[0], SIOCOUTQ, &n) && !n && !ioctl(p[1], SIOCINQ, &n) && !n && !ioctl(p[1], SIOCATMARK, &n) && !n);
	CHECK(write(p[0], data, sizeof data) == sizeof data && events(p[1], POLLIN) == POLLIN);
	for (int i = 0; i < LIMIT_MS && (ioctl(p[0], SIOCOUTQ, &n) || n); i++)
		usleep(1000);
	CHECK(!n && !ioctl(p[0], SIOCOUTQNSD, &n) && !n && !ioctl(p[1], SIOCINQ, &n) && n == sizeof data);
	CHECK(recv(p[1], data, sizeof data, MSG_WAITALL) == sizeof data);
	CHECK(ioctl(l, SIOCINQ, &n) == -1 && errno == EINVAL && ioctl(l, SIOCOUTQ, &n) == -1 && errno == EINVAL);
	CHECK(!ioctl(p[0], SIOCGIFINDEX, &r) && r.ifr_ifindex > 0);
}

// Programs that listen at all addresses of a list leave out those that the host does not have.
static void foreign_address(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = inet_addr("203.0.113.9")};
	int s = socket(AF_INET, SOCK_STREAM, 0);

	CHECK(bind(s, (struct sockaddr *)&a, sizeof a) == -1 && errno == EADDRNOTAVAIL && !close(s));
}

// Programs copy what sendfile does not send: they know it by EINVAL.
static void not_files(int connection)
{
	struct timespec wrong = {.tv_nsec = 1000000000};
	struct pollfd p = {.fd = connection, .events = POLLOUT};
	off_t before = -1;
	int pipes[2], zero = open("/dev/zero", O_RDONLY);
	fd_set set;

	FD_ZERO(&set);
	FD_SET(connection, &set);
	CHECK(!pipe(pipes) && write(pipes[1], "x", 1) == 1);
	CHECK(sendfile(connection, pipes[0], NULL, 1) == -1 && errno == EINVAL);
	errno = 0;
	CHECK(sendfile(connection, zero, &before, 1) == -1 && errno == EINVAL);
	CHECK(ppoll(&p, 1, &wrong, NULL) == -1 && errno == EINVAL);
	CHECK(pselect(connection + 1, NULL, &set, NULL, &wrong, NULL) == -1 && errno == EINVAL);
	CHECK(lseek(connection, 0, SEEK_CUR) == -1 && errno == ESPIPE);
	CHECK(lseek64(connection, 1, SEEK_SET) == -1 && errno == ESPIPE && lseek(zero, 1, SEEK_SET) != -1);
	CHECK(!close(pipes[0]) && !close(pipes[1]) && !close(zero));
}

// Memory that the program does not have, or cannot write to. A call transfers what is before it, or nothing.
static void bad_memory(int from, int to)
{
	long page = sysconf(_SC_PAGESIZE);
	char *mem = mmap(NULL, 3 * page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), got[4] = "";
	char *volatile none = NULL; // the compiler knows that NULL is wrong

	CHECK(mem != MAP_FAILED && !munmap(mem + page, page));
	CHECK(write(from, mem + page, 5) == -1 && errno == EFAULT && write(from, none, 5) == -1 && errno == EFAULT);
	CHECK(write(from, mem + page, page) == -1 && errno == EFAULT && send(from, (char *)-1, 5, 0) == -1 && errno == EFAULT);
	struct iovec out[2] = {{"abc", 3}, {mem + page, page}}, in[2] = {{mem, 2}, {got, 3}};
	ssize_t n = writev(from, out, 2);
	CHECK(n == 3 || (n == -1 && errno == EFAULT && write(from, "abc", 3) == 3));
	CHECK(writev(from, (struct iovec *)none, 1) == -1 && errno == EFAULT && readv(to, (struct iovec *)none, 1) == -1 && errno == EFAULT);
	CHECK(read(to, mem, 3) == -1 && errno == EFAULT && read(to, mem + page, 3) == -1 && errno == EFAULT);
	CHECK(recv(to, mem, 3, MSG_PEEK) == -1 && errno == EFAULT && read(to, none, 3) == -1 && errno == EFAULT);
	CHECK(readv(to, in, 2) == -1 && errno == EFAULT);
	CHECK(recv(to, got, 3, MSG_WAITALL) == 3 && !strcmp(got, "abc") && !munmap(mem, page) && !munmap(mem + 2 * page, page));
}

// Calls that TCP refuses.
static void refuses(const int p[2])
{
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	struct sockaddr *other = (struct sockaddr *)&v6, un = {.sa_family = AF_UNIX};
	struct iovec parts[1025];
	struct msghdr m = {.msg_iov = parts, .msg_iovlen = 1025};
	int s = socket(AF_INET, SOCK_STREAM, 0);

	for (int i = 0; i < 1025; i++)
		parts[i] = (struct iovec){"x", 1};
	CHECK(bind(s, other, sizeof v6) == -1 && errno == EAFNOSUPPORT && bind(s, &un, sizeof un) == -1 && errno == EAFNOSUPPORT);
	CHECK(connect(s, other, sizeof v6) == -1 && errno == EAFNOSUPPORT);
	CHECK(connect(s, &un, sizeof un) == -1 && errno == EAFNOSUPPORT);
	CHECK(send(s, "x", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE && recv(s, &(char){0}, 1, 0) == -1 && errno == ENOTCONN);
	CHECK(sendmsg(p[0], &m, 0) == -1 && errno == EMSGSIZE && recvmsg(p[1], &m, 0) == -1 && errno == EMSGSIZE);
	CHECK(writev(p[0], parts, 1025) == -1 && errno == EINVAL);
	CHECK(recv(p[0], &(char){0}, 1, MSG_OOB) == -1 && errno == EINVAL && !close(s));
}

// Programs that answer from the address that was asked want to know it. They give it to the answer.
static void destinations(int bound)
{
	char control[100], got[4] = "";
	struct iovec one = {got, 3};
	struct sockaddr_in at = {.sin_family = AF_INET}, source;
	struct msghdr m = {.msg_name = &source, .msg_iov = &one, .msg_iovlen = 1};
	socklen_t n = sizeof at;
	int any = socket(AF_INET, SOCK_DGRAM, 0), from = socket(AF_INET, SOCK_DGRAM, 0), yes = 1, ends[] = {bound, any};

	CHECK(!bind(any, (struct sockaddr *)&at, n) && !setsockopt(any, IPPROTO_IP, IP_PKTINFO, &yes, sizeof yes));
	CHECK(!setsockopt(bound, IPPROTO_IP, IP_PKTINFO, &yes, sizeof yes));
	for (int i = 0; i < 2; i++) {
		CHECK(!getsockname(ends[i], (struct sockaddr *)&at, &n));
		at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		CHECK(sendto(from, "ask", 3, 0, (struct sockaddr *)&at, n) == 3);
		m.msg_control = control;
		m.msg_controllen = sizeof control;
		m.msg_namelen = sizeof source;
		CHECK(recvmsg(ends[i], &m, 0) == 3 && !strcmp(got, "ask") && !m.msg_flags && m.msg_controllen > 0);
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		struct in_pktinfo *info = (struct in_pktinfo *)CMSG_DATA(c);
		CHECK(c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO && !CMSG_NXTHDR(&m, c));
		CHECK(info->ipi_ifindex == (int)if_nametoindex("lo") && info->ipi_addr.s_addr == htonl(INADDR_LOOPBACK));
		memcpy(got, "yes", 3);
		CHECK(sendmsg(ends[i], &m, 0) == 3 && recv(from, got, 3, 0) == 3 && !strcmp(got, "yes"));
	}
	CHECK(sendto(from, "ask", 3, 0, (struct sockaddr *)&at, n) == 3);
	m.msg_controllen = 4;
	CHECK(recvmsg(any, &m, 0) == 3 && m.msg_flags == MSG_CTRUNC && !close(any) && !close(from));
}

// libuv makes these calls itself.
static void own_calls(const int p[2], int l)
{
	struct iovec one = {"abc", 3};
	struct mmsghdr list = {.msg_hdr = {.msg_iov = &one, .msg_iovlen = 1}};
	char got[4] = "";
	int c[2] = {socket(AF_INET, SOCK_STREAM, 0)}, d;

	CHECK(syscall(SYS_sendmmsg, p[0], &list, 1, 0) == 1 && list.msg_len == 3);
	one.iov_base = got;
	CHECK(syscall(SYS_recvmmsg, p[1], &list, 1, MSG_WAITALL, NULL) == 1 && !strcmp(got, "abc"));
	CHECK(syscall(SYS_write, p[0], "xyz", 3) == 3 && syscall(SYS_read, p[1], got, 3) == 3 && !strcmp(got, "xyz"));
	CHECK(!connect(c[0], (struct sockaddr *)&here, sizeof here));
	CHECK((c[1] = syscall(SYS_accept4, l, NULL, NULL, SOCK_NONBLOCK)) >= 0 && fcntl(c[1], F_GETFL) & O_NONBLOCK);
	CHECK((d = dup(0)) >= 0 && syscall(SYS_dup3, c[0], d, O_CLOEXEC) == d && write(d, "x", 1) == 1);
	CHECK(events(c[1], POLLIN) == POLLIN && read(c[1], got, 3) == 1);
	CHECK(!syscall(SYS_close, c[0]) && !syscall(SYS_close, d));
	CHECK(events(c[1], POLLIN) == POLLIN && !read(c[1], got, 1) && !syscall(SYS_close, c[1]));
}

// A socket is one for the file system too, and for programs that are executed: without its connection they do not wait
// for data.
static void files(int fd)
{
	char path[64], target[64] = "";
	struct statx st = {0};

	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	CHECK(readlink(path, target, sizeof target - 1) > 0 && !strncmp(target, "socket:[", 8));
	CHECK(!statx(fd, "", AT_EMPTY_PATH, STATX_TYPE, &st) && S_ISSOCK(st.stx_mode));
	CHECK(open(path, O_RDWR) == -1 && errno == ENXIO);
}

// now_refused reports whether no socket listens at an address.
static int now_refused(const struct sockaddr_in *at)
{
	int c = socket(AF_INET, SOCK_STREAM, 0);
	int refused = connect(c, (const struct sockaddr *)at, sizeof *at) && errno == ECONNREFUSED;

	CHECK(!close(c));
	return refused;
}

// Streams of the C library read and write a socket, and close it.
static void streams(int l)
{
	char text[16];
	int p[2];

	connected(l, p);
	FILE *in = fdopen(p[1], "r"), *out = fdopen(dup(p[1]), "w"), *other = fdopen(p[0], "r");
	CHECK(in && out && other && fileno(in) == p[1] && dprintf(p[0], "%s %d\n\n", "line", 1) == 8);
	CHECK(fgets(text, sizeof text, in) && !strcmp(text, "line 1\n") && fgetc(in) == '\n');
	CHECK(fprintf(out, "answer\n") == 7 && !fflush(out) && fgets(text, sizeof text, other) && !strcmp(text, "answer\n"));
	CHECK(fputs("last", out) >= 0 && !fclose(out) && !fclose(in) && fgets(text, sizeof text, other));
	CHECK(!strcmp(text, "last") && fgetc(other) == EOF && feof(other) && !ferror(other) && !fclose(other));
}

// Sockets with SO_REUSEPORT share an address: each connection comes to one of them.
static void shared_port(int type)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof at;
	int s[3], c[4], yes = 1, got = 0;

	for (int i = 0; i < 3; i++) {
		s[i] = socket(AF_INET, type | SOCK_NONBLOCK, 0);
		CHECK(i == 2 || !setsockopt(s[i], SOL_SOCKET, SO_REUSEPORT, &yes, sizeof yes));
		int bad = bind(s[i], (struct sockaddr *)&at, n);
		CHECK(i < 2 ? !bad : bad && errno == EADDRINUSE);
		CHECK(type == SOCK_DGRAM || i == 2 || !listen(s[i], 4));
		CHECK(i || !getsockname(s[0], (struct sockaddr *)&at, &n));
	}
	for (int i = 0; i < 4; i++) {
		c[i] = socket(AF_INET, type, 0);
		CHECK(!connect(c[i], (struct sockaddr *)&at, n) && send(c[i], "x", 1, 0) == 1);
	}
	for (int tries = 0; got < 4 && tries < LIMIT_MS; tries++) {
		for (int i = 0; i < 2; i++) {
			int fd = type == SOCK_DGRAM ? -1 : accept(s[i], NULL, NULL);
			got += type == SOCK_DGRAM ? recv(s[i], &(char){0}, 1, 0) == 1 : fd >= 0 && !close(fd);
		}
		usleep(1000);
	}
	CHECK(got == 4 && !close(s[0]) && (type == SOCK_DGRAM || !now_refused(&at)));
	for (int i = 0; i < 4; i++)
		CHECK(!close(c[i]));
	CHECK(!close(s[1]) && (type == SOCK_DGRAM || now_refused(&at)) && !close(s[2]));
}

// Programs may bind all of them before one listens, and have SO_REUSEADDR too.
static void shared_before(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof at;
	int s[2], c[2], yes = 1, got = 0;

	for (int i = 0; i < 2; i++) {
		s[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		CHECK(!setsockopt(s[i], SOL_SOCKET, SO_REUSEPORT, &yes, sizeof yes));
		CHECK(!setsockopt(s[i], SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) && !bind(s[i], (struct sockaddr *)&at, n));
		CHECK(!getsockname(s[i], (struct sockaddr *)&at, &n));
	}
	CHECK(!listen(s[0], 4) && !listen(s[1], 4));
	for (int i = 0; i < 2; i++)
		CHECK((c[i] = socket(AF_INET, SOCK_STREAM, 0)) >= 0 && !connect(c[i], (struct sockaddr *)&at, n));
	for (int tries = 0; got < 2 && tries < LIMIT_MS; tries++) {
		for (int i = 0; i < 2; i++) {
			int fd = accept(s[i], NULL, NULL);
			got += fd >= 0 && !close(fd);
		}
		usleep(1000);
	}
	CHECK(got == 2 && !close(s[0]) && !close(s[1]) && now_refused(&at) && !close(c[0]) && !close(c[1]));
}

// Programs drop what they do not want to read.
static void drops(const int p[2])
{
	char text[4] = "", all[40000] = "";
	char *volatile none = NULL;

	CHECK(write(p[0], all, sizeof all) == sizeof all && write(p[0], "abc", 3) == 3);
	CHECK(recv(p[1], none, 30000, MSG_TRUNC | MSG_WAITALL) == 30000 && recv(p[1], none, 1, MSG_PEEK | MSG_TRUNC) == 1);
	for (ssize_t left = 10000, n; left; left -= n)
		CHECK((n = recv(p[1], none, left, MSG_TRUNC)) > 0);
	CHECK(recv(p[1], text, 3, MSG_WAITALL) == 3 && !strcmp(text, "abc"));
	CHECK(recv(p[1], none, 10, MSG_TRUNC | MSG_DONTWAIT) == -1 && errno == EAGAIN);
}

static void *sends_later(void *arg)
{
	CHECK(!usleep(100000) && write(*(int *)arg, "cd", 2) == 2 && !shutdown(*(int *)arg, SHUT_WR));
	return NULL;
}

// MSG_WAITALL holds for MSG_PEEK too. The peer of a stream has no name in what it sends.
static void peeks(int l)
{
	char text[5] = "", name[sizeof here] = "none";
	struct iovec one = {text, 4};
	struct msghdr m = {.msg_name = name, .msg_namelen = 4, .msg_iov = &one, .msg_iovlen = 1};
	pthread_t t;
	int p[2];

	connected(l, p);
	CHECK(write(p[0], "ab", 2) == 2 && !pthread_create(&t, NULL, sends_later, &p[0]));
	CHECK(recv(p[1], text, 4, MSG_PEEK | MSG_WAITALL) == 4 && !strcmp(text, "abcd") && !pthread_join(t, NULL));
	CHECK(recv(p[1], text, 5, MSG_PEEK | MSG_WAITALL) == 4);
	CHECK(recvmsg(p[1], &m, MSG_WAITALL) == 4 && !m.msg_namelen && !strcmp(name, "none"));
	CHECK(!close(p[0]) && !close(p[1]));
}

// The queue of errors has no data.
static void no_errors(const int p[2])
{
	char c;

	CHECK(write(p[0], "x", 1) == 1 && events(p[1], POLLIN) == POLLIN);
	CHECK(recv(p[1], &c, 1, MSG_ERRQUEUE) == -1 && errno == EAGAIN && recv(p[1], &c, 1, 0) == 1);
}

// TCP_INFO of a connection that was made without waiting.
static void made_later(int l)
{
	struct tcp_info info = {0};
	socklen_t n = sizeof info;
	int c = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), s;

	CHECK(connect(c, (struct sockaddr *)&here, sizeof here) == -1 && errno == EINPROGRESS);
	CHECK(events(c, POLLOUT) == POLLOUT && (s = accept(l, NULL, NULL)) >= 0 && write(c, "x", 1) == 1);
	CHECK(!getsockopt(c, IPPROTO_TCP, TCP_INFO, &info, &n) && info.tcpi_state == TCP_ESTABLISHED);
	CHECK(info.tcpi_snd_mss && !close(c) && !close(s));
}

// Programs send datagrams of the size that TCP_MAXSEG of a connection is.
static void segment(int from, int to)
{
	static char data[1 << 16];
	int l = listener(), p[2];

	connected(l, p);
	int size = number(p[1], IPPROTO_TCP, TCP_MAXSEG);
	CHECK(size > 500 && send(from, data, size, 0) == size && recv(to, data, sizeof data, 0) == size);
	CHECK(!close(p[0]) && !close(p[1]) && !close(l));
}

// The options of a datagram socket are those of UDP.
static void options_of_udp(int s)
{
	int on = 1;

	CHECK(!setsockopt(s, SOL_SOCKET, SO_BROADCAST, &on, sizeof on) && option(s, SO_BROADCAST) == 1);
	CHECK(!setsockopt(s, SOL_SOCKET, SO_NO_CHECK, &on, sizeof on));
	CHECK(setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == -1 && errno == ENOPROTOOPT);
	CHECK(setsockopt(s, IPPROTO_TCP, TCP_CORK, &on, sizeof on) == -1 && errno == ENOPROTOOPT);
	CHECK(setsockopt(s, SOL_SOCKET, 9999, &on, sizeof on) == -1 && errno == ENOPROTOOPT);
}

// A datagram socket that is connected to AF_UNSPEC receives from all again, and sends to nobody.
static void disconnects(void)
{
	struct sockaddr_in at[3] = {}, none = {.sin_family = AF_UNSPEC}, from;
	socklen_t n = sizeof none;
	int s[3];
	char got[2];

	for (int i = 0; i < 3; i++) {
		at[i] = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
		CHECK((s[i] = socket(AF_INET, SOCK_DGRAM, 0)) >= 0 && !bind(s[i], (struct sockaddr *)&at[i], n));
		CHECK(!getsockname(s[i], (struct sockaddr *)&at[i], &n));
	}
	CHECK(!close(s[0]) && (s[0] = socket(AF_INET, SOCK_DGRAM, 0)) >= 0); // its port is one that the program has chosen
	CHECK(!bind(s[0], (struct sockaddr *)&at[0], n) && !connect(s[0], (struct sockaddr *)&at[1], n));
	CHECK(!connect(s[0], (struct sockaddr *)&none, n) && send(s[0], "x", 1, 0) == -1 && errno == EDESTADDRREQ);
	CHECK(getpeername(s[0], (struct sockaddr *)&from, &n) == -1 && errno == ENOTCONN);
	CHECK(sendto(s[2], "x", 1, 0, (struct sockaddr *)&at[0], sizeof none) == 1 && recv(s[0], got, 2, 0) == 1);
	for (int i = 0; i < 3; i++)
		CHECK(!close(s[i]));
}

// A datagram fills the buffers of a message one after the other. What does not fit is told.
static void datagrams(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, from;
	socklen_t n = sizeof at;
	char head[2], body[4] = "";
	struct iovec parts[] = {{head, sizeof head}, {NULL, 0}, {body, 3}};
	struct msghdr m = {.msg_name = &from, .msg_namelen = n, .msg_iov = parts, .msg_iovlen = 3};
	int a = socket(AF_INET, SOCK_DGRAM, 0), b = socket(AF_INET, SOCK_DGRAM, 0);

	CHECK(!bind(a, (struct sockaddr *)&at, n) && !getsockname(a, (struct sockaddr *)&at, &n));
	CHECK(!connect(b, (struct sockaddr *)&at, n) && accept(a, NULL, NULL) == -1 && errno == EOPNOTSUPP);
	CHECK(send(b, "hello", 5, 0) == 5 && recvmsg(a, &m, 0) == 5 && !memcmp(head, "he", 2) && !strcmp(body, "llo"));
	CHECK(!m.msg_flags && m.msg_namelen == sizeof from && from.sin_family == AF_INET);
	CHECK(send(b, "HELLO!", 6, 0) == 6 && recvmsg(a, &m, 0) == 5 && m.msg_flags == MSG_TRUNC && !strcmp(body, "LLO"));
	CHECK(send(b, "again", 5, 0) == 5 && recv(a, body, 2, MSG_PEEK | MSG_TRUNC) == 5 && recv(a, body, 2, 0) == 2);
	CHECK(send(b, NULL, 5, 0) == -1 && errno == EFAULT);
	parts[2].iov_base = NULL;
	CHECK(sendmsg(b, &(struct msghdr){.msg_iov = parts, .msg_iovlen = 3}, 0) == -1 && errno == EFAULT);
	CHECK(send(b, "gone", 4, 0) == 4 && recvmsg(a, &m, 0) == -1 && errno == EFAULT);
	CHECK(!send(b, "", 0, 0) && !recv(a, body, 2, 0) && option(a, SO_PROTOCOL) == IPPROTO_UDP);
	disconnects();
	options_of_udp(a);
	options_of_udp(socket(AF_INET, SOCK_DGRAM, 0));
	segment(b, a);
	destinations(a);
	shared_port(SOCK_DGRAM);
	CHECK(!close(a) && !close(b));
}

// A socket is writable once it is connected, as often as the program asks.
static void polls(void)
{
	int l = listener(), p[2];

	connected(l, p);
	for (int i = 0; i < 3; i++)
		CHECK(events(p[0], POLLOUT | POLLWRNORM) == (POLLOUT | POLLWRNORM));
	CHECK(!close(p[0]) && !close(p[1]) && !close(l));
}

int main(int count, char **words)
{
	int l, p[2];

	alarm(5 * LIMIT_S);
	if (count > 1) {
		(strcmp(words[1], "polls") ? datagrams : polls)();
		return 0;
	}
	l = listener();
	connected(l, p);
	not_listening(p[0]);
	time_outs();
	l = listener();
	other_names(p);
	ended(l);
	options(l, p[1]);
	option_values();
	l = listener();
	controls(p, l);
	not_files(p[0]);
	bad_memory(p[0], p[1]);
	refuses(p);
	own_calls(p, l);
	files(p[0]);
	streams(l);
	shared_port(SOCK_STREAM);
	shared_before();
	drops(p);
	no_errors(p);
	l = listener();
	peeks(l);
	made_later(l);
	refused();
	tries_again();
	connects_twice();
	stopped();
	foreign_address();
	return 0;
}
