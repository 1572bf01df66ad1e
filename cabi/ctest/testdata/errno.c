// A call that succeeds leaves errno as it was: programs print it after calls that set none.
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <rdma/rsocket.h>

#include "leave.h"

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static char buf[4096];

static void devices(void)
{
	struct ibv_device **list;
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	union ibv_gid gid;
	uint16_t pkey;
	int n;

	OK(list = ibv_get_device_list(&n));
	OK(ibv_get_device_guid(list[0]));
	OK(ctx = ibv_open_device(list[0]));
	ibv_free_device_list(list);
	OK(!ibv_query_device(ctx, &attr));
	OK(!ibv_query_port(ctx, 1, &port));
	OK(!ibv_query_gid(ctx, 1, 1, &gid));
	OK(!ibv_query_pkey(ctx, 1, 0, &pkey));
}

static void move(struct ibv_qp *qp)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1}, now;
	struct ibv_qp_init_attr init;

	OK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	OK(!ibv_query_qp(qp, &now, IBV_QP_STATE, &init));
}

static void objects(void)
{
	struct ibv_qp_init_attr a = {.qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 64}};
	struct ibv_srq_init_attr s = {.attr = {8, 1}};
	struct ibv_ah_attr to = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = 1}};
	struct ibv_comp_channel *ch;
	struct ibv_srq *srq;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_ah *ah;
	struct ibv_mw *mw;
	struct ibv_qp *qp;
	struct ibv_wc wc;

	OK(pd = ibv_alloc_pd(ctx));
	OK(ch = ibv_create_comp_channel(ctx));
	OK(cq = ibv_create_cq(ctx, 8, NULL, ch, 0));
	OK(!ibv_req_notify_cq(cq, 0));
	OK(!ibv_poll_cq(cq, 1, &wc));
	OK(!ibv_resize_cq(cq, 16));
	OK(srq = ibv_create_srq(pd, &s));
	a.send_cq = a.recv_cq = cq;
	OK(qp = ibv_create_qp(pd, &a));
	move(qp);
	OK(mr = ibv_reg_mr(pd, buf, sizeof buf, IBV_ACCESS_LOCAL_WRITE));
	OK(mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1));
	CHECK(!ibv_query_gid(ctx, 1, 1, &to.grh.dgid));
	OK(ah = ibv_create_ah(pd, &to));
	OK(!ibv_destroy_ah(ah));
	OK(!ibv_dealloc_mw(mw));
	OK(!ibv_dereg_mr(mr));
	OK(!ibv_destroy_qp(qp));
	OK(!ibv_destroy_srq(srq));
	OK(!ibv_destroy_cq(cq));
	OK(!ibv_destroy_comp_channel(ch));
	OK(!ibv_dealloc_pd(pd));
	OK(!ibv_close_device(ctx));
}

static void take(struct rdma_event_channel *ch, enum rdma_cm_event_type type, struct rdma_cm_id **id)
{
	struct rdma_cm_event *ev;

	OK(!rdma_get_cm_event(ch, &ev));
	CHECK(ev->event == type);
	*id = ev->id;
	OK(!rdma_ack_cm_event(ev));
}

