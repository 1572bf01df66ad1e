// QPs, SRQs and CQs of IDs, which are those of libibverbs, and multicast groups.
#include "lib.h"

// own_cq makes a CQ with a channel for n requests.
static int own_cq(struct cm_id *id, struct ibv_comp_channel **ch, struct ibv_cq **cq, uint32_t n)
{
	*ch = ibv_create_comp_channel(id->o.verbs);
	if (!*ch)
		return errno;
	*cq = ibv_create_cq(id->o.verbs, n, id, *ch, 0);
	return *cq ? 0 : errno;
}

static void destroy_cqs(struct cm_id *id)
{
	struct rdma_cm_id *o = &id->o;

	if (o->send_cq && !ibv_destroy_cq(o->send_cq))
		o->send_cq = NULL;
	if (o->send_cq_channel && !ibv_destroy_comp_channel(o->send_cq_channel))
		o->send_cq_channel = NULL;
	if (o->recv_cq && !ibv_destroy_cq(o->recv_cq))
		o->recv_cq = NULL;
	if (o->recv_cq_channel && !ibv_destroy_comp_channel(o->recv_cq_channel))
		o->recv_cq_channel = NULL;
}

// cqs completes the CQs of the attributes.
static int cqs(struct cm_id *id, struct ibv_qp_init_attr_ex *a)
{
	struct rdma_cm_id *o = &id->o;
	int e = 0;

	if (a->qp_type == IBV_QPT_XRC_RECV)
		return 0;
	if (!a->send_cq && a->cap.max_send_wr) {
		if (!o->send_cq)
			e = own_cq(id, &o->send_cq_channel, &o->send_cq, a->cap.max_send_wr);
		a->send_cq = o->send_cq;
	}
	if (!e && !a->recv_cq && a->cap.max_recv_wr && a->qp_type != IBV_QPT_XRC_SEND) {
		if (!o->recv_cq)
			e = own_cq(id, &o->recv_cq_channel, &o->recv_cq, a->cap.max_recv_wr);
		a->recv_cq = o->recv_cq;
	}
	// A side without requests needs no CQ here, but creating a QP requires one.
	if (!a->send_cq)
		a->send_cq = a->recv_cq;
	if (!a->recv_cq)
		a->recv_cq = a->send_cq;
	return e;
}

// move moves the QP to a state with the engine's attributes. It returns 0 or an errno.
static int move(struct cm_id *id, struct ibv_qp *qp, enum ibv_qp_state state, uint8_t resources, uint8_t depth)
{
	struct ibv_qp_attr a = {.qp_state = state};
	int mask, e = CM_CALL(id, init_qp_attr, &a, &mask);

	if (resources != RDMA_MAX_RESP_RES)
		a.max_dest_rd_atomic = resources;
	if (depth != RDMA_MAX_INIT_DEPTH)
		a.max_rd_atomic = depth;
	return e ? e : ibv_modify_qp(qp, &a, mask);
}

int cm_streams(struct cm_id *id)
{
	return id->o.verbs && id->o.verbs->device->transport_type == IBV_TRANSPORT_IWARP;
}

int cm_connect_qp(struct cm_id *id, uint8_t resources, uint8_t depth)
{
	static const enum ibv_qp_state states[] = {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS};
	int e = 0;

	if (cm_streams(id)) // the connection moves the QP
		return 0;
	for (size_t i = 0; !e && i < sizeof states / sizeof *states; i++)
		e = move(id, id->o.qp, states[i], resources, depth);
	return e;
}

// init moves a new QP to INIT; a UD QP to RTS.
static int init(struct cm_id *id, struct ibv_qp *qp)
{
	int e = move(id, qp, IBV_QPS_INIT, RDMA_MAX_RESP_RES, RDMA_MAX_INIT_DEPTH);

	if (e || id->o.qp_type != IBV_QPT_UD)
		return e;
	e = move(id, qp, IBV_QPS_RTR, RDMA_MAX_RESP_RES, RDMA_MAX_INIT_DEPTH);
	return e ? e : move(id, qp, IBV_QPS_RTS, RDMA_MAX_RESP_RES, RDMA_MAX_INIT_DEPTH);
}

void cm_fail_qp(struct cm_id *id)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};

	if (id->o.qp && id->o.qp_type != IBV_QPT_UD)
		ibv_modify_qp(id->o.qp, &a, IBV_QP_STATE);
}

