// Events. The descriptor of a channel is a semaphore with one token for each event.
#include <unistd.h>

#include "lib.h"

static void fill_conn(struct rdma_conn_param *to, const struct vrb_cm_event *from)
{
	to->responder_resources = from->responder_resources;
	to->initiator_depth = from->initiator_depth;
	to->flow_control = from->flow_control;
	to->retry_count = from->retry_count;
	to->rnr_retry_count = from->rnr_retry_count;
	to->srq = from->srq;
	to->qp_num = from->qp_num;
}

// fill makes the program's event of the engine's.
static void fill(struct cm_event *ev, const struct vrb_cm_event *from)
{
	uint8_t n = from->private_len > 255 ? 255 : from->private_len;

	ev->o.event = from->type;
	ev->o.status = from->status;
	memcpy(ev->private_data, from->private_data, sizeof ev->private_data);
	if (from->type == RDMA_CM_EVENT_USER) {
		ev->o.param.arg = from->arg;
	} else if (from->ud) {
		struct rdma_ud_param *ud = &ev->o.param.ud;
		memcpy(&ud->ah_attr, from->ah_attr, sizeof ud->ah_attr);
		ud->qp_num = from->qp_num;
		ud->qkey = from->qkey;
		ud->private_data_len = n;
		ud->private_data = n ? ev->private_data : NULL;
	} else {
		fill_conn(&ev->o.param.conn, from);
		ev->o.param.conn.private_data_len = n;
		ev->o.param.conn.private_data = n ? ev->private_data : NULL;
	}
	if (ev->group)
		ev->o.param.ud.private_data = ev->group->context;
}

// request makes the ID of CONNECT_REQUEST. cm_mu is held.
static struct cm_id *request(struct cm_id *listener, struct rdma_event_channel *ch, const struct vrb_cm_event *from)
{
	struct cm_id *id = cm_new(ch, listener->o.context, listener->o.ps);

	if (!id) {
		cm_engine->destroy(from->request);
		return NULL;
	}
	id->h = from->request;
	id->responder_resources = from->responder_resources;
	id->initiator_depth = from->initiator_depth;
	cm_engine->set_context(id->h, id);
	return id;
}

// take takes an event of the engine, and counts it. It returns 0 or an errno, EAGAIN if there is no event. It does not
// return if the channel was destroyed after the token had been read.
static int take(struct cm_channel *ch, struct cm_event *ev)
{
	struct vrb_cm_event from = {};
	int e;

	pthread_mutex_lock(&cm_mu);
	if (ch->destroyed) {
		pthread_mutex_unlock(&cm_mu);
		for (;;)
			pause();
	}
	e = cm_engine->take(ch->h, &from);
	if (e)
		goto out;
	struct cm_id *id = from.context;
	ev->owner = id;
	ev->o.id = &id->o;
	if (from.type == RDMA_CM_EVENT_CONNECT_REQUEST) {
		struct cm_id *new = request(id, &ch->o, &from);
		if (!new) {
			e = ENOMEM;
			goto out;
		}
		ev->o.listen_id = &id->o;
		ev->o.id = &new->o;
	}
	ev->group = from.group;
	fill(ev, &from);
	pthread_mutex_lock(&id->mu);
	id->delivered++;
	if (ev->group)
		ev->group->delivered++;
	pthread_mutex_unlock(&id->mu);
out:
	pthread_mutex_unlock(&cm_mu);
	return e;
}

// respond connects the QP of an ID whose peer has accepted, and makes the event that of the result.
static void respond(struct cm_id *id, struct rdma_cm_event *ev)
{
	int e = cm_connect_qp(id, RDMA_MAX_RESP_RES, RDMA_MAX_INIT_DEPTH);

	if (!e)
		e = cm_engine->establish(id->h);
	ev->event = RDMA_CM_EVENT_ESTABLISHED;
	if (e) {
		cm_fail_qp(id);
		cm_engine->reject(id->h, NULL, 0, 0);
		id->over = 1;
		ev->event = RDMA_CM_EVENT_CONNECT_ERROR;
		ev->status = -e;
	}
}

// effect does what retrieving an event means for its ID. It returns an errno if the program must not see the event.
static int effect(struct cm_event *ev)
{
	struct cm_id *id = CM_ID(ev->o.id);
	int e;

	switch (ev->o.event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		e = cm_learn(id);
		if (e) { // the error of each is the next value
			ev->o.event++;
			ev->o.status = -e;
		}
		break;
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		return cm_learn(id);
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		if (id->o.qp)
			respond(id, &ev->o);
		break;
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_CONNECT_ERROR:
		id->over = 1;
		break;
	case RDMA_CM_EVENT_REJECTED:
	case RDMA_CM_EVENT_DISCONNECTED:
		id->over = 1;
		cm_fail_qp(id);
		break;
	case RDMA_CM_EVENT_MULTICAST_JOIN:
		e = cm_attach(id, ev->group, &ev->o.param.ud.ah_attr.grh.dgid);
		if (e) {
			ev->o.event = RDMA_CM_EVENT_MULTICAST_ERROR;
			ev->o.status = -e;
		}
		break;
	default:
		break;
	}
	return 0;
}

