// Connections: the calls of both sides.
#include "lib.h"

// fill makes the engine's parameters. Without parameters of the program: 7 retries, READs as the device can.
static struct vrb_cm_param fill(struct cm_id *id, const struct rdma_conn_param *p)
{
	struct vrb_cm_param to = {.responder_resources = RDMA_MAX_RESP_RES, .initiator_depth = RDMA_MAX_INIT_DEPTH,
				  .retry_count = 7, .rnr_retry_count = 7};

	if (p) {
		to = (struct vrb_cm_param){
			.private_data = p->private_data, .private_len = p->private_data ? p->private_data_len : 0,
			.qp_num = p->qp_num, .srq = p->srq,
			.responder_resources = p->responder_resources, .initiator_depth = p->initiator_depth,
			.flow_control = p->flow_control, .retry_count = p->retry_count, .rnr_retry_count = p->rnr_retry_count};
	}
	if (id->o.qp) {
		to.qp_num = id->o.qp->qp_num;
		to.srq = id->o.qp->srq != NULL;
	}
	return to;
}

int rdma_connect(struct rdma_cm_id *o, struct rdma_conn_param *p)
{
	struct cm_id *id = CM_ID(o);

	if (!p && !o->qp && o->qp_type != IBV_QPT_UD)
		return cm_result(EINVAL);
	struct vrb_cm_param to = fill(id, p);
	int e = CM_CALL(id, connect, &to);
	return e ? cm_result(e) : cm_complete(id);
}

int rdma_establish(struct rdma_cm_id *o)
{
	if (o->qp) // rdma_get_cm_event has done it
		return cm_result(EINVAL);
	return cm_result(CM_CALL(CM_ID(o), establish));
}

int rdma_listen(struct rdma_cm_id *o, int backlog)
{
	struct cm_id *id = CM_ID(o);
	int e = CM_CALL(id, listen, backlog);

	return cm_result(e ? e : cm_learn(id));
}

static uint8_t least(uint8_t n, int limit) { return n < limit ? n : limit; }

// as_requested replaces the numbers that stand for those of the request, at most what the device can. It returns 0 or
// an errno.
static int as_requested(struct cm_id *id, struct vrb_cm_param *to)
{
	struct ibv_device_attr most;
	int e = id->o.verbs ? ibv_query_device(id->o.verbs, &most) : EINVAL;

	if (e)
		return e;
	if (to->responder_resources == RDMA_MAX_RESP_RES)
		to->responder_resources = least(id->responder_resources, most.max_qp_rd_atom);
	if (to->initiator_depth == RDMA_MAX_INIT_DEPTH)
		to->initiator_depth = least(id->initiator_depth, most.max_qp_init_rd_atom);
	return 0;
}

// answer connects the QP and accepts.
static int answer(struct cm_id *id, const struct rdma_conn_param *p)
{
	struct vrb_cm_param to = fill(id, p);
	int e = 0;

	if (id->o.qp_type == IBV_QPT_UD)
		return CM_CALL(id, accept, &to);
	e = as_requested(id, &to);
	if (!e && id->o.qp)
		e = cm_connect_qp(id, to.responder_resources, to.initiator_depth);
	if (e) // perhaps of a connection that was accepted before, which goes on
		return e;
	e = CM_CALL(id, accept, &to);
	if (e) { // the QP cannot be connected again: the peer is told at once
		cm_fail_qp(id);
		CM_CALL(id, reject, NULL, 0, 0);
	}
	return e;
}

int rdma_accept(struct rdma_cm_id *o, struct rdma_conn_param *p)
{
	struct cm_id *id = CM_ID(o);

	if (!p && !o->qp)
		return cm_result(EINVAL);
	int e = answer(id, p);
	if (e)
		return cm_result(e);
	if (o->qp_type != IBV_QPT_UD)
		return cm_complete(id);
	cm_drop_event(id); // of the request: the answer to a look-up has no event
	return 0;
}

int rdma_reject(struct rdma_cm_id *o, const void *data, uint8_t length)
{
	return cm_result(CM_CALL(CM_ID(o), reject, data, data ? length : 0, 0));
}

int rdma_reject_ece(struct rdma_cm_id *o, const void *data, uint8_t length)
{
	return cm_result(CM_CALL(CM_ID(o), reject, data, data ? length : 0, 1));
}

int rdma_notify(struct rdma_cm_id *o, enum ibv_event_type event)
{
	return cm_result(CM_CALL(CM_ID(o), notify, event));
}

int rdma_disconnect(struct rdma_cm_id *o)
{
	struct cm_id *id = CM_ID(o);

	// Before the peer learns of it: the QP first sends the acknowledgements of what the program has received. An iWARP
	// QP still sends what is posted.
	if (!cm_streams(id))
		cm_fail_qp(id);
	int e = CM_CALL(id, disconnect);
	if (e)
		return cm_result(e);
	return id->over ? 0 : cm_complete(id);
}