// check refuses other CQs than those that the ID has. It completes the attributes with the ID's PD, XRC domain and SRQ.
static int check(struct cm_id *id, struct ibv_qp_init_attr_ex *a)
{
	if (id->o.qp || !id->o.verbs)
		return EINVAL;
	if (CM_DEAD(id))
		return EIO;
	if (a->qp_type != id->o.qp_type)
		return EINVAL;
	if ((id->o.send_cq && a->send_cq && a->send_cq != id->o.send_cq) ||
	    (id->o.recv_cq && a->recv_cq && a->recv_cq != id->o.recv_cq))
		return EINVAL;
	if (a->qp_type == IBV_QPT_XRC_RECV) {
		if (!(a->comp_mask & IBV_QP_INIT_ATTR_XRCD) || !a->xrcd) {
			a->comp_mask |= IBV_QP_INIT_ATTR_XRCD;
			a->xrcd = cm_default_xrcd(id->device);
		}
		return a->xrcd ? 0 : errno;
	}
	if (!(a->comp_mask & IBV_QP_INIT_ATTR_PD) || !a->pd) {
		a->comp_mask |= IBV_QP_INIT_ATTR_PD;
		a->pd = id->o.pd;
	}
	if (!a->pd || a->pd->context != id->o.verbs)
		return EINVAL;
	if (!a->srq)
		a->srq = id->o.srq;
	return 0;
}

int rdma_create_qp_ex(struct rdma_cm_id *o, struct ibv_qp_init_attr_ex *a)
{
	struct cm_id *id = CM_ID(o);
	struct ibv_cq *send = a->send_cq, *recv = a->recv_cq;
	struct ibv_qp *qp;
	int e = check(id, a);

	if (e)
		return cm_result(e);
	e = cqs(id, a);
	if (!e) {
		qp = a->comp_mask == IBV_QP_INIT_ATTR_PD ? ibv_create_qp(a->pd, (struct ibv_qp_init_attr *)a)
							 : CM_VERBS(o->verbs)->create_qp_ex(o->verbs, a);
		e = qp ? init(id, qp) : errno;
		if (e && qp)
			ibv_destroy_qp(qp);
	}
	if (e) {
		destroy_cqs(id);
		a->send_cq = send; // the program may try again with these attributes
		a->recv_cq = recv;
		return cm_result(e);
	}
	if (a->comp_mask & IBV_QP_INIT_ATTR_PD)
		o->pd = a->pd;
	o->qp = qp;
	return 0;
}

int rdma_create_qp(struct rdma_cm_id *o, struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	struct ibv_qp_init_attr_ex ex = {};

	memcpy(&ex, a, sizeof *a);
	ex.comp_mask = pd ? IBV_QP_INIT_ATTR_PD : 0;
	ex.pd = pd;
	int e = rdma_create_qp_ex(o, &ex);
	memcpy(a, &ex, sizeof *a);
	return e;
}

// detach detaches the QP from a group, which the ID has joined on.
static int detach(struct cm_id *id, struct cm_group *g)
{
	int e = g->attached && id->o.qp ? ibv_detach_mcast(id->o.qp, &g->gid, 0) : 0;

	g->attached = 0;
	return e;
}

// rdma_destroy_qp leaves no group: the groups are the ID's.
void rdma_destroy_qp(struct rdma_cm_id *o)
{
	for (struct cm_group *g = CM_ID(o)->groups; g; g = g->next)
		detach(CM_ID(o), g);
	if (o->qp)
		ibv_destroy_qp(o->qp);
	o->qp = NULL;
	destroy_cqs(CM_ID(o));
}

int rdma_init_qp_attr(struct rdma_cm_id *o, struct ibv_qp_attr *a, int *mask)
{
	if (!a || !mask)
		return cm_result(EINVAL);
	return cm_result(CM_CALL(CM_ID(o), init_qp_attr, a, mask));
}

