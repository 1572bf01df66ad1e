// The options of sockets.
#define _GNU_SOURCE
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "sockets.h"

int milliseconds(const void *value, socklen_t n)
{
	struct timeval t;

	if (n < sizeof t)
		return -1;
	memcpy(&t, value, sizeof t);
	if (t.tv_sec < 0 || t.tv_usec < 0 || t.tv_usec > 999999)
		return -1;
	return t.tv_sec > 1000000 ? 0 : (int)(t.tv_sec * 1000 + (t.tv_usec + 999) / 1000);
}

static atomic_int *timeout_of(int rs, int level, int name)
{
	if (level != SOL_SOCKET)
		return NULL;
	return name == SO_RCVTIMEO ? &own(rs)->receive_ms : name == SO_SNDTIMEO ? &own(rs)->send_ms : NULL;
}

enum kind { ANY, YES_NO, FIXED }; // FIXED: the program cannot set it of a stream

// kept are the options that tune TCP, or ask for what an rsocket does not tell: a program loses nothing if they have no
// effect. It reads what it has set, or what a socket of Linux has at first.
static const struct option {
	int level, name, first;
	enum kind kind;
} kept[] = {
	{SOL_SOCKET, SO_REUSEPORT, 0, YES_NO}, {SOL_SOCKET, SO_PRIORITY, 0, ANY}, {SOL_SOCKET, SO_RCVLOWAT, 1, ANY},
	{SOL_SOCKET, SO_INCOMING_CPU, -1, ANY}, {SOL_SOCKET, SO_TIMESTAMP, 0, YES_NO}, {SOL_SOCKET, SO_BUSY_POLL, 0, ANY},
	{SOL_SOCKET, SO_BROADCAST, 0, FIXED}, {SOL_SOCKET, SO_DEBUG, 0, FIXED}, {SOL_SOCKET, SO_DONTROUTE, 0, YES_NO},
	{SOL_SOCKET, SO_SNDLOWAT, 1, FIXED}, {SOL_SOCKET, SO_MARK, 0, FIXED}, {SOL_SOCKET, SO_ZEROCOPY, 0, FIXED},
	{SOL_SOCKET, SO_RXQ_OVFL, 0, FIXED},
	{IPPROTO_TCP, TCP_CORK, 0, YES_NO}, {IPPROTO_TCP, TCP_QUICKACK, 1, YES_NO}, {IPPROTO_TCP, TCP_DEFER_ACCEPT, 0, ANY},
	{IPPROTO_TCP, TCP_FASTOPEN, 0, ANY}, {IPPROTO_TCP, TCP_KEEPINTVL, 75, ANY}, {IPPROTO_TCP, TCP_KEEPCNT, 9, ANY},
	{IPPROTO_TCP, TCP_USER_TIMEOUT, 0, ANY}, {IPPROTO_TCP, TCP_LINGER2, 60, ANY}, {IPPROTO_TCP, TCP_SYNCNT, 6, ANY},
	{IPPROTO_TCP, TCP_WINDOW_CLAMP, 0, ANY}, {IPPROTO_TCP, TCP_FASTOPEN_CONNECT, 0, YES_NO},
	{IPPROTO_TCP, TCP_NOTSENT_LOWAT, 0, ANY},
	{IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_WANT, ANY}, {IPPROTO_IP, IP_RECVERR, 0, YES_NO}, {IPPROTO_IP, IP_TTL, 64, ANY},
	{IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 0, YES_NO}, {IPPROTO_IP, IP_FREEBIND, 0, FIXED},
	{IPPROTO_IP, IP_TRANSPARENT, 0, FIXED},
	{IPPROTO_IP, IP_PKTINFO, 0, YES_NO}, {IPPROTO_IPV6, IPV6_RECVPKTINFO, 0, YES_NO},
	{IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_WANT, ANY}, {IPPROTO_IPV6, IPV6_RECVERR, 0, YES_NO},
	{IPPROTO_IPV6, IPV6_TCLASS, 0, ANY}, {IPPROTO_IPV6, IPV6_UNICAST_HOPS, 64, ANY},
};
enum { COUNT = sizeof kept / sizeof *kept };
_Static_assert((int)COUNT <= (int)KEPT, "KEPT");

void options_begin(int rs, int from)
{
	struct slot *to = own(rs), *as = from < 0 ? NULL : own(from);

	atomic_store(&to->receive_ms, as ? as->receive_ms : 0);
	atomic_store(&to->send_ms, as ? as->send_ms : 0);
	atomic_store(&to->linger, as ? as->linger : 0);
	atomic_store(&to->linger_s, as ? as->linger_s : 0);
	for (int i = 0; i < COUNT; i++)
		atomic_store(&to->kept[i], as ? as->kept[i] : kept[i].first);
}

// index_of returns the place of a kept option; -1 for another one.
static int index_of(int level, int name)
{
	for (int i = 0; i < COUNT; i++)
		if (kept[i].level == level && kept[i].name == name)
			return i;
	return -1;
}

