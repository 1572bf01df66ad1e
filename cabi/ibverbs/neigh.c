// The MAC address of a peer, from the kernel's routes and neighbours.

#include "lib.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/neighbour.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct request {
	struct nlmsghdr h;
	union {
		struct rtmsg route;
		struct ndmsg neigh;
	};
	char attributes[RTA_SPACE(16) + RTA_SPACE(4)];
};

_Static_assert(sizeof(struct rtmsg) == sizeof(struct ndmsg), "one layout serves both requests");

struct hop {
	int family, oif, local;
	uint32_t len;
	uint8_t addr[16];
};

static void attribute(struct request *q, int type, const void *data, uint32_t len)
{
	struct rtattr *a = (struct rtattr *)((char *)q + q->h.nlmsg_len);

	a->rta_type = type;
	a->rta_len = RTA_LENGTH(len);
	memcpy(RTA_DATA(a), data, len);
	q->h.nlmsg_len += RTA_SPACE(len);
}

// ask sends the request of h and leaves the answer in buf. It returns an errno.
static int ask(int fd, const struct hop *h, int type, char *buf, size_t size)
{
	struct request q = { .h.nlmsg_type = type, .h.nlmsg_flags = NLM_F_REQUEST };
	struct nlmsghdr *r = (struct nlmsghdr *)buf;
	ssize_t n;

	q.h.nlmsg_len = offsetof(struct request, attributes);
	if (type == RTM_GETROUTE) {
		q.route.rtm_family = h->family;
		q.route.rtm_dst_len = h->len * 8;
		attribute(&q, RTA_DST, h->addr, h->len);
		if (h->oif)
			attribute(&q, RTA_OIF, &h->oif, sizeof h->oif);
	} else {
		q.neigh.ndm_family = h->family;
		q.neigh.ndm_ifindex = h->oif;
		attribute(&q, NDA_DST, h->addr, h->len);
	}
	if (send(fd, &q, q.h.nlmsg_len, 0) < 0)
		return errno;
	n = recv(fd, buf, size, 0);
	if (n < 0)
		return errno;
	if (!NLMSG_OK(r, (size_t)n))
		return EIO;
	if (r->nlmsg_type == NLMSG_ERROR)
		return -((struct nlmsgerr *)NLMSG_DATA(r))->error;
	return 0;
}

// next_hop replaces the address of h by its gateway's, if it has one.
static int next_hop(int fd, struct hop *h)
{
	char buf[4096] __attribute__((aligned(8)));
	struct nlmsghdr *r = (struct nlmsghdr *)buf;
	struct rtmsg *m = NLMSG_DATA(r);
	int e = ask(fd, h, RTM_GETROUTE, buf, sizeof buf);
	int n; // signed, as RTA_OK needs it

	if (e)
		return e == ENETUNREACH ? EHOSTUNREACH : e;
	n = RTM_PAYLOAD(r);
	for (struct rtattr *a = RTM_RTA(m); RTA_OK(a, n); a = RTA_NEXT(a, n)) {
		if (a->rta_type == RTA_OIF)
			memcpy(&h->oif, RTA_DATA(a), sizeof h->oif);
		else if (a->rta_type == RTA_GATEWAY && RTA_PAYLOAD(a) == h->len)
			memcpy(h->addr, RTA_DATA(a), h->len);
	}
	h->local = m->rtm_type == RTN_LOCAL;
	return 0;
}

// neighbour copies the MAC address of h. It answers EAGAIN while the kernel does not know it.
static int neighbour(int fd, const struct hop *h, uint8_t mac[6])
{
	const int valid = NUD_PERMANENT | NUD_NOARP | NUD_REACHABLE | NUD_PROBE | NUD_STALE | NUD_DELAY;
	char buf[4096] __attribute__((aligned(8)));
	struct nlmsghdr *r = (struct nlmsghdr *)buf;
	struct ndmsg *m = NLMSG_DATA(r);
	int e = ask(fd, h, RTM_GETNEIGH, buf, sizeof buf);
	int n; // signed, as RTA_OK needs it

	if (e)
		return e == ENOENT ? EAGAIN : e;
	if (m->ndm_state & NUD_FAILED)
		return EHOSTUNREACH;
	n = NLMSG_PAYLOAD(r, sizeof *m);
	struct rtattr *a = (struct rtattr *)((char *)m + NLMSG_ALIGN(sizeof *m));
	for (; m->ndm_state & valid && RTA_OK(a, n); a = RTA_NEXT(a, n))
		if (a->rta_type == NDA_LLADDR && RTA_PAYLOAD(a) == 6) {
			memcpy(mac, RTA_DATA(a), 6);
			return 0;
		}
	return EAGAIN;
}

// provoke makes the kernel look for the peer: it sends an empty datagram to the port of discard.
static void provoke(const struct hop *h)
{
	struct sockaddr_in s4 = { .sin_family = AF_INET, .sin_port = htons(9) };
	struct sockaddr_in6 s6 = { .sin6_family = AF_INET6, .sin6_port = htons(9), .sin6_scope_id = h->oif };
	int fd = socket(h->family, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	memcpy(&s4.sin_addr, h->addr, 4);
	memcpy(&s6.sin6_addr, h->addr, 16);
	if (fd < 0)
		return;
	if (h->family == AF_INET)
		sendto(fd, "", 0, MSG_DONTWAIT, (struct sockaddr *)&s4, sizeof s4);
	else
		sendto(fd, "", 0, MSG_DONTWAIT, (struct sockaddr *)&s6, sizeof s6);
	close(fd);
}

int vb_peer_mac(const uint8_t gid[16], int ifindex, uint8_t mac[6])
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	struct hop h = { .family = AF_INET6, .len = 16 };
	int fd, e;

	if (gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80) // link-local: the address alone does not name the interface
		h.oif = ifindex;
	memcpy(h.addr, gid, 16);
	if (!memcmp(gid, mapped, 12)) {
		h.family = AF_INET;
		h.len = 4;
		memcpy(h.addr, gid + 12, 4);
	}
	fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	if (fd < 0)
		return errno;
	e = next_hop(fd, &h);
	if (!e && !h.local) {
		e = neighbour(fd, &h, mac);
		if (e == EAGAIN || e == EHOSTUNREACH)
			provoke(&h);
		for (int i = 0; i < 400 && (e == EAGAIN || (e == EHOSTUNREACH && i < 2)); i++) {
			poll(NULL, 0, 10);
			e = neighbour(fd, &h, mac);
		}
	}
	close(fd);
	return e == EAGAIN ? EHOSTUNREACH : e;
}
