// Completion channels and events. A descriptor is a semaphore with one token for each event.
#include <sys/eventfd.h>
#include <unistd.h>

#include "lib.h"

void vb_wait(pthread_mutex_t *mu, pthread_cond_t *cond, const uint32_t *acked, const uint32_t *delivered)
{
	pthread_mutex_lock(mu);
	while (*acked != *delivered)
		pthread_cond_wait(cond, mu);
	pthread_mutex_unlock(mu);
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *x)
{
	struct vb_context *c = VB_CONTEXT(x);
	struct vb_channel *ch = calloc(1, sizeof *ch);

	if (!ch)
		VB_FAIL(ENOMEM, NULL);
	ch->o.context = x;
	ch->gen = vb_gen(c);
	ch->o.fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	int e = ch->o.fd < 0 ? errno : VB_DEAD(ch) ? EIO : vb_engine->create_channel(c->h, ch->o.fd, &ch->h);
	if (!e)
		return &ch->o;
	if (ch->o.fd >= 0)
		close(ch->o.fd);
	free(ch);
	VB_FAIL(e, NULL);
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *o)
{
	struct vb_channel *ch = VB(channel, o);
	struct ibv_context *x = o->context;
	int fd = o->fd;

	pthread_mutex_lock(&x->mutex);
	int e = o->refcnt ? vb_told(EBUSY) : vb_end(ch);
	pthread_mutex_unlock(&x->mutex);
	if (!e)
		close(fd);
	return e;
}

// token waits for a token, as the flags of the descriptor say.
static int token(int fd)
{
	uint64_t one;

	return read(fd, &one, sizeof one) == sizeof one ? 0 : -1;
}

int ibv_get_cq_event(struct ibv_comp_channel *o, struct ibv_cq **cq, void **cq_context)
{
	struct vb_channel *ch = VB(channel, o);
	struct vb_context *c = VB_CONTEXT(o->context);

	if (VB_DEAD(ch))
		VB_FAIL(EIO, -1);
	// A token without an event: its CQ was destroyed between the two.
	for (;;) {
		if (token(o->fd))
			return -1;
		pthread_mutex_lock(&c->events);
		void *p = NULL;
		int e = vb_engine->take_comp(ch->h, &p);
		if (!e) {
			struct vb_cq *q = p;

			q->comp_delivered++;
			*cq = (struct ibv_cq *)q;
			*cq_context = q->o.cq_context;
		}
		pthread_mutex_unlock(&c->events);
		if (e == EIO)
			VB_FAIL(EIO, -1);
		if (!e)
			return 0;
	}
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int count)
{
	pthread_mutex_lock(&cq->mutex);
	cq->comp_events_completed += count;
	pthread_cond_signal(&cq->cond);
	pthread_mutex_unlock(&cq->mutex);
}

// deliver counts an event and makes it the program's.
static void deliver(const struct vrb_async *from, struct ibv_async_event *to)
{
	void *o = from->context;

	to->event_type = from->type;
	switch (from->kind) {
	case VRB_ASYNC_CQ:
		to->element.cq = o;
		VB(cq, o)->async_delivered++;
		break;
	case VRB_ASYNC_QP:
		to->element.qp = o;
		VB(qp, o)->delivered++;
		break;
	case VRB_ASYNC_SRQ:
		to->element.srq = o;
		VB(srq, o)->delivered++;
		break;
	case VRB_ASYNC_WQ:
		to->element.wq = o;
		VB(wq, o)->delivered++;
		break;
	default:
		to->element.port_num = from->port;
	}
}

int ibv_get_async_event(struct ibv_context *x, struct ibv_async_event *event)
{
	struct vb_context *c = VB_CONTEXT(x);
	struct vrb_async from = {};

	if (VB_DEAD(c))
		VB_FAIL(EIO, -1);
	for (;;) {
		if (token(x->async_fd))
			return -1;
		pthread_mutex_lock(&c->events);
		int e = vb_engine->take_async(c->h, &from);
		if (!e)
			deliver(&from, event);
		pthread_mutex_unlock(&c->events);
		if (e == EIO)
			VB_FAIL(EIO, -1);
		if (!e)
			return 0;
	}
}

static void ack(pthread_mutex_t *mu, pthread_cond_t *cond, uint32_t *count)
{
	pthread_mutex_lock(mu);
	(*count)++;
	pthread_cond_signal(cond);
	pthread_mutex_unlock(mu);
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR: {
		struct ibv_cq *o = event->element.cq;
		ack(&o->mutex, &o->cond, &o->async_events_completed);
		break;
	}
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED: {
		struct ibv_qp *o = event->element.qp;
		ack(&o->mutex, &o->cond, &o->events_completed);
		break;
	}
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED: {
		struct ibv_srq *o = event->element.srq;
		ack(&o->mutex, &o->cond, &o->events_completed);
		break;
	}
	case IBV_EVENT_WQ_FATAL: {
		struct ibv_wq *o = event->element.wq;
		ack(&o->mutex, &o->cond, &o->events_completed);
		break;
	}
	default:
		break;
	}
}
