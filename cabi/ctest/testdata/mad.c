// Datagrams of libibumad between two agents: a request, its answer, and a request without one, in a partition that is
// not the default one.
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/umad.h>
#include <infiniband/umad_str.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include "check.h"
#include "device.h"

enum { CLASS = 0x0a, GET = 1, GET_RESP = 0x81, LENGTH = 256, OTHER = 1 };

static union { struct ib_user_mad u; char room[sizeof(struct ib_user_mad) + LENGTH]; } m;

// loopback writes the GID of 127.0.9.1 and returns its index.
static int loopback(uint8_t gid[16])
{
	struct ibv_context *c = open_device("vrb_lo");
	union ibv_gid g;

	MUST(c);
	inet_pton(AF_INET6, "::ffff:127.0.9.1", gid);
	for (int i = 0; !ibv_query_gid(c, 1, i, &g); i++)
		if (!memcmp(&g, gid, 16))
			return i;
	MUST(!"127.0.9.1 in the GID table");
	return -1;
}

static void address(uint8_t method)
{
	ib_mad_addr_t to = {.hop_limit = 64};
	uint8_t *mad = umad_get_mad(&m);

	memset(&m, 0, sizeof m);
	to.gid_index = loopback(to.gid);
	umad_set_addr(&m, 0, 1, 0, 0x80010000);
	umad_set_grh(&m, &to);
	umad_set_pkey(&m, OTHER);
	mad[0] = 1;
	mad[1] = CLASS;
	mad[2] = 1;
	mad[3] = method;
	memcpy(mad + 8, "programs", 8); // the transaction ID
	mad[200] = 42;
}

// WANT_NEG requires a failure that returns a negated errno, and sets errno too.
#define WANT_NEG(call, e) MUST((errno = 0, call) == -(e) && errno == (e))

#define WANT_IO(call, e) MUST((errno = 0, call) == -EIO && errno == (e))

// refused has calls fail. Nothing waits at the port.
static void refused(int port)
{
	int length = LENGTH, small = LENGTH - 1;

	WANT_NEG(umad_recv(port, &m, &length, 20), ETIMEDOUT);
	WANT_NEG(umad_poll(port, 0), ETIMEDOUT);
	WANT_NEG(umad_poll(-1, 0), EINVAL);
	WANT_NEG(umad_recv(-1, &m, &length, 0), EINVAL);
	WANT_NEG(umad_recv(port, &m, &small, 20), ETIMEDOUT); // it does not know how long the next one is
	MUST(small == LENGTH - 1);
	WANT_NEG(umad_recv(port, &m, &length, 0), EWOULDBLOCK); // 0 does not wait
	WANT_NEG(umad_recv(port, &m, &small, 0), EWOULDBLOCK);
	WANT_IO(umad_send(-1, 0, &m, LENGTH, 0, 0), EINVAL);
	WANT_IO(umad_send(port, 0, &m, LENGTH + 1, 0, 0), EINVAL);
}

static void on_alarm(int sig) {}

// interrupted has a handler of a signal end waits, which fail as those of libibumad do. The signal comes again, in case
// that the first one comes before the wait.
static void interrupted(int port)
{
	struct sigaction a = {.sa_handler = on_alarm};
	struct itimerval often = {{0, 20000}, {0, 20000}}, off = {};
	int length = LENGTH;

	MUST(!sigaction(SIGALRM, &a, NULL) && !setitimer(ITIMER_REAL, &often, NULL));
	MUST(umad_poll(port, 20000) == -EIO && errno == EINTR);
	MUST(umad_recv(port, &m, &length, 20000) == -EIO && errno == EINTR);
	MUST(!setitimer(ITIMER_REAL, &off, NULL));
}

// vendors registers for a class of vendors, which has an OUI, and for one that does not exist.
static void vendors(int port)
{
	struct umad_reg_attr a = {.mgmt_class = 0x30, .mgmt_class_version = 1, .oui = 0x1405};
	uint8_t none[3] = {0}, oui[3] = {0, 0x14, 0x05};
	uint32_t agent;

	MUST(!umad_register2(port, &a, &agent) && !umad_unregister(port, agent));
	a.oui = 0;
	MUST(umad_register2(port, &a, &agent) == EINVAL);
	a.oui = 1 << 24;
	MUST(umad_register2(port, &a, &agent) == EINVAL);
	MUST(umad_register_oui(port, 0x30, 0, none, NULL) == -EPERM);
	int by_oui = umad_register_oui(port, 0x30, 0, oui, NULL), plain = umad_register(port, 0x30, 1, 0, NULL);
	MUST(by_oui >= 0 && plain >= 0 && !umad_unregister(port, by_oui) && !umad_unregister(port, plain));
	MUST(umad_register(port, 0x50, 1, 0, NULL) == -EPERM);
}

