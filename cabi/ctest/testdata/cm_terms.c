// What librdmacm requires of the arguments of its calls, and what it leaves in an ID.
#include <arpa/inet.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>

#include "check.h"

// FAILS requires -1 and an errno, whatever errno was before.
#define FAILS(call, want) MUST((errno = ENOTTY, (call)) == -1 && errno == (want))

static struct rdma_addrinfo *look(const char *port, int flags, enum rdma_port_space ps)
{
	struct rdma_addrinfo hints = {.ai_port_space = ps, .ai_flags = flags | RAI_NUMERICHOST}, *res;

	MUST(!rdma_getaddrinfo("127.0.0.1", (char *)port, &hints, &res));
	return res;
}

static void *serve(void *listener)
{
	struct ibv_qp_init_attr a = {.qp_type = IBV_QPT_UD, .cap = {4, 4, 1, 1, 0}};
	struct rdma_cm_id *id;

	MUST(!rdma_get_request(listener, &id) && id->event && !rdma_create_qp(id, NULL, &a));
	MUST(!rdma_accept(id, NULL) && !id->event);
	return id;
}

// datagrams answers a look-up: the event of the request ends with the answer, which has none (C-ACC-09).
static void datagrams(void)
{
	struct rdma_addrinfo *passive = look("0", RAI_PASSIVE, RDMA_PS_UDP), *active;
	struct rdma_cm_id *listener, *id;
	char port[8];
	pthread_t thread;
	void *peer;

	MUST(!rdma_create_ep(&listener, passive, NULL, NULL) && !rdma_listen(listener, 0));
	snprintf(port, sizeof port, "%d", ntohs(rdma_get_src_port(listener)));
	active = look(port, 0, RDMA_PS_UDP);
	MUST(!pthread_create(&thread, NULL, serve, listener));
	MUST(!rdma_create_ep(&id, active, NULL, NULL) && !rdma_connect(id, NULL));
	MUST(id->event->event == RDMA_CM_EVENT_ESTABLISHED && !pthread_join(thread, &peer));
	rdma_destroy_ep(peer);
	rdma_destroy_ep(id);
	rdma_destroy_ep(listener);
	rdma_freeaddrinfo(passive);
	rdma_freeaddrinfo(active);
}

int main(void)
{
	datagrams();
	return 0;
}
