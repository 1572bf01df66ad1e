// librdmacm in one process: the errno of calls with bad arguments, what an event has, and private data, depths and
// counts at their limits.
#include <arpa/inet.h>
#include <endian.h>
#include <infiniband/umad.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include "check.h"

// FAILS requires -1 and an errno.
#define FAILS(call, want) MUST((errno = 0, (call)) == -1 && errno == (want))

// SOCKADDR is an address for the calls.
#define SOCKADDR(a) ((struct sockaddr *)&(a))

static struct rdma_event_channel *ch, *lch; // of clients, of listeners
static char data[256];

static struct sockaddr_in at(const char *ip, int port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};

	inet_pton(AF_INET, ip, &a.sin_addr);
	return a;
}

static struct rdma_cm_event *next(struct rdma_event_channel *from, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *ev;

	MUST(!rdma_get_cm_event(from, &ev));
	if (ev->event != type) {
		printf("%s, status %d: must be %s\n", rdma_event_str(ev->event), ev->status, rdma_event_str(type));
		exit(1);
	}
	return ev;
}

static void want(struct rdma_event_channel *from, enum rdma_cm_event_type type) { rdma_ack_cm_event(next(from, type)); }

static void addresses(struct rdma_cm_id *a, struct rdma_cm_id *b)
{
	struct sockaddr_in here = at("127.0.0.1", 0), none = at("198.18.0.99", 0), any = at("0.0.0.0", 0);
	struct sockaddr_in group = at("239.1.1.1", 0);
	struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT}, near = six;
	struct sockaddr other = {.sa_family = AF_UNIX};

	inet_pton(AF_INET6, "fe80::1", &near.sin6_addr);
	FAILS(rdma_bind_addr(a, NULL), EINVAL);
	FAILS(rdma_bind_addr(a, &other), EINVAL);
	FAILS(rdma_bind_addr(a, SOCKADDR(near)), EINVAL); // no scope
	FAILS(rdma_bind_addr(a, SOCKADDR(group)), EINVAL);
	FAILS(rdma_bind_addr(a, SOCKADDR(none)), ENODEV);
	FAILS(rdma_resolve_addr(a, NULL, NULL, 1000), EINVAL);
	FAILS(rdma_resolve_addr(a, NULL, &other, 1000), EINVAL);
	FAILS(rdma_resolve_addr(a, &other, SOCKADDR(here), 1000), EINVAL);
	FAILS(rdma_resolve_addr(a, SOCKADDR(six), SOCKADDR(here), 1000), EINVAL);
	MUST(!rdma_get_src_port(a) && !rdma_get_dst_port(a)); // nothing has changed
	MUST(!rdma_get_local_addr(a)->sa_family && !rdma_get_peer_addr(a)->sa_family);
	MUST(!rdma_bind_addr(a, SOCKADDR(here)) && rdma_get_src_port(a) && a->verbs && a->pd && a->port_num == 1);
	FAILS(rdma_bind_addr(a, SOCKADDR(here)), EINVAL);
	here.sin_port = any.sin_port = rdma_get_src_port(a);
	FAILS(rdma_bind_addr(b, SOCKADDR(here)), EADDRINUSE);
	FAILS(rdma_bind_addr(b, SOCKADDR(any)), EADDRNOTAVAIL);
}

