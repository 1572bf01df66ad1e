// Queue pairs and address handles.
#include "lib.h"

static struct vb_qp *new_qp(struct ibv_context *x)
{
	struct vb_qp *q = calloc(1, sizeof *q);

	if (!q)
		VB_FAIL(ENOMEM, NULL);
	q->o.qp_base.context = x;
	q->gen = vb_gen(VB_CONTEXT(x));
	vb_signals();
	pthread_mutex_init(&q->o.qp_base.mutex, NULL);
	pthread_cond_init(&q->o.qp_base.cond, NULL);
	pthread_mutex_init(&q->build, NULL);
	return q;
}

static void free_qp(struct vb_qp *q)
{
	free(q->wrs);
	free(q->sges);
	free(q->bytes);
	free(q);
}

// make creates the engine's part from the members that all creating calls have.
static struct ibv_qp *make(struct ibv_context *x, struct vrb_qp_init *init, struct ibv_qp_init_attr *a, struct ibv_pd *pd)
{
	struct vb_qp *q = new_qp(x);

	if (!q)
		return NULL;
	struct ibv_qp *o = &q->o.qp_base;
	init->context = q;
	init->pd = VB_H(pd, pd);
	init->send_cq = VB_H(cq, a->send_cq);
	init->recv_cq = VB_H(cq, a->recv_cq);
	init->srq = VB_H(srq, a->srq);
	init->type = a->qp_type;
	init->sq_sig_all = a->sq_sig_all;
	memcpy(init->cap, &a->cap, sizeof init->cap);
	int lost = VB_LOST(pd, pd) || VB_LOST(cq, a->send_cq) || VB_LOST(cq, a->recv_cq) || VB_LOST(srq, a->srq);
	int e = VB_DEAD(q) || lost ? EIO : vb_engine->create_qp(init, &q->h);
	if (e) {
		free_qp(q);
		VB_FAIL(e, NULL);
	}
	memcpy(&a->cap, init->cap, sizeof init->cap);
	o->qp_context = a->qp_context;
	o->pd = pd;
	o->send_cq = a->send_cq;
	o->recv_cq = a->recv_cq;
	o->srq = a->srq;
	o->handle = o->qp_num = init->qp_num;
	o->qp_type = a->qp_type;
	o->state = IBV_QPS_RESET;
	if (init->send_ops) {
		q->is_ex = 1;
		vb_fill_qp_ex(&q->o);
	}
	return o;
}

_Static_assert(sizeof(struct ibv_qp_cap) == sizeof(((struct vrb_qp_init *)0)->cap), "caps");

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	struct vrb_qp_init init = {};

	return make(pd->context, &init, a, pd);
}

struct ibv_qp *vb_create_qp_ex(struct ibv_context *x, struct ibv_qp_init_attr_ex *a)
{
	const uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_CREATE_FLAGS |
			       IBV_QP_INIT_ATTR_MAX_TSO_HEADER | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH |
			       IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	struct vrb_qp_init init = {};
	struct ibv_pd *pd = a->comp_mask & IBV_QP_INIT_ATTR_PD ? a->pd : NULL;

	if (a->comp_mask & ~known)
		VB_FAIL(EOPNOTSUPP, NULL);
	if ((a->comp_mask & IBV_QP_INIT_ATTR_XRCD && VB_LOST(xrcd, a->xrcd)) ||
	    (a->comp_mask & IBV_QP_INIT_ATTR_IND_TABLE && VB_LOST(table, a->rwq_ind_tbl)))
		VB_FAIL(EIO, NULL);
	if (a->comp_mask & IBV_QP_INIT_ATTR_XRCD)
		init.xrcd = VB_H(xrcd, a->xrcd);
	if (a->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) {
		init.create_flags = a->create_flags;
		if (a->create_flags & IBV_QP_CREATE_SOURCE_QPN)
			init.source_qpn = a->source_qpn;
	}
	if (a->comp_mask & IBV_QP_INIT_ATTR_MAX_TSO_HEADER)
		init.max_tso_header = a->max_tso_header;
	if (a->comp_mask & IBV_QP_INIT_ATTR_IND_TABLE)
		init.ind_tbl = VB_H(table, a->rwq_ind_tbl);
	if (a->comp_mask & IBV_QP_INIT_ATTR_RX_HASH) {
		init.hash_function = a->rx_hash_conf.rx_hash_function;
		init.hash_key_len = a->rx_hash_conf.rx_hash_key_len;
		init.hash_key = a->rx_hash_conf.rx_hash_key;
		init.hash_fields = a->rx_hash_conf.rx_hash_fields_mask;
	}
	if (a->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
		init.send_ops = a->send_ops_flags;
	return make(x, &init, (struct ibv_qp_init_attr *)a, pd);
}

struct ibv_qp *vb_open_qp(struct ibv_context *x, struct ibv_qp_open_attr *a)
{
	const uint32_t needed = IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_TYPE;