// asks_vendor sends a request of a class of vendors, and receives it.
static void asks_vendor(int port, const uint8_t oui[3], int agent)
{
	uint8_t *mad = umad_get_mad(&m);
	int length = LENGTH;

	address(GET);
	mad[1] = 0x32;
	memcpy(mad + 37, oui, 3);
	MUST(!umad_send(port, agent, &m, LENGTH, 0, 0) && umad_recv(port, &m, &length, 20000) == agent);
}

// routes has requests of two vendors get to the agents of these. umad_register is for OpenIB.
static void routes(int port, long methods[])
{
	uint8_t openib[3] = {0, 0x14, 0x05}, mellanox[3] = {0, 0x02, 0xc9};
	int a = umad_register(port, 0x32, 1, 0, methods), b = umad_register_oui(port, 0x32, 0, mellanox, methods);

	MUST(a >= 0 && b >= 0 && umad_register_oui(port, 0x32, 0, openib, methods) == -EPERM);
	asks_vendor(port, mellanox, b);
	asks_vendor(port, openib, a);
	MUST(!umad_unregister(port, a) && !umad_unregister(port, b));
}

// registers has registrations fail. server has the method of mask.
static void registers(int port, long mask[])
{
	struct umad_reg_attr a = {.mgmt_class = CLASS, .mgmt_class_version = 1, .flags = UMAD_USER_RMPP | 8};
	uint32_t agent;

	MUST(umad_register(-1, CLASS, 1, 0, NULL) == -EINVAL);
	MUST(umad_register(port, CLASS, 1, 0, mask) == -EPERM && umad_register(port, 0x81, 1, 0, NULL) == -EPERM);
	MUST(umad_register2(port, &a, &agent) == EINVAL && a.flags == UMAD_USER_RMPP); // those that are known
	MUST(!umad_register2(port, &a, &agent) && !umad_unregister(port, agent));
}

#define SAYS(call, text) MUST(!strcmp(call, text))

// names are those of libibumad.
static void names(void)
{
	SAYS(umad_class_str(0x81), "Subn");
	SAYS(umad_class_str(0x03), "SubnAdm");
	SAYS(umad_class_str(0x30), "Vendor");
	SAYS(umad_class_str(0x22), "Application");
	SAYS(umad_class_str(0x99), "<unknown>");
	SAYS(umad_method_str(0x03, 0x92), "GetTableResp");
	SAYS(umad_common_mad_status_str(htons(0x0c)), "Method/Attribute combo not supported");
	SAYS(umad_common_mad_status_str(htons(0x14)), "Success"); // reserved
	SAYS(umad_method_str(0x03, 0x93), "<unknown"); // spelled so in libibumad; the answer is GetTableResp
	SAYS(umad_sa_mad_status_str(htons(0x0300)), "No Records");
	SAYS(umad_sa_mad_status_str(htons(0x0900)), "Undefined Error");
	SAYS(umad_attribute_str(0x04, htons(1)), "Class Port Info");
	SAYS(umad_attribute_str(0x81, htons(0x15)), "PortInfo");
	SAYS(umad_attribute_str(0x03, htons(0x35)), "PathRecord");
	SAYS(umad_attribute_str(0x03, htons(2)), "Notice");
	SAYS(umad_attribute_str(0x07, htons(0x1c)), "SuggestPathResponse");
	SAYS(umad_attribute_str(0x04, htons(0x35)), "<unknown>");
}