int rdma_create_srq_ex(struct rdma_cm_id *o, struct ibv_srq_init_attr_ex *a)
{
	struct cm_id *id = CM_ID(o);
	int e = 0;

	if (o->srq || !o->verbs || !(a->comp_mask & IBV_SRQ_INIT_ATTR_TYPE))
		return cm_result(EINVAL);
	if (!(a->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !a->pd) {
		a->comp_mask |= IBV_SRQ_INIT_ATTR_PD;
		a->pd = o->pd;
	}
	if (!a->pd || a->pd->context != o->verbs)
		return cm_result(EINVAL);
	if (a->srq_type == IBV_SRQT_XRC) {
		if (!(a->comp_mask & IBV_SRQ_INIT_ATTR_XRCD) || !a->xrcd) {
			a->comp_mask |= IBV_SRQ_INIT_ATTR_XRCD;
			a->xrcd = cm_default_xrcd(id->device);
			e = a->xrcd ? 0 : errno;
		}
		if (!e && (!(a->comp_mask & IBV_SRQ_INIT_ATTR_CQ) || !a->cq)) {
			e = own_cq(id, &o->recv_cq_channel, &o->recv_cq, a->attr.max_wr);
			a->comp_mask |= IBV_SRQ_INIT_ATTR_CQ;
			a->cq = o->recv_cq;
		}
	}
	if (!e) {
		o->srq = CM_VERBS(o->verbs)->create_srq_ex(o->verbs, a);
		e = o->srq ? 0 : errno;
	}
	if (e)
		destroy_cqs(id);
	else
		o->pd = a->pd;
	return cm_result(e);
}

int rdma_create_srq(struct rdma_cm_id *o, struct ibv_pd *pd, struct ibv_srq_init_attr *a)
{
	struct ibv_srq_init_attr_ex ex = {.srq_context = a->srq_context, .attr = a->attr,
					  .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | (pd ? IBV_SRQ_INIT_ATTR_PD : 0),
					  .srq_type = o->qp_type == IBV_QPT_XRC_RECV ? IBV_SRQT_XRC : IBV_SRQT_BASIC,
					  .pd = pd};
	int e = rdma_create_srq_ex(o, &ex);

	a->attr = ex.attr;
	return e;
}

void rdma_destroy_srq(struct rdma_cm_id *o)
{
	if (o->srq)
		ibv_destroy_srq(o->srq);
	o->srq = NULL;
	destroy_cqs(CM_ID(o));
}

// Multicast groups. id->groups belongs to the threads that join and leave, as the program keeps them apart.

static int join(struct rdma_cm_id *o, struct sockaddr *addr, uint32_t flags, void *context)
{
	struct cm_id *id = CM_ID(o);
	struct cm_group *g = calloc(1, sizeof *g);

	if (!g)
		return cm_result(ENOMEM);
	memcpy(&g->addr, addr, cm_addr_len(addr));
	g->context = context;
	g->send_only = flags == RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER;
	pthread_mutex_lock(&id->mu);
	g->next = id->groups;
	id->groups = g;
	pthread_mutex_unlock(&id->mu);
	int e = CM_CALL(id, join, addr, flags, g);
	if (e) {
		pthread_mutex_lock(&id->mu);
		for (struct cm_group **at = &id->groups; *at; at = &(*at)->next) {
			if (*at == g) {
				*at = g->next;
				break;
			}
		}
		pthread_mutex_unlock(&id->mu);
		free(g);
		return cm_result(e);
	}
	return cm_complete(id);
}

int rdma_join_multicast(struct rdma_cm_id *o, struct sockaddr *addr, void *context)
{
	if (!cm_addr_len(addr))
		return cm_result(EINVAL);
	return join(o, addr, RDMA_MC_JOIN_FLAG_FULLMEMBER, context);
}

int rdma_join_multicast_ex(struct rdma_cm_id *o, struct rdma_cm_join_mc_attr_ex *a, void *context)
{
	if (!a || a->comp_mask >= RDMA_CM_JOIN_MC_ATTR_RESERVED)
		return cm_result(EOPNOTSUPP);
	if (!(a->comp_mask & RDMA_CM_JOIN_MC_ATTR_ADDRESS) || !(a->comp_mask & RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS) ||
	    a->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED || !cm_addr_len(a->addr))
		return cm_result(EINVAL);
	return join(o, a->addr, a->join_flags, context);
}

int cm_attach(struct cm_id *id, struct cm_group *g, const union ibv_gid *gid)
{
	if (!g || g->send_only || !id->o.qp)
		return 0;
	g->gid = *gid;
	int e = ibv_attach_mcast(id->o.qp, gid, 0);
	g->attached = !e;
	return e;
}

// same reports whether two addresses are of one group: the port does not matter.
static int same(const struct sockaddr_storage *a, const struct sockaddr *b)
{
	if (a->ss_family != b->sa_family)
		return 0;
	if (b->sa_family == AF_INET)
		return !memcmp(&((const struct sockaddr_in *)a)->sin_addr, &((const struct sockaddr_in *)b)->sin_addr, 4);
	return b->sa_family == AF_INET6 &&
	       !memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr, &((const struct sockaddr_in6 *)b)->sin6_addr, 16);
}

static int leave(struct cm_id *id, struct cm_group *g)
{
	int e = detach(id, g);

	pthread_mutex_lock(&cm_mu);
	int left = CM_CALL(id, leave, &g->addr);
	pthread_mutex_unlock(&cm_mu);
	if (id->o.event && ((struct cm_event *)id->o.event)->group == g)
		cm_drop_event(id);
	return e ? e : left;
}

int rdma_leave_multicast(struct rdma_cm_id *o, struct sockaddr *addr)
{
	struct cm_id *id = CM_ID(o);
	struct cm_group **at, *g;

	if (!cm_addr_len(addr))
		return cm_result(EINVAL);
	pthread_mutex_lock(&id->mu);
	for (at = &id->groups; *at && !same(&(*at)->addr, addr); at = &(*at)->next)
		;
	g = *at;
	if (g)
		*at = g->next;
	pthread_mutex_unlock(&id->mu);
	if (!g)
		return cm_result(EADDRNOTAVAIL);
	int e = leave(id, g);
	cm_wait(id, &g->acked, &g->delivered);
	free(g);
	return cm_result(e);
}

// cm_leave_groups leaves all groups. Their memory stays until the ID is destroyed, since events may point to it.
void cm_leave_groups(struct cm_id *id)
{
	for (struct cm_group *g = id->groups; g; g = g->next)
		leave(id, g);
}