int rdma_set_local_ece(struct rdma_cm_id *o, struct ibv_ece *ece)
{
	if (!ece || ece->comp_mask)
		return cm_result(EINVAL);
	return cm_result(CM_CALL(CM_ID(o), set_ece, ece->vendor_id, ece->options));
}

int rdma_get_remote_ece(struct rdma_cm_id *o, struct ibv_ece *ece)
{
	uint32_t got[2] = {0};

	if (!ece)
		return cm_result(EINVAL);
	int e = CM_CALL(CM_ID(o), remote_ece, got);
	*ece = (struct ibv_ece){.vendor_id = got[0], .options = got[1]};
	return cm_result(e);
}

// Endpoints.

static int copy_request_qp(struct cm_id *id, struct ibv_pd *pd, const struct ibv_qp_init_attr *a)
{
	if (pd)
		id->o.pd = pd;
	if (!a)
		return 0;
	id->request_qp = malloc(sizeof *id->request_qp);
	if (!id->request_qp)
		return ENOMEM;
	*id->request_qp = *a;
	id->request_qp->qp_type = id->o.qp_type;
	return 0;
}

int rdma_create_ep(struct rdma_cm_id **out, struct rdma_addrinfo *res, struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	int e = res ? cm_load() : EINVAL;
	struct cm_id *id = e ? NULL : cm_new(NULL, NULL, res->ai_port_space);

	if (!id)
		return cm_result(e ? e : errno);
	struct vrb_cm_ai ai = {.flags = res->ai_flags, .qp_type = res->ai_qp_type, .ps = res->ai_port_space,
			       .src = res->ai_src_len ? res->ai_src_addr : NULL,
			       .dst = res->ai_dst_len ? res->ai_dst_addr : NULL,
			       .route = res->ai_route, .route_len = res->ai_route ? res->ai_route_len : 0,
			       .connect = res->ai_connect, .connect_len = res->ai_connect ? res->ai_connect_len : 0};
	e = cm_engine->create_ep(CM_CHANNEL(id->o.channel)->h, &ai, id, &id->h);
	if (e) {
		rdma_destroy_event_channel(id->o.channel);
		free(id);
		return cm_result(e);
	}
	e = cm_learn(id);
	if (!e && res->ai_flags & RAI_PASSIVE)
		e = copy_request_qp(id, pd, a);
	else if (!e && a) {
		a->qp_type = id->o.qp_type;
		if (rdma_create_qp(&id->o, pd, a))
			e = errno;
	}
	if (e) {
		rdma_destroy_id(&id->o);
		return cm_result(e);
	}
	*out = &id->o;
	return 0;
}

void rdma_destroy_ep(struct rdma_cm_id *o)
{
	if (o->qp)
		rdma_destroy_qp(o);
	if (o->srq)
		rdma_destroy_srq(o);
	rdma_destroy_id(o);
}

// adopt makes the ID of a request synchronous, with the event of its request, and gives it a QP if the listener is an
// endpoint with one.
static int adopt(struct cm_id *listener, struct rdma_cm_event *ev)
{
	struct cm_id *id = CM_ID(ev->id);

	if (listener->request_qp) {
		struct ibv_qp_init_attr a = *listener->request_qp;
		struct ibv_pd *pd = listener->o.pd && listener->o.pd->context == id->o.verbs ? listener->o.pd : NULL;
		if (rdma_create_qp(&id->o, pd, &a))
			return -1;
	}
	if (rdma_migrate_id(&id->o, NULL))
		return -1;
	// The listener may be destroyed before the new ID takes its next event.
	struct cm_event *own = (struct cm_event *)ev;
	pthread_mutex_lock(&listener->mu);
	listener->acked++;
	pthread_cond_broadcast(&listener->cond);
	pthread_mutex_unlock(&listener->mu);
	own->owner = NULL;
	id->o.event = ev;
	return 0;
}

int rdma_get_request(struct rdma_cm_id *o, struct rdma_cm_id **out)
{
	struct cm_id *listener = CM_ID(o);
	struct rdma_cm_event *ev;
	int e = 0;

	if (!listener->sync)
		return cm_result(EINVAL);
	cm_drop_event(listener);
	if (rdma_get_cm_event(o->channel, &ev))
		return -1;
	if (ev->status)
		e = ev->status < 0 ? -ev->status : ev->status;
	else if (ev->event != RDMA_CM_EVENT_CONNECT_REQUEST)
		e = EINVAL;
	if (e) {
		o->event = ev;
		return cm_result(e);
	}
	struct rdma_cm_id *id = ev->id;
	if (adopt(listener, ev)) {
		e = errno;
		rdma_reject(id, NULL, 0);
		rdma_ack_cm_event(ev);
		rdma_destroy_ep(id);
		return cm_result(e);
	}
	*out = id;
	return 0;
}
