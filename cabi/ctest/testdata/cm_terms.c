// What librdmacm requires of the arguments of its calls, and what it leaves in an ID.
#include <arpa/inet.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>

#include "check.h"

#ifndef AF_IB
#define AF_IB 27
#endif

// Not in the installed header.
int rdma_create_srq_ex(struct rdma_cm_id *, struct ibv_srq_init_attr_ex *);

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

// queues gives an ID whose CQs outlast its QP other ones.
static void queues(void)
{
	struct ibv_qp_init_attr own = {.qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}}, beside = own, other = own;
	struct ibv_qp_init_attr same = own;
	struct rdma_addrinfo *passive = look("0", RAI_PASSIVE, RDMA_PS_TCP);
	struct rdma_cm_id *id;

	MUST(!rdma_create_ep(&id, passive, NULL, NULL) && !rdma_create_qp(id, NULL, &own));
	beside.send_cq = id->send_cq;
	beside.recv_cq = id->recv_cq;
	struct ibv_qp *qp = ibv_create_qp(id->pd, &beside);
	MUST(qp && (rdma_destroy_qp(id), id->send_cq && id->recv_cq));
	MUST(other.send_cq = ibv_create_cq(id->verbs, 4, NULL, NULL, 0));
	FAILS(rdma_create_qp(id, NULL, &other), EINVAL);
	other.recv_cq = other.send_cq;
	other.send_cq = NULL;
	FAILS(rdma_create_qp(id, NULL, &other), EINVAL);
	same.recv_cq = id->recv_cq;
	MUST(!rdma_create_qp(id, NULL, &same) && same.send_cq == id->send_cq);
	MUST(!ibv_destroy_qp(qp) && !ibv_destroy_cq(other.recv_cq));
	rdma_destroy_ep(id);
	rdma_freeaddrinfo(passive);
}

// extended makes objects with extended attributes that lack something.
static void extended(void)
{
	struct rdma_addrinfo *passive = look("0", RAI_PASSIVE, RDMA_PS_TCP);
	struct ibv_srq_init_attr_ex srq = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct rdma_cm_id *id;

	MUST(!rdma_create_ep(&id, passive, NULL, NULL));
	FAILS(rdma_create_srq_ex(id, &srq), EINVAL); // without a type (C-SRQ-08)
	srq.comp_mask = IBV_SRQ_INIT_ATTR_TYPE;
	MUST(!id->srq && !rdma_create_srq_ex(id, &srq) && id->srq);
	rdma_destroy_ep(id);

	// The domain of the device is used without one, which programs may say in two ways (C-QP-14).
	struct ibv_qp_init_attr_ex no_bit = {.qp_type = IBV_QPT_XRC_RECV}, none = no_bit;
	none.comp_mask = IBV_QP_INIT_ATTR_XRCD;
	passive->ai_port_space = RDMA_PS_IB;
	passive->ai_qp_type = IBV_QPT_XRC_RECV;
	MUST(!rdma_create_ep(&id, passive, NULL, NULL) && !rdma_create_qp_ex(id, &no_bit) && no_bit.xrcd);
	rdma_destroy_qp(id);
	MUST(!rdma_create_qp_ex(id, &none) && none.xrcd == no_bit.xrcd);
	rdma_destroy_ep(id);
	rdma_freeaddrinfo(passive);
}

// spaces has a port space that does not exist, but whose low bits do.
static void spaces(void)
{
	struct rdma_addrinfo *passive = look("0", RAI_PASSIVE, RDMA_PS_TCP);
	struct rdma_cm_id *id;

	passive->ai_port_space |= 1 << 16;
	FAILS(rdma_create_id(NULL, &id, NULL, passive->ai_port_space), EINVAL);
	FAILS(rdma_create_ep(&id, passive, NULL, NULL), EINVAL);
	rdma_freeaddrinfo(passive);
}

// families resolves addresses of two families.
static void families(void)
{
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP, .ai_family = AF_IB,
				      .ai_flags = RAI_NUMERICHOST | RAI_FAMILY};
	struct rdma_addrinfo *ip = look("7", 0, RDMA_PS_TCP), *ib;
	struct rdma_cm_id *id;

	MUST(!rdma_getaddrinfo("127.0.0.1", "7", &hints, &ib) && ib->ai_family == AF_IB);
	MUST(!rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
	FAILS(rdma_resolve_addr(id, ip->ai_dst_addr, ib->ai_dst_addr, 1000), EINVAL);
	FAILS(rdma_resolve_addr(id, ib->ai_dst_addr, ip->ai_dst_addr, 1000), EINVAL);
	MUST(!rdma_resolve_addr(id, NULL, ip->ai_dst_addr, 1000) && !rdma_destroy_id(id));
	rdma_freeaddrinfo(ip);
	rdma_freeaddrinfo(ib);
}

int main(void)
{
	spaces();
	families();
	datagrams();
	queues();
	extended();
	return 0;
}