// states has calls fail on a bound ID.
static void states(struct rdma_cm_id *a)
{
	struct rdma_conn_param param = {.qp_num = 5};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};
	struct rdma_cm_event *ev;
	struct rdma_cm_id *id;
	int mask, no = 0;

	FAILS(rdma_resolve_route(a, 1000), EINVAL);
	FAILS(rdma_connect(a, &param), EINVAL);
	FAILS(rdma_accept(a, &param), EINVAL);
	FAILS(rdma_reject(a, NULL, 0), EINVAL);
	FAILS(rdma_notify(a, IBV_EVENT_COMM_EST), EINVAL);
	FAILS(rdma_get_request(a, &id), EINVAL); // it is not synchronous
	FAILS(rdma_init_qp_attr(a, &attr, &mask), EINVAL);
	attr.qp_state = IBV_QPS_ERR;
	FAILS(rdma_init_qp_attr(a, &attr, &mask), EINVAL);
	attr.qp_state = IBV_QPS_INIT;
	MUST(!rdma_init_qp_attr(a, &attr, &mask) && !attr.qp_access_flags);
	MUST(mask == (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	FAILS(rdma_set_option(a, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &no, sizeof no), EINVAL);
	FAILS(rdma_ack_cm_event(NULL), EINVAL);
	FAILS(rdma_get_cm_event(NULL, &ev), EINVAL);
	FAILS(rdma_get_cm_event(ch, NULL), EINVAL);
	MUST(!strcmp(rdma_event_str(RDMA_CM_EVENT_TIMEWAIT_EXIT), "RDMA_CM_EVENT_TIMEWAIT_EXIT"));
	MUST(!strcmp(rdma_event_str(99), "UNKNOWN EVENT"));
	MUST(!rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
	FAILS(rdma_migrate_id(id, NULL), EINVAL); // it is synchronous
	MUST(!rdma_destroy_id(id));
}

static void groups(struct rdma_cm_id *a)
{
	struct sockaddr_in group = at("239.1.1.1", 0);
	struct rdma_cm_join_mc_attr_ex join = {.addr = SOCKADDR(group)};

	FAILS(rdma_join_multicast(a, SOCKADDR(group), NULL), EINVAL); // not of datagrams
	FAILS(rdma_join_multicast(a, NULL, NULL), EINVAL);
	FAILS(rdma_leave_multicast(a, NULL), EINVAL);
	for (join.comp_mask = 0; join.comp_mask < 8; join.comp_mask++)
		FAILS(rdma_join_multicast_ex(a, &join, NULL), join.comp_mask < 4 ? EINVAL : EOPNOTSUPP);
	join.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
	join.join_flags = RDMA_MC_JOIN_FLAG_RESERVED;
	FAILS(rdma_join_multicast_ex(a, &join, NULL), EINVAL);
}

// queues makes SRQs and QPs with attributes that the ID does not take.
static void queues(struct rdma_cm_id *a, struct rdma_cm_id *unbound)
{
	struct ibv_srq_init_attr_ex srq = {.attr = {4, 1}};
	struct ibv_qp_init_attr qp = {.cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_UD};

	FAILS(rdma_create_srq_ex(a, &srq), EINVAL); // without a type
	FAILS(rdma_create_qp(a, NULL, &qp), EINVAL);
	qp.qp_type = IBV_QPT_RC;
	FAILS(rdma_create_qp(unbound, NULL, &qp), EINVAL);
	srq = (struct ibv_srq_init_attr_ex){.attr = {4, 1}, .comp_mask = IBV_SRQ_INIT_ATTR_TYPE, .srq_type = IBV_SRQT_XRC};
	MUST(!rdma_create_srq_ex(a, &srq) && a->recv_cq && a->recv_cq_channel);
	rdma_destroy_srq(a);
	MUST(!a->recv_cq && !a->recv_cq_channel);
	struct ibv_cq *cq = ibv_create_cq(a->verbs, 4, NULL, NULL, 0), *other = ibv_create_cq(a->verbs, 4, NULL, NULL, 0);
	MUST(cq && other);
	qp.recv_cq = cq;
	a->recv_cq = other; // the program's, of both
	FAILS(rdma_create_qp(a, NULL, &qp), EINVAL);
	a->recv_cq = NULL;
	MUST(!a->qp && !rdma_create_qp(a, NULL, &qp) && !a->recv_cq && a->send_cq);
	rdma_destroy_qp(a);
	MUST(!ibv_destroy_cq(cq) && !ibv_destroy_cq(other));
}

static struct rdma_cm_id *resolved(enum rdma_port_space ps, struct sockaddr_in to)
{
	struct rdma_cm_id *id;

	MUST(!rdma_create_id(ch, &id, NULL, ps) && !rdma_resolve_addr(id, NULL, SOCKADDR(to), 1000));
	want(ch, RDMA_CM_EVENT_ADDR_RESOLVED);
	FAILS(rdma_resolve_route(id, 0), EINVAL);
	MUST(!rdma_resolve_route(id, 1000));
	want(ch, RDMA_CM_EVENT_ROUTE_RESOLVED);
	return id;
}

static void own_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr a = {.cap = {4, 4, 1, 1, 16}, .qp_type = id->qp_type};

	MUST(!rdma_create_qp(id, NULL, &a));
}

static struct ibv_qp_attr query(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;

	MUST(!ibv_query_qp(id->qp, &a, IBV_QP_STATE, &init));
	return a;
}

// carries requires n bytes of private data, of which the program has given the first ones.
static void carries(const void *private, int length, int n, int given)
{
	const char *p = private;

	MUST(length == n && p[0] == data[0] && p[given - 1] == data[0]);
	for (int i = given; i < n; i++)
		MUST(!p[i]);
}

static struct rdma_cm_id *listener(enum rdma_port_space ps, struct sockaddr_in *where)
{
	struct rdma_cm_id *l;

	MUST(!rdma_create_id(lch, &l, data, ps) && !rdma_bind_addr(l, SOCKADDR(*where)) && !rdma_listen(l, 4));
	where->sin_port = rdma_get_src_port(l);
	return l;
}

// ask has a client ask with given bytes of private data. It returns the request's event.
static struct rdma_cm_event *ask(struct rdma_cm_id *c, struct rdma_cm_id *l, int given)
{
	struct rdma_conn_param bad[] = {{.private_data = data, .private_data_len = 57}, {.responder_resources = 129},
					{.initiator_depth = 129}, {.initiator_depth = 254}};

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		FAILS(rdma_connect(c, &bad[i]), EINVAL);
	struct rdma_conn_param p = {.private_data = data, .private_data_len = given, .responder_resources = 3,
				    .initiator_depth = 5, .flow_control = 1, .retry_count = 9, .rnr_retry_count = 200};
	MUST(!rdma_connect(c, &p));
	FAILS(rdma_connect(c, &p), EINVAL);
	struct rdma_cm_event *ev = next(lch, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_conn_param *got = &ev->param.conn;
	carries(got->private_data, got->private_data_len, 56, given);
	MUST(ev->listen_id == l && ev->id->context == data && ev->id->channel == lch && ev->id->ps == RDMA_PS_TCP);
	MUST(got->responder_resources == 5 && got->initiator_depth == 3 && got->flow_control == 1);
	MUST(got->retry_count == 7 && got->rnr_retry_count == 7 && got->qp_num == c->qp->qp_num && !got->srq);
	MUST(ev->id->verbs && rdma_get_src_port(ev->id) == rdma_get_src_port(l));
	MUST(rdma_get_dst_port(ev->id) == rdma_get_src_port(c));
	return ev;
}

static void refused(struct rdma_cm_id *l, struct sockaddr_in to)
{
	struct rdma_cm_id *c = resolved(RDMA_PS_TCP, to);

	own_qp(c);
	struct rdma_cm_event *ev = ask(c, l, 3);
	struct rdma_cm_id *s = ev->id;
	FAILS(rdma_reject(s, data, 149), EINVAL);
	MUST(!rdma_reject(s, data, 148) && !rdma_ack_cm_event(ev));
	ev = next(ch, RDMA_CM_EVENT_REJECTED);
	MUST(ev->status == 28);
	carries(ev->param.conn.private_data, ev->param.conn.private_data_len, 148, 148);
	MUST(!rdma_ack_cm_event(ev) && query(c).qp_state == IBV_QPS_ERR);
	FAILS(rdma_connect(c, NULL), EINVAL);
	MUST(!rdma_destroy_id(s));
	rdma_destroy_ep(c);
}

// unanswerable has an answer that cannot be sent, after the QP was connected: the peer is told at once.
static void unanswerable(struct rdma_cm_id *l, struct sockaddr_in to)
{
	struct rdma_conn_param p = {.private_data = data, .private_data_len = 197};
	struct rdma_cm_id *c = resolved(RDMA_PS_TCP, to);

	own_qp(c);
	struct rdma_cm_event *ev = ask(c, l, 3);
	struct rdma_cm_id *s = ev->id;
	own_qp(s);
	FAILS(rdma_accept(s, &p), EINVAL);
	MUST(query(s).qp_state == IBV_QPS_ERR && !rdma_ack_cm_event(ev));
	ev = next(ch, RDMA_CM_EVENT_REJECTED);
	MUST(ev->status == 28 && !rdma_ack_cm_event(ev));
	rdma_destroy_ep(s);
	rdma_destroy_ep(c);
}

static void connected(struct rdma_cm_id *l, struct sockaddr_in to)
{
	struct rdma_conn_param many = {.responder_resources = 129};
	struct rdma_conn_param p = {.private_data = data, .private_data_len = 196, .responder_resources = RDMA_MAX_RESP_RES,
				    .initiator_depth = RDMA_MAX_INIT_DEPTH, .rnr_retry_count = 3};
	struct rdma_cm_id *c = resolved(RDMA_PS_TCP, to);

	own_qp(c);
	struct rdma_cm_event *ev = ask(c, l, 56);
	struct rdma_cm_id *s = ev->id;
	FAILS(rdma_accept(s, NULL), EINVAL); // neither QP nor parameters
	own_qp(s);
	FAILS(rdma_accept(s, &many), EINVAL);
	MUST(!rdma_accept(s, &p) && !rdma_ack_cm_event(ev));
	ev = next(ch, RDMA_CM_EVENT_ESTABLISHED);
	struct rdma_conn_param *got = &ev->param.conn;
	carries(got->private_data, got->private_data_len, 196, 196);
	MUST(got->responder_resources == 3 && got->initiator_depth == 5 && got->rnr_retry_count == 3);
	MUST(got->qp_num == s->qp->qp_num && !rdma_ack_cm_event(ev));
	ev = next(lch, RDMA_CM_EVENT_ESTABLISHED);
	MUST(ev->id == s && !ev->listen_id && !ev->param.conn.private_data && !rdma_ack_cm_event(ev));
	struct ibv_qp_attr a = query(c), b = query(s);
	MUST(a.max_rd_atomic == 5 && a.max_dest_rd_atomic == 3 && a.rnr_retry == 3 && a.retry_cnt == 7);
	MUST(b.max_rd_atomic == 3 && b.max_dest_rd_atomic == 5 && b.rnr_retry == 7 && b.retry_cnt == 7);
	FAILS(rdma_notify(s, IBV_EVENT_COMM_EST), EISCONN);
	FAILS(rdma_notify(s, IBV_EVENT_QP_FATAL), EINVAL);
	FAILS(rdma_establish(c), EINVAL);
	MUST(!rdma_disconnect(c));
	want(lch, RDMA_CM_EVENT_DISCONNECTED);
	MUST(query(s).qp_state == IBV_QPS_ERR && !rdma_disconnect(s));
	ev = next(ch, RDMA_CM_EVENT_DISCONNECTED);
	MUST(!ev->status && !rdma_ack_cm_event(ev));
	rdma_destroy_ep(s);
	rdma_destroy_ep(c);
}

// nobody listens: a synchronous call has the errno, and its ID the event.
static void nobody(struct sockaddr_in to)
{
	struct rdma_cm_id *c;

	MUST(!rdma_create_id(NULL, &c, NULL, RDMA_PS_TCP) && !rdma_resolve_addr(c, NULL, SOCKADDR(to), 1000));
	MUST(c->event && c->event->event == RDMA_CM_EVENT_ADDR_RESOLVED && !rdma_resolve_route(c, 1000));
	own_qp(c);
	FAILS(rdma_connect(c, NULL), ECONNREFUSED);
	MUST(c->event->event == RDMA_CM_EVENT_REJECTED && c->event->status == 8);
	rdma_destroy_ep(c);
}

static void datagrams(struct rdma_cm_id *l, struct sockaddr_in to, int accept)
{
	struct rdma_conn_param p = {.private_data = data, .private_data_len = 181, .responder_resources = 200};
	struct rdma_cm_id *c = resolved(RDMA_PS_UDP, to);
	uint8_t timeout = 5;

	FAILS(rdma_set_option(c, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 1), EINVAL);
	FAILS(rdma_connect(c, &p), EINVAL);
	p.private_data_len = 180;
	MUST(!rdma_connect(c, &p));
	struct rdma_cm_event *ev = next(lch, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *s = ev->id;
	carries(ev->param.ud.private_data, ev->param.ud.private_data_len, 180, 180);
	MUST(ev->listen_id == l);
	own_qp(s);
	MUST(query(s).qp_state == IBV_QPS_RTS && query(s).qkey == RDMA_UDP_QKEY);
	p.private_data_len = 137;
	FAILS(rdma_accept(s, &p), EINVAL);
	FAILS(rdma_reject(s, data, 137), EINVAL);
	p.private_data_len = 136;
	MUST(accept ? !rdma_accept(s, &p) : !rdma_reject(s, data, 136));
	MUST(!rdma_ack_cm_event(ev));
	ev = next(ch, accept ? RDMA_CM_EVENT_ESTABLISHED : RDMA_CM_EVENT_UNREACHABLE);
	MUST(ev->status == (accept ? 0 : 2));
	carries(ev->param.ud.private_data, ev->param.ud.private_data_len, 136, 136);
	MUST(!accept || (ev->param.ud.qp_num == s->qp->qp_num && ev->param.ud.qkey == RDMA_UDP_QKEY));
	MUST(!rdma_ack_cm_event(ev));
	FAILS(rdma_disconnect(c), EINVAL);
	rdma_destroy_ep(s);
	rdma_destroy_ep(c);
}

// request_of fills in a request for depths that no device has, from 127.0.0.1 to 127.0.0.1.
static void request_of(uint8_t *mad, uint16_t port)
{
	static const uint8_t head[] = {1, 7, 2, 3}, gid[16] = {[10] = 0xFF, 0xFF, 127, 0, 0, 1};
	uint8_t *req = mad + 24, *cma = req + 140;
	uint64_t service = htobe64(0x01060000 | ntohs(port));

	memset(mad, 0, 256);
	memcpy(mad, head, sizeof head);
	mad[17] = 0x10; // REQ
	req[3] = 77; // the communication ID
	memcpy(req + 8, &service, 8);
	req[23] = 9; // the GUID
	req[34] = 9; // the QP
	req[35] = 200, req[39] = 201; // the depths
	req[43] = 20 << 3, req[47] = 20 << 3 | 7, req[50] = 3 << 4 | 7;
	memset(req + 48, 0xFF, 2);
	memset(req + 52, 0xFF, 4);
	memcpy(req + 56, gid, 16);
	memcpy(req + 72, gid, 16);
	req[93] = 64, req[95] = 17 << 3;
	cma[1] = 0x40, cma[2] = 99;
	memcpy(cma + 16, gid + 12, 4);
	memcpy(cma + 32, gid + 12, 4);
}

// send_request sends a request as a management datagram.
static void send_request(struct ibv_context *ctx, uint16_t port)
{
	static union { struct ib_user_mad u; char room[sizeof(struct ib_user_mad) + 256]; } m;
	ib_mad_addr_t to = {.hop_limit = 64, .gid = {[10] = 0xFF, 0xFF, 127, 0, 0, 1}};
	union ibv_gid g;
	int fd = umad_open_port(ibv_get_device_name(ctx->device), 1);
	int agent = umad_register(fd, 7, 2, 0, NULL);

	MUST(fd >= 0 && agent >= 0);
	while (!ibv_query_gid(ctx, 1, to.gid_index, &g) && memcmp(&g, to.gid, 16))
		to.gid_index++;
	request_of(umad_get_mad(&m), port);
	umad_set_addr(&m, 0, 1, 0, 0x80010000);
	umad_set_grh(&m, &to);
	umad_set_pkey(&m, 0);
	MUST(!umad_send(fd, agent, &m, 256, 0, 0) && !umad_close_port(fd));
}

// greedy is a peer that asks for more than the device can. Without parameters the answer is what it can.
static void greedy(struct rdma_cm_id *l, int maximum)
{
	struct rdma_conn_param p = {.responder_resources = RDMA_MAX_RESP_RES, .initiator_depth = RDMA_MAX_INIT_DEPTH};

	send_request(l->verbs, rdma_get_src_port(l));
	struct rdma_cm_event *ev = next(lch, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *s = ev->id;
	MUST(ev->param.conn.responder_resources == 201 && ev->param.conn.initiator_depth == 200);
	own_qp(s);
	MUST(!rdma_accept(s, maximum ? &p : NULL) && !rdma_ack_cm_event(ev));
	struct ibv_qp_attr a = query(s);
	MUST(a.max_dest_rd_atomic == 128 && a.max_rd_atomic == 128);
	rdma_destroy_ep(s);
}

int main(void)
{
	struct sockaddr_in tcp = at("127.0.0.1", 0), udp = tcp;
	struct rdma_cm_id *a, *b, *l, *u;

	memset(data, 7, sizeof data);
	ch = rdma_create_event_channel();
	lch = rdma_create_event_channel();
	MUST(ch && lch && !rdma_create_id(ch, &a, NULL, RDMA_PS_TCP) && !rdma_create_id(ch, &b, NULL, RDMA_PS_TCP));
	addresses(a, b);
	states(a);
	groups(a);
	queues(a, b);
	MUST(!rdma_destroy_id(a) && !rdma_destroy_id(b));
	l = listener(RDMA_PS_TCP, &tcp);
	refused(l, tcp);
	unanswerable(l, tcp);
	connected(l, tcp);
	greedy(l, 0);
	greedy(l, 1);
	MUST(!rdma_destroy_id(l));
	nobody(tcp);
	u = listener(RDMA_PS_UDP, &udp);
	datagrams(u, udp, 1);
	datagrams(u, udp, 0);
	MUST(!rdma_destroy_id(u));
	rdma_destroy_event_channel(ch);
	rdma_destroy_event_channel(lch);
	return 0;
}