int kept_option(int rs, int level, int name)
{
	int i = index_of(level, name);

	return i < 0 ? -1 : atomic_load(&own(rs)->kept[i]);
}

// set_kept keeps an option. One of IP may have one byte. The UDP socket behind a datagram socket has it too.
static int set_kept(int rs, int i, const void *value, socklen_t n)
{
	int v;

	if (own(rs)->type == SOCK_DGRAM) {
		if (rsetsockopt(rs, kept[i].level, kept[i].name, value, n)) {
			parent_tell(rs);
			return -1;
		}
	} else if (kept[i].kind == FIXED) {
		return fail(ENOPROTOOPT);
	}
	if (n >= sizeof v)
		memcpy(&v, value, sizeof v);
	else if (n && kept[i].level == IPPROTO_IP)
		v = *(const unsigned char *)value;
	else
		return fail(EINVAL);
	atomic_store(&own(rs)->kept[i], kept[i].kind == YES_NO ? !!v : v);
	return 0;
}

// options_of_tcp keeps the options that a program has set of a TCP socket, which an rsocket takes the place of.
void options_of_tcp(int rs, int tcp)
{
	struct linger l;
	socklen_t n;

	for (int i = 0; i < COUNT; i++) {
		int v;
		n = sizeof v;
		if (kept[i].kind != FIXED && !NEXT(getsockopt)(tcp, kept[i].level, kept[i].name, &v, &n) && n == sizeof v)
			atomic_store(&own(rs)->kept[i], v);
	}
	n = sizeof l;
	if (!NEXT(getsockopt)(tcp, SOL_SOCKET, SO_LINGER, &l, &n)) {
		atomic_store(&own(rs)->linger, l.l_onoff);
		atomic_store(&own(rs)->linger_s, l.l_linger);
	}
}

// set_linger keeps SO_LINGER. As in the kernel, the time is that of the last call that has switched it on.
static void set_linger(int rs, const struct linger *l)
{
	if (l->l_onoff)
		atomic_store(&own(rs)->linger_s, l->l_linger);
	atomic_store(&own(rs)->linger, !!l->l_onoff);
}

static int set_timeout(atomic_int *timeout, const void *value, socklen_t n)
{
	int ms = milliseconds(value, n);

	if (ms < 0)
		return fail(n >= sizeof(struct timeval) ? EDOM : EINVAL);
	atomic_store(timeout, ms);
	return 0;
}

// with_new calls a function of options with a new socket of the kernel, for options that an rsocket does not know: their
// errno, or what they are at first.
static int with_new(int rs, int (*f)(int fd, int level, int name, void *, socklen_t *), int level, int name, void *value,
		    socklen_t *n)
{
	int s = NEXT(socket)(own(rs)->domain, own(rs)->type | SOCK_CLOEXEC, 0);

	if (s < 0)
		return fail(ENOPROTOOPT);
	int result = f(s, level, name, value, n), e = errno;
	NEXT(close)(s);
	errno = e;
	return result;
}

static int set_new(int fd, int level, int name, void *value, socklen_t *n)
{
	return NEXT(setsockopt)(fd, level, name, value, *n);
}

static int get_new(int fd, int level, int name, void *value, socklen_t *n)
{
	return NEXT(getsockopt)(fd, level, name, value, n);
}

int setsockopt(int fd, int level, int name, const void *value, socklen_t n)
{
	int rs = now_of(fd);

	if (rs < 0)
		return link_ignores(fd, level, name) ? 0 : NEXT(setsockopt)(fd, level, name, value, n);
	GUARD(0);
	atomic_int *timeout = timeout_of(rs, level, name);
	int i = index_of(level, name), linger = level == SOL_SOCKET && name == SO_LINGER;
	if (!readable(value, n))
		return fail(EFAULT);
	if (timeout)
		return set_timeout(timeout, value, n);
	if (linger && n < sizeof(struct linger))
		return fail(EINVAL);
	if (i >= 0)
		return set_kept(rs, i, value, n);
	if (level == IPPROTO_TCP && (name == TCP_CONGESTION || name == TCP_MAXSEG))
		return 0;
	int result = rsetsockopt(rs, level, name, value, n);
	if (result)
		parent_tell(rs);
	else if (linger)
		set_linger(rs, value);
	if (!result || errno != ENOTSUP)
		return result;
	return with_new(rs, set_new, level, name, (void *)value, &n) ? -1 : fail(ENOPROTOOPT);
}

// number writes the value of an option that this library knows, and returns whether it does.
static int number(int rs, int level, int name, int *v)
{
	int i = index_of(level, name);

	if (i >= 0) {
		*v = own(rs)->kept[i];
		return 1;
	}
	if (level != SOL_SOCKET)
		return 0;
	switch (name) {
	case SO_TYPE:
		*v = own(rs)->type;
		return 1;
	case SO_DOMAIN:
		*v = own(rs)->domain;
		return 1;
	case SO_PROTOCOL:
		*v = own(rs)->type == SOCK_STREAM ? IPPROTO_TCP : IPPROTO_UDP;
		return 1;
	case SO_ACCEPTCONN:
		*v = listens(rs);
		return 1;
	}
	return 0;
}