	if (a->comp_mask >= IBV_QP_OPEN_ATTR_RESERVED)
		VB_FAIL(EOPNOTSUPP, NULL);
	if ((a->comp_mask & needed) != needed || !a->xrcd)
		VB_FAIL(EINVAL, NULL);
	struct vb_qp *q = new_qp(x);
	if (!q)
		return NULL;
	int e = VB_DEAD(VB(xrcd, a->xrcd)) || VB_DEAD(q) ? EIO : 0;
	if (!e)
		e = vb_engine->open_qp(VB_CONTEXT(x)->h, VB(xrcd, a->xrcd)->h, a->qp_num, a->qp_type, q, &q->h);
	if (e) {
		free_qp(q);
		VB_FAIL(e, NULL);
	}
	if (a->comp_mask & IBV_QP_OPEN_ATTR_CONTEXT)
		q->o.qp_base.qp_context = a->qp_context;
	q->o.qp_base.handle = q->o.qp_base.qp_num = a->qp_num;
	q->o.qp_base.qp_type = a->qp_type;
	q->o.qp_base.state = IBV_QPS_UNKNOWN;
	return &q->o.qp_base;
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *o) { return VB(qp, o)->is_ex ? &VB(qp, o)->o : NULL; }

int ibv_modify_qp(struct ibv_qp *o, struct ibv_qp_attr *a, int mask)
{
	struct vb_qp *q = VB(qp, o);
	int e;

	vb_signals();
	e = vb_told(VB_DEAD(q) ? EIO : vb_engine->modify_qp(q->h, a, mask));
	if (e || !(mask & IBV_QP_STATE))
		return e;
	o->state = a->qp_state;
	if (a->qp_state == IBV_QPS_RESET) {
		vb_purge(o->send_cq, o->qp_num);
		vb_purge(o->recv_cq, o->qp_num);
	}
	return 0;
}

int ibv_query_qp(struct ibv_qp *o, struct ibv_qp_attr *a, int mask, struct ibv_qp_init_attr *in)
{
	struct vb_qp *q = VB(qp, o);
	struct vrb_qp_init init = {};
	int e = VB_DEAD(q) ? EIO : vb_engine->query_qp(q->h, a, mask, &init);

	if (e)
		return vb_told(e);
	*in = (struct ibv_qp_init_attr){.qp_context = o->qp_context, .send_cq = o->send_cq, .recv_cq = o->recv_cq,
					.srq = o->srq, .qp_type = o->qp_type, .sq_sig_all = init.sq_sig_all};
	memcpy(&in->cap, init.cap, sizeof init.cap);
	if (mask & IBV_QP_STATE)
		o->state = a->qp_state;
	return 0;
}

// Memory is copied with wide stores in any order, so no answer but 0 is right.
int ibv_query_qp_data_in_order(struct ibv_qp *o, enum ibv_wr_opcode op, uint32_t flags) { return 0; }

int vb_modify_qp_rate_limit(struct ibv_qp *o, struct ibv_qp_rate_limit_attr *a)
{
	struct vb_qp *q = VB(qp, o);

	if (a->comp_mask)
		return EINVAL;
	return VB_DEAD(q) ? EIO : vb_engine->modify_rate(q->h, a->rate_limit, a->max_burst_sz, a->typical_pkt_sz);
}

int ibv_set_ece(struct ibv_qp *o, struct ibv_ece *ece)
{
	struct vb_qp *q = VB(qp, o);
	int e = ece->comp_mask ? EINVAL : VB_DEAD(q) ? EIO : vb_engine->set_ece(q->h, ece->vendor_id, ece->options);

	return vb_told(e);
}

int ibv_query_ece(struct ibv_qp *o, struct ibv_ece *ece)
{
	struct vb_qp *q = VB(qp, o);
	uint32_t got[2] = {};
	int e = VB_DEAD(q) ? EIO : vb_engine->query_ece(q->h, got);

	*ece = (struct ibv_ece){.vendor_id = got[0], .options = got[1]};
	return vb_told(e);
}

int ibv_destroy_qp(struct ibv_qp *o)
{
	struct vb_qp *q = VB(qp, o);
	struct vb_context *c = VB_CONTEXT(o->context);

	if (!VB_DEAD(q)) {
		pthread_mutex_lock(&c->events);
		int e = vb_engine->destroy(q->h);
		pthread_mutex_unlock(&c->events);
		if (e)
			return vb_told(e);
		vb_purge(o->send_cq, o->qp_num);
		vb_purge(o->recv_cq, o->qp_num);
		vb_wait(&o->mutex, &o->cond, &o->events_completed, &q->delivered);
	}
	free_qp(q);
	return 0;
}

int vb_post_send(struct ibv_qp *o, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct vb_qp *q = VB(qp, o);

	if (!VB_DEAD(q))
		return vb_engine->post_send(q->h, wr, (void **)bad);
	*bad = wr;
	return EIO;
}

int vb_post_recv(struct ibv_qp *o, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct vb_qp *q = VB(qp, o);

	if (!VB_DEAD(q))
		return vb_engine->post_recv(q->h, wr, (void **)bad);
	*bad = wr;
	return EIO;
}

static int mcast(struct ibv_qp *o, const union ibv_gid *gid, uint16_t lid, int attach)
{
	struct vb_qp *q = VB(qp, o);

	return vb_told(VB_DEAD(q) ? EIO : vb_engine->mcast(q->h, gid, lid, attach));
}

int ibv_attach_mcast(struct ibv_qp *o, const union ibv_gid *gid, uint16_t lid) { return mcast(o, gid, lid, 1); }
int ibv_detach_mcast(struct ibv_qp *o, const union ibv_gid *gid, uint16_t lid) { return mcast(o, gid, lid, 0); }

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *a)
{
	struct vb_ah *h = calloc(1, sizeof *h);

	if (!h)
		VB_FAIL(ENOMEM, NULL);
	h->o = (struct ibv_ah){.context = pd->context, .pd = pd};
	h->gen = VB(pd, pd)->gen;
	int e = VB_DEAD(h) ? EIO : vb_engine->create_ah(VB(pd, pd)->h, a, &h->h);
	if (!e)
		return &h->o;
	free(h);
	VB_FAIL(e, NULL);
}

