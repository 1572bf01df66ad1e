// The MAC address of a neighbour, of a peer behind a gateway, of this host, and of nobody.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"

// Debian 12 has no header for it.
int ibv_resolve_eth_l2_from_gid(struct ibv_context *, struct ibv_ah_attr *, uint8_t mac[6], uint16_t *vlan);

static const uint8_t none[6], neighbour[6] = { 2, 0, 0, 0, 0, 7 }, gateway[6] = { 2, 0, 0, 0, 0, 8 },
			      six[6] = { 2, 0, 0, 0, 0, 9 };

static const struct {
	const char *gid;
	int error;
	const uint8_t *mac;
} cases[] = {
	{ "::ffff:10.9.9.2", 0, neighbour },
	{ "::ffff:10.9.9.1", 0, none }, // this host
	{ "::ffff:10.8.8.1", EHOSTUNREACH, none },
	{ "::ffff:10.7.7.7", 0, gateway },
	{ "2001:db8::2", 0, six },
	{ "fe80::2", 0, six },
	{ "2001:db8:1::2", EHOSTUNREACH, none },
};

// device opens the one of d0 in a network namespace of this program.
static struct ibv_context *device(void)
{
	if (unshare(CLONE_NEWNET) ||
	    system("ip link add d0 type veth peer name d1 && ip link set lo up && ip link set d1 up && ip link set d0 up && "
		   "ip addr add 10.9.9.1/24 dev d0 && ip addr add 2001:db8::1/64 dev d0 nodad && "
		   "ip route add 10.7.7.0/24 via 10.9.9.3 && ip neigh add 2001:db8::2 lladdr 02:00:00:00:00:09 dev d0 && "
		   "ip neigh add fe80::2 lladdr 02:00:00:00:00:09 dev d0 && "
		   "ip neigh add 10.9.9.2 lladdr 02:00:00:00:00:07 dev d0 && "
		   "ip neigh add 10.9.9.3 lladdr 02:00:00:00:00:08 dev d0"))
		return NULL;
	return open_device("vrb_d0");
}

int main(void)
{
	struct ibv_context *x = device();
	int bad = 0;

	if (!x)
		return 1;
	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct ibv_ah_attr a = { .is_global = 1 };
		uint8_t mac[6];
		uint16_t vlan = 0;
		int e;

		inet_pton(AF_INET6, cases[i].gid, a.grh.dgid.raw);
		errno = 0;
		e = ibv_resolve_eth_l2_from_gid(x, &a, mac, &vlan) ? errno : 0;
		if (e == cases[i].error && !memcmp(mac, cases[i].mac, 6) && (e || vlan == 0xffff))
			continue;
		printf("%s: errno %d, VLAN %x, MAC address ends with %d\n", cases[i].gid, e, vlan, mac[5]);
		bad = 3;
	}
	return bad;
}