// mtu_of is IP_MTU, of the kernel's route to the peer.
static int mtu_of(int rs, int level, int name, void *value, socklen_t *n)
{
	struct sockaddr_storage peer;
	socklen_t length = sizeof peer;

	if (getpeername(rs, (struct sockaddr *)&peer, &length))
		return -1;
	int s = toward(&peer), e;
	if (s < 0)
		return -1;
	int result = NEXT(getsockopt)(s, level, name, value, n);
	e = errno;
	NEXT(close)(s);
	errno = e;
	return result;
}

// cookie_of returns SO_COOKIE: a number that no other socket of this process has.
static uint64_t cookie_of(int rs)
{
	static atomic_ullong last;
	unsigned long long none = 0, new = ((uint64_t)getpid() << 32) + atomic_fetch_add(&last, 1) + 1;

	return atomic_compare_exchange_strong(&own(rs)->cookie, &none, new) ? new : none;
}

// value is that of an option.
union value {
	struct timeval time;
	struct linger linger;
	struct ucred of_peer;
	uint64_t cookie;
	char info[256], bytes[1024];
	int number;
};

// of_socket writes an option of SOL_SOCKET that this library knows. It returns its length, 0 for another option.
static socklen_t of_socket(int rs, int name, union value *to)
{
	struct slot *s = own(rs);

	switch (name) {
	case SO_RCVTIMEO:
	case SO_SNDTIMEO: {
		int ms = *timeout_of(rs, SOL_SOCKET, name);
		to->time = (struct timeval){ms / 1000, ms % 1000 * 1000};
		return sizeof to->time;
	}
	case SO_LINGER:
		to->linger = (struct linger){s->linger, s->linger_s};
		return sizeof to->linger;
	case SO_PEERCRED: // a peer of another host may be anyone
		to->of_peer = (struct ucred){0, -1, -1};
		return sizeof to->of_peer;
	case SO_COOKIE:
		to->cookie = cookie_of(rs);
		return sizeof to->cookie;
	case SO_ERROR:
		return (to->number = atomic_exchange(&s->error, 0)) ? sizeof to->number : 0;
	}
	return 0;
}

// known writes the value of an option that this library knows. It returns its length, 0 for another option.
static socklen_t known(int rs, int level, int name, union value *to)
{
	if (number(rs, level, name, &to->number))
		return sizeof to->number;
	if (level == SOL_SOCKET)
		return of_socket(rs, name, to);
	if (level == IPPROTO_TCP && name == TCP_INFO && own(rs)->type == SOCK_STREAM)
		return tell_info(rs, to->info, sizeof to->info);
	return 0;
}

// asked_of_kernel reports whether the kernel has a better value of an option than the rsocket.
static int asked_of_kernel(int rs, int level, int name)
{
	return (level == IPPROTO_TCP && name == TCP_CONGESTION) || (level == IPPROTO_IPV6 && own(rs)->domain == AF_INET);
}

// LONGEST_DATAGRAM is that of an rsocket of IPv6. iperf3 sends datagrams as long as TCP_MAXSEG of its other connection.
#define LONGEST_DATAGRAM 2024

// get reads an option, which has up to *n bytes.
static int get(int rs, int level, int name, union value *to, socklen_t *n)
{
	socklen_t whole = known(rs, level, name, to);

	if (whole) {
		*n = whole;
		return 0;
	}
	if (level == IPPROTO_IP ? name == IP_MTU : level == IPPROTO_IPV6 && name == IPV6_MTU && own(rs)->domain == AF_INET6)
		return mtu_of(rs, level, name, to, n);
	if (asked_of_kernel(rs, level, name))
		return with_new(rs, get_new, level, name, to, n);
	int result = rgetsockopt(rs, level, name, to, n);
	if (!result) {
		if (level == IPPROTO_TCP && name == TCP_MAXSEG && to->number > LONGEST_DATAGRAM)
			to->number = LONGEST_DATAGRAM;
		return 0;
	}
	parent_tell(rs);
	return errno == ENOTSUP ? with_new(rs, get_new, level, name, to, n) : -1;
}

int getsockopt(int fd, int level, int name, void *restrict value, socklen_t *restrict n)
{
	int rs = now_of(fd);

	if (rs < 0)
		return NEXT(getsockopt)(fd, level, name, value, n);
	GUARD(0);
	if (!n || !readable(n, sizeof *n))
		return fail(EFAULT);
	union value all = {0};
	socklen_t room = *n, whole = sizeof all;
	if ((int)room < 0)
		return fail(EINVAL);
	if (level == SOL_SOCKET && name == SO_COOKIE && room < sizeof all.cookie)
		return fail(EINVAL);
	if (level == SOL_SOCKET && name == SO_BINDTODEVICE)
		whole = 0;
	else if (get(rs, level, name, &all, &whole))
		return -1;
	whole = whole < room ? whole : room;
	return put(value, &all, whole) || put(n, &whole, sizeof whole) ? -1 : 0;
}