static void connections(void)
{
	struct ibv_qp_init_attr a = {.qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 64}, .sq_sig_all = 1}, b = a;
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {inet_addr(HERE)}};
	struct rdma_event_channel *ch, *other;
	struct rdma_cm_id *l, *c, *p, *got;
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1, .retry_count = 7};
	struct ibv_mr *mr;
	struct ibv_wc wc;

	OK(ch = rdma_create_event_channel());
	OK(other = rdma_create_event_channel());
	OK(!rdma_create_id(ch, &l, NULL, RDMA_PS_TCP));
	OK(!rdma_bind_addr(l, (struct sockaddr *)&at));
	OK(!rdma_listen(l, 4));
	at.sin_port = rdma_get_src_port(l);
	OK(!rdma_create_id(other, &c, NULL, RDMA_PS_TCP));
	OK(!rdma_resolve_addr(c, NULL, (struct sockaddr *)&at, 2000));
	take(other, RDMA_CM_EVENT_ADDR_RESOLVED, &got);
	OK(!rdma_resolve_route(c, 2000));
	take(other, RDMA_CM_EVENT_ROUTE_RESOLVED, &got);
	OK(!rdma_create_qp(c, NULL, &a));
	OK(!rdma_connect(c, &param));
	take(ch, RDMA_CM_EVENT_CONNECT_REQUEST, &p);
	OK(!rdma_create_qp(p, NULL, &b));
	OK(mr = rdma_reg_msgs(p, buf, sizeof buf));
	OK(!rdma_post_recv(p, NULL, buf, sizeof buf, mr));
	OK(!rdma_accept(p, &param));
	take(other, RDMA_CM_EVENT_ESTABLISHED, &got);
	take(ch, RDMA_CM_EVENT_ESTABLISHED, &got);
	OK(!rdma_post_send(c, NULL, "x", 1, NULL, IBV_SEND_INLINE));
	OK(rdma_get_send_comp(c, &wc) == 1);
	OK(rdma_get_recv_comp(p, &wc) == 1);
	OK(!rdma_dereg_mr(mr));
	OK(!rdma_disconnect(c));
	take(ch, RDMA_CM_EVENT_DISCONNECTED, &got);
	OK(!rdma_disconnect(p)); // the answer
	take(other, RDMA_CM_EVENT_DISCONNECTED, &got);
	OK((rdma_destroy_qp(c), rdma_destroy_qp(p), 1));
	OK(!rdma_destroy_id(c) && !rdma_destroy_id(p) && !rdma_destroy_id(l));
	OK((rdma_destroy_event_channel(ch), rdma_destroy_event_channel(other), 1));
}

// lists are of all devices, and of addresses.
static void lists(void)
{
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP, .ai_flags = RAI_PASSIVE}, *res;
	struct ibv_context **all;
	struct rdma_cm_id *l;

	OK(all = rdma_get_devices(NULL));
	OK((rdma_free_devices(all), 1));
	OK(!rdma_getaddrinfo(HERE, "0", &hints, &res));
	OK(!rdma_create_ep(&l, res, NULL, NULL));
	OK((rdma_freeaddrinfo(res), 1));
	OK((rdma_destroy_ep(l), 1));
}

static void sockets(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {inet_addr(HERE)}};
	socklen_t n = sizeof at;
	int l, c, p, one = 1;

	OK((l = rsocket(AF_INET, SOCK_STREAM, 0)) >= 0);
	OK(!rsetsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one));
	OK(!rbind(l, (struct sockaddr *)&at, sizeof at));
	OK(!rlisten(l, 4));
	OK(!rgetsockname(l, (struct sockaddr *)&at, &n));
	OK((c = rsocket(AF_INET, SOCK_STREAM, 0)) >= 0);
	OK(!rconnect(c, (struct sockaddr *)&at, n));
	OK((p = raccept(l, NULL, NULL)) >= 0);
	OK(rsend(c, "hello", 5, 0) == 5);
	struct pollfd ready = {.fd = p, .events = POLLIN};
	OK(rpoll(&ready, 1, 5000) == 1);
	OK(rrecv(p, buf, 5, 0) == 5);
	OK(rfcntl(p, F_SETFL, O_NONBLOCK) >= 0);
	OK(!rshutdown(c, SHUT_RDWR));
	OK(!rclose(c) && !rclose(p) && !rclose(l));
}

int main(int count, char **words)
{
	for (; *++words;)
		if (!strcmp(*words, "verbs")) {
			devices();
			objects();
		} else if (!strcmp(*words, "connections")) {
			connections();
		} else if (!strcmp(*words, "lists")) {
			lists();
		} else {
			sockets();
		}
	return changed;
}