// refuse ends a request whose device cannot be opened.
static void refuse(struct cm_event *ev)
{
	struct rdma_cm_id *id = ev->o.id;

	rdma_ack_cm_event(&ev->o);
	rdma_destroy_id(id);
}

// enter counts a call that uses a channel.
static void enter(struct cm_channel *ch)
{
	pthread_mutex_lock(&cm_mu);
	ch->inside++;
	pthread_mutex_unlock(&cm_mu);
}

// leave is the end of such a call, also if its thread is cancelled. The last one frees a channel that was destroyed.
static void leave(void *channel)
{
	struct cm_channel *ch = channel;

	pthread_mutex_lock(&cm_mu);
	int last = !--ch->inside && ch->destroyed;
	pthread_mutex_unlock(&cm_mu);
	if (last)
		cm_free_channel(ch);
}

// next takes the next event, for which it waits. It returns 0 or an errno.
static int next(struct cm_channel *ch, struct cm_event *ev)
{
	uint64_t one;
	int e;

	enter(ch);
	pthread_cleanup_push(leave, ch);
	// A token without an event: its ID was destroyed, or moved to another channel, between the two.
	do {
		e = read(ch->o.fd, &one, sizeof one) == sizeof one ? take(ch, ev) : -1;
	} while (e == EAGAIN);
	e = e < 0 ? errno : e;
	pthread_cleanup_pop(1);
	return e;
}

int rdma_get_cm_event(struct rdma_event_channel *o, struct rdma_cm_event **out)
{
	struct cm_channel *ch = CM_CHANNEL(o);
	int e;

	if (!o || !out)
		return cm_result(EINVAL);
	if (CM_DEAD(ch))
		return cm_result(EIO);
	for (;;) {
		struct cm_event *ev = calloc(1, sizeof *ev);
		if (!ev)
			return cm_result(ENOMEM);
		e = next(ch, ev);
		if (e) {
			free(ev);
			return cm_result(e);
		}
		*out = &ev->o;
		if (!effect(ev))
			return 0;
		refuse(ev);
	}
}

int rdma_ack_cm_event(struct rdma_cm_event *o)
{
	struct cm_event *ev = (struct cm_event *)o;

	if (!o)
		return cm_result(EINVAL);
	struct cm_id *id = ev->owner;
	if (id) {
		pthread_mutex_lock(&id->mu);
		id->acked++;
		if (ev->group)
			ev->group->acked++;
		pthread_cond_broadcast(&id->cond);
		pthread_mutex_unlock(&id->mu);
	}
	free(ev);
	return 0;
}

int rdma_write_cm_event(struct rdma_cm_id *o, enum rdma_cm_event_type type, int status, uint64_t arg)
{
	if (!o || type != RDMA_CM_EVENT_USER)
		return cm_result(EINVAL);
	return cm_result(CM_CALL(CM_ID(o), write_event, type, status, arg));
}

// aside reports whether an event is not the result of a call.
static int aside(enum rdma_cm_event_type t)
{
	return t == RDMA_CM_EVENT_ADDR_CHANGE || t == RDMA_CM_EVENT_TIMEWAIT_EXIT || t == RDMA_CM_EVENT_USER;
}

int cm_complete(struct cm_id *id)
{
	if (!id->sync)
		return 0;
	do {
		cm_drop_event(id);
		if (rdma_get_cm_event(id->o.channel, &id->o.event))
			return -1;
	} while (aside(id->o.event->event));
	int status = id->o.event->status;
	if (id->o.event->event == RDMA_CM_EVENT_REJECTED)
		return cm_result(ECONNREFUSED);
	return cm_result(status < 0 ? -status : status);
}

const char *rdma_event_str(enum rdma_cm_event_type t)
{
	static const char *const names[] = {
		"RDMA_CM_EVENT_ADDR_RESOLVED", "RDMA_CM_EVENT_ADDR_ERROR", "RDMA_CM_EVENT_ROUTE_RESOLVED",
		"RDMA_CM_EVENT_ROUTE_ERROR", "RDMA_CM_EVENT_CONNECT_REQUEST", "RDMA_CM_EVENT_CONNECT_RESPONSE",
		"RDMA_CM_EVENT_CONNECT_ERROR", "RDMA_CM_EVENT_UNREACHABLE", "RDMA_CM_EVENT_REJECTED",
		"RDMA_CM_EVENT_ESTABLISHED", "RDMA_CM_EVENT_DISCONNECTED", "RDMA_CM_EVENT_DEVICE_REMOVAL",
		"RDMA_CM_EVENT_MULTICAST_JOIN", "RDMA_CM_EVENT_MULTICAST_ERROR", "RDMA_CM_EVENT_ADDR_CHANGE",
		"RDMA_CM_EVENT_TIMEWAIT_EXIT", "RDMA_CM_EVENT_ADDRINFO_RESOLVED", "RDMA_CM_EVENT_ADDRINFO_ERROR",
		"RDMA_CM_EVENT_USER",
	};

	return t < sizeof names / sizeof *names ? names[t] : "UNKNOWN EVENT";
}