int ibv_init_ah_from_wc(struct ibv_context *x, uint8_t port, struct ibv_wc *wc, struct ibv_grh *grh,
			struct ibv_ah_attr *a)
{
	struct vb_context *c = VB_CONTEXT(x);

	memset(a, 0, sizeof *a);
	int e = VB_ENTER(c);
	if (!e)
		e = vb_engine->ah_from_wc(c->h, port, wc, grh, a);
	if (e)
		VB_FAIL(e, -1);
	return 0;
}

struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh, uint8_t port)
{
	struct ibv_ah_attr a;

	if (ibv_init_ah_from_wc(pd->context, port, wc, grh, &a))
		return NULL;
	return ibv_create_ah(pd, &a);
}

int ibv_destroy_ah(struct ibv_ah *o)
{
	struct vb_ah *h = VB(ah, o);

	return vb_end(h);
}

// A local peer has the MAC address 0. There is no VLAN.
int ibv_resolve_eth_l2_from_gid(struct ibv_context *x, struct ibv_ah_attr *a, uint8_t mac[6], uint16_t *vlan)
{
	int e;

	memset(mac, 0, 6);
	e = vb_peer_mac(a->grh.dgid.raw, ((struct vb_device *)x->device)->info.ifindex, mac);
	if (e)
		VB_FAIL(e, -1);
	if (vlan)
		*vlan = 0xffff;
	return 0;
}
