// Datagrams of libibumad between the two ports of a device. Each port has its agents, although they are for the same
// requests.
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/umad.h>
#include <infiniband/verbs.h>
#include <string.h>

#include "check.h"
#include "device.h"

enum { CLASS = 0x0a, GET = 1, LENGTH = 256 };

static union { struct ib_user_mad u; char room[sizeof(struct ib_user_mad) + LENGTH]; } m;

// index_of returns the index of an IPv4 address in the GID table of a port, and writes its GID.
static int index_of(int port, const char *address, uint8_t gid[16])
{
	char mapped[64] = "::ffff:";
	struct ibv_context *c = open_device("two");
	union ibv_gid g;

	MUST(c && inet_pton(AF_INET6, strcat(mapped, address), gid) == 1);
	for (int i = 0; !ibv_query_gid(c, port, i, &g); i++)
		if (!memcmp(&g, gid, 16)) {
			MUST(!ibv_close_device(c));
			return i;
		}
	MUST(!"the address in the GID table");
	return -1;
}

// ask sends a request from an agent of a port to an address.
static void ask(int fd, int agent, int port, const char *from, const char *address)
{
	ib_mad_addr_t to = {.hop_limit = 64};
	uint8_t *mad = umad_get_mad(&m);

	memset(&m, 0, sizeof m);
	to.gid_index = index_of(port, from, to.gid);
	index_of(3 - port, address, to.gid);
	umad_set_addr(&m, 0, 1, 0, 0x80010000);
	umad_set_grh(&m, &to);
	mad[0] = mad[2] = 1;
	mad[1] = CLASS;
	mad[3] = GET;
	MUST(!umad_send(fd, agent, &m, LENGTH, 0, 0));
}

// gets receives a request at a port from an address of the other one.
static void gets_from(int fd, int agent, int port, const char *at, const char *from)
{
	uint8_t gid[16];
	int length = LENGTH;

	MUST(umad_recv(fd, &m, &length, 20000) == agent);
	MUST(umad_get_mad_addr(&m)->gid_index == index_of(port, at, gid));
	index_of(3 - port, from, gid);
	MUST(!memcmp(umad_get_mad_addr(&m)->gid, gid, 16));
}

int main(void)
{
	const char *first = "127.0.9.3", *second = "127.0.9.4";
	long methods[16 / sizeof(long)] = {1 << GET};
	int a = umad_open_port("two", 1), b = umad_open_port("two", 2), any = umad_open_port("two", 0);

	MUST(a >= 0 && b >= 0 && any >= 0 && umad_open_port("two", 3) == -EINVAL);
	int at_a = umad_register(a, CLASS, 1, 0, methods), at_b = umad_register(b, CLASS, 1, 0, methods);
	MUST(at_a >= 0 && at_b >= 0);
	MUST(umad_register(any, CLASS, 1, 0, methods) == -EPERM); // it is port 1
	ask(a, at_a, 1, first, second);
	gets_from(b, at_b, 2, second, first);
	ask(b, at_b, 2, second, first);
	gets_from(a, at_a, 1, first, second);
	MUST(umad_poll(a, 0) == -ETIMEDOUT && umad_poll(b, 0) == -ETIMEDOUT);
	MUST(!umad_close_port(a) && !umad_close_port(b) && !umad_close_port(any));
	return 0;
}
