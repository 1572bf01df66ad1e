// IP_PKTINFO and IPV6_RECVPKTINFO: to which address a datagram was sent. An rsocket at all addresses of the host does
// not tell it. It is taken from the route to the sender then.
#define _GNU_SOURCE
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>

#include "sockets.h"

int pktinfo_wanted(int rs)
{
	int v6 = own(rs)->domain == AF_INET6;

	return kept_option(rs, v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_RECVPKTINFO : IP_PKTINFO) > 0;
}

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
	struct sockaddr_storage all;
};

static int unspecified(const union address *a)
{
	return a->any.sa_family == AF_INET6 ? IN6_IS_ADDR_UNSPECIFIED(&a->v6.sin6_addr) : !a->v4.sin_addr.s_addr;
}

// local_of finds the local address of a datagram. It returns 0 if there is none.
static int local_of(int rs, const struct sockaddr_storage *from, union address *local)
{
	socklen_t n = sizeof *local;

	if (rgetsockname(rs, &local->any, &n))
		return 0;
	if (!unspecified(local))
		return 1;
	int s = toward(from);
	if (s < 0)
		return 0;
	n = sizeof *local;
	int found = !NEXT(getsockname)(s, &local->any, &n);
	NEXT(close)(s);
	return found;
}

static int same(const union address *a, const struct sockaddr *b)
{
	if (!b || a->any.sa_family != b->sa_family)
		return 0;
	return b->sa_family == AF_INET ? a->v4.sin_addr.s_addr == ((const struct sockaddr_in *)b)->sin_addr.s_addr :
					 !memcmp(&a->v6.sin6_addr, &((const struct sockaddr_in6 *)b)->sin6_addr, 16);
}

// interface_of returns the index of the interface with an address; 0 for none.
static unsigned int interface_of(const union address *a)
{
	struct ifaddrs *all = NULL;
	unsigned int index = 0;

	if (getifaddrs(&all))
		return 0;
	for (struct ifaddrs *i = all; i && !index; i = i->ifa_next)
		if (same(a, i->ifa_addr))
			index = if_nametoindex(i->ifa_name);
	freeifaddrs(all);
	return index;
}

socklen_t pktinfo_tell(int rs, const struct sockaddr_storage *from, void *control, socklen_t room, int *flags)
{
	union address local = {0};
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(struct in6_pktinfo))];
	} c = {0};
	int e = errno;

	if (!local_of(rs, from, &local)) {
		errno = e;
		return 0;
	}
	if (local.any.sa_family == AF_INET6) {
		struct in6_pktinfo info = {local.v6.sin6_addr, interface_of(&local)};
		c.head = (struct cmsghdr){CMSG_LEN(sizeof info), IPPROTO_IPV6, IPV6_PKTINFO};
		memcpy(CMSG_DATA(&c.head), &info, sizeof info);
	} else {
		struct in_pktinfo info = {interface_of(&local), local.v4.sin_addr, local.v4.sin_addr};
		c.head = (struct cmsghdr){CMSG_LEN(sizeof info), IPPROTO_IP, IP_PKTINFO};
		memcpy(CMSG_DATA(&c.head), &info, sizeof info);
	}
	errno = e;
	if (room < c.head.cmsg_len) {
		*flags |= MSG_CTRUNC;
		return 0;
	}
	return put(control, &c, c.head.cmsg_len) ? 0 : c.head.cmsg_len;
}

int pktinfo_only(const struct msghdr *m)
{
	struct msghdr copy = *m;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(&copy); c; c = CMSG_NXTHDR(&copy, c))
		if (!(c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) &&
		    !(c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO))
			return 0;
	return 1;
}