// devices has calls about devices succeed, which leave errno, and fail.
static void devices(void)
{
	umad_ca_t ca;
	umad_port_t p;

	errno = 0;
	MUST(!umad_get_ca("vrb_lo", &ca) && !strcmp(ca.ca_name, "vrb_lo") && ca.numports == 1 && !umad_release_ca(&ca));
	MUST(!umad_get_port("vrb_lo", 0, &p) && p.portnum == 1 && !umad_release_port(&p) && !errno);
	MUST(umad_get_ca("none", &ca) == -ENODEV && umad_get_port("vrb_lo", -1, &p) < 0);
	MUST(umad_open_port("vrb_lo", -1) == -EINVAL && umad_open_port("vrb_lo", 2) == -EINVAL);
	MUST(umad_open_port("none", 1) == -ENODEV);
}

// leaves ends an agent that waits for an answer. Nothing comes back to it.
static void leaves(int port)
{
	int agent = umad_register(port, CLASS, 1, 0, NULL);

	address(GET);
	MUST(agent >= 0 && !umad_send(port, agent, &m, LENGTH, 20000, 0) && !umad_unregister(port, agent));
	WANT_NEG(umad_poll(port, 100), ETIMEDOUT);
}

int main(void)
{
	long methods[16 / sizeof(long)] = {1 << GET};
	int port = umad_open_port("vrb_lo", 1), length = LENGTH;
	struct pollfd p = {.fd = umad_get_fd(port), .events = POLLIN};
	uint8_t *mad = umad_get_mad(&m);

	MUST(port >= 0 && p.fd >= 0);
	MUST(umad_open_port("none", 1) < 0);
	MUST(umad_register(port, 0x81, 1, 0, NULL) < 0);
	int server = umad_register(port, CLASS, 1, 0, methods), client = umad_register(port, CLASS, 1, 0, NULL);
	MUST(server >= 0 && client >= 0 && server != client);
	refused(port);
	interrupted(port);
	registers(port, methods);
	vendors(port);
	routes(port, methods);
	names();
	devices();
	MUST(poll(&p, 1, 0) == 0);

	address(GET);
	MUST(umad_send(port, client, &m, LENGTH, 20000, 2) == 0);
	MUST(umad_poll(port, 20000) == 0 && poll(&p, 1, 0) == 1);
	length = 24;
	WANT_NEG(umad_recv(port, &m, &length, 20000), ENOSPC);
	MUST(length == LENGTH); // and the datagram is still there
	MUST(umad_recv(port, &m, &length, 20000) == server && length == LENGTH && umad_status(&m) == 0);
	MUST(umad_get_pkey(&m) == OTHER);
	MUST(mad[200] == 42 && umad_get_mad_addr(&m)->grh_present && umad_get_mad_addr(&m)->qpn == htonl(1));
	mad[3] = GET_RESP;
	mad[200] = 43;
	umad_set_addr(&m, 0, 1, 0, 0x80010000);
	MUST(umad_send(port, server, &m, LENGTH, 0, 0) == 0);
	MUST(umad_recv(port, &m, &length, 20000) == client && umad_status(&m) == 0);
	MUST(umad_get_pkey(&m) == OTHER);
	MUST(mad[3] == GET_RESP && mad[200] == 43 && !memcmp(mad + 8, "programs", 8));

	address(GET);
	MUST(umad_send(port, client, &m, LENGTH, -1, 0) == 0); // waits for the answer for ever
	MUST(umad_recv(port, &m, &length, 20000) == server);
	mad[3] = GET_RESP;
	umad_set_addr(&m, 0, 1, 0, 0x80010000);
	MUST(umad_send(port, server, &m, LENGTH, 0, 0) == 0);
	MUST(umad_recv(port, &m, &length, 20000) == client && umad_status(&m) == 0 && mad[3] == GET_RESP);

	MUST(umad_unregister(port, server) == 0 && umad_unregister(port, server) < 0);
	leaves(port);
	address(GET);
	MUST(umad_send(port, client, &m, LENGTH, 10, 1) == 0);
	MUST(umad_recv(port, &m, &length, 20000) == client && umad_status(&m) == ETIMEDOUT);
	MUST(!memcmp(mad + 8, "programs", 8));
	umad_get_mad_addr(&m)->grh_present = 0;
	WANT_IO(umad_send(port, client, &m, LENGTH, 0, 0), EHOSTUNREACH);
	address(GET);
	WANT_IO(umad_send(port, client + 100, &m, LENGTH, 0, 0), EINVAL);
	MUST(umad_close_port(port) == 0 && umad_close_port(port) < 0);
	return 0;
}
