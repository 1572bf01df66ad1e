// Event channels and IDs, their addresses and options.
#include <arpa/inet.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "lib.h"

struct rdma_event_channel *rdma_create_event_channel(void)
{
	int e = cm_load();
	struct cm_channel *ch = e ? NULL : calloc(1, sizeof *ch);

	if (!ch) {
		errno = e ? e : ENOMEM;
		return NULL;
	}
	ch->gen = *cm_generation;
	ch->o.fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	e = ch->o.fd < 0 ? errno : cm_engine->channel(ch->o.fd, &ch->h);
	if (!e)
		return &ch->o;
	if (ch->o.fd >= 0)
		close(ch->o.fd);
	free(ch);
	errno = e;
	return NULL;
}

void cm_free_channel(struct cm_channel *ch)
{
	close(ch->o.fd);
	free(ch);
}

// A thread that waits in rdma_get_cm_event goes on waiting, as one that waits in the kernel for a descriptor that is
// closed. The channel's memory and descriptor stay for it.
void rdma_destroy_event_channel(struct rdma_event_channel *o)
{
	struct cm_channel *ch = CM_CHANNEL(o);

	pthread_mutex_lock(&cm_mu);
	if (!CM_DEAD(ch))
		cm_engine->destroy(ch->h);
	ch->destroyed = 1;
	int unused = CM_DEAD(ch) || !ch->inside; // the calls that use a channel of the parent are the parent's
	pthread_mutex_unlock(&cm_mu);
	if (unused)
		cm_free_channel(ch);
}

struct cm_id *cm_new(struct rdma_event_channel *ch, void *context, enum rdma_port_space ps)
{
	struct cm_id *id = calloc(1, sizeof *id);

	if (!id)
		return NULL;
	id->sync = !ch;
	if (!ch && !(ch = rdma_create_event_channel())) {
		free(id);
		return NULL;
	}
	id->gen = *cm_generation;
	id->o.channel = ch;
	id->o.context = context;
	id->o.ps = ps;
	id->o.qp_type = ps == RDMA_PS_UDP || ps == RDMA_PS_IPOIB ? IBV_QPT_UD : IBV_QPT_RC;
	pthread_mutex_init(&id->mu, NULL);
	pthread_cond_init(&id->cond, NULL);
	return id;
}

static void free_id(struct cm_id *id)
{
	if (id->sync)
		rdma_destroy_event_channel(id->o.channel);
	while (id->groups) {
		struct cm_group *g = id->groups;
		id->groups = g->next;
		free(g);
	}
	rdma_freeaddrinfo(id->resolved);
	free(id->request_qp);
	free(id);
}

int rdma_create_id(struct rdma_event_channel *ch, struct rdma_cm_id **out, void *context, enum rdma_port_space ps)
{
	int e = cm_load();
	struct cm_id *id = e ? NULL : cm_new(ch, context, ps);

	if (!id)
		return cm_result(e ? e : errno);
	struct cm_channel *c = CM_CHANNEL(id->o.channel);
	e = CM_DEAD(c) ? EIO : cm_engine->create_id(c->h, ps, id, &id->h);
	if (e) {
		free_id(id);
		return cm_result(e);
	}
	*out = &id->o;
	return 0;
}

// A thread of the parent may have events of an ID of the parent, and acknowledges them there only.
void cm_wait(struct cm_id *id, const uint32_t *acked, const uint32_t *delivered)
{
	if (CM_DEAD(id))
		return;
	pthread_mutex_lock(&id->mu);
	while (*acked != *delivered)
		pthread_cond_wait(&id->cond, &id->mu);
	pthread_mutex_unlock(&id->mu);
}

void cm_drop_event(struct cm_id *id)
{
	if (id->o.event)
		rdma_ack_cm_event(id->o.event);
	id->o.event = NULL;
}

int rdma_destroy_id(struct rdma_cm_id *o)
{
	struct cm_id *id = CM_ID(o);
	int e = 0;

	cm_leave_groups(id);
	pthread_mutex_lock(&cm_mu);
	if (!CM_DEAD(id))
		e = cm_engine->destroy(id->h);
	pthread_mutex_unlock(&cm_mu);
	if (e)
		return cm_result(e);
	cm_drop_event(id);
	cm_wait(id, &id->acked, &id->delivered);
	free_id(id);
	return 0;
}

int rdma_migrate_id(struct rdma_cm_id *o, struct rdma_event_channel *ch)
{
	struct cm_id *id = CM_ID(o);
	struct rdma_event_channel *own = NULL, *old = o->channel;

	if (!ch && id->sync)
		return cm_result(EINVAL);
	if (CM_DEAD(id))
		return cm_result(EIO);
	if (!ch && !(ch = own = rdma_create_event_channel()))
		return -1;
	pthread_mutex_lock(&cm_mu);
	int e = CM_DEAD(CM_CHANNEL(ch)) ? EIO : cm_engine->migrate(id->h, CM_CHANNEL(ch)->h);
	pthread_mutex_unlock(&cm_mu);
	if (e) {
		if (own)
			rdma_destroy_event_channel(own);
		return cm_result(e);
	}
	if (id->sync) {
		cm_drop_event(id);
		rdma_destroy_event_channel(old);
	}
	o->channel = ch;
	id->sync = own != NULL;
	cm_wait(id, &id->acked, &id->delivered);
	return 0;
}

static void fill_path(struct ibv_sa_path_rec *to, const struct vrb_cm_path *from)
{
	enum { EXACTLY = 2 };

	memset(to, 0, sizeof *to);
	memcpy(&to->dgid, from->dgid, sizeof to->dgid);
	memcpy(&to->sgid, from->sgid, sizeof to->sgid);
	to->flow_label = htonl(from->flow_label);
	to->pkey = htons(from->pkey);
	to->hop_limit = from->hop_limit;
	to->traffic_class = from->traffic_class;
	to->reversible = from->reversible;
	to->numb_path = from->numb_path;
	to->sl = from->sl;
	to->mtu_selector = to->rate_selector = to->packet_life_time_selector = EXACTLY;
	to->mtu = from->mtu;
	to->rate = from->rate;
	to->packet_life_time = from->packet_life_time;
	to->preference = from->preference;
}

int cm_learn(struct cm_id *id)
{
	struct vrb_cm_info info;
	struct rdma_addr *a = &id->o.route.addr;
	int e = CM_CALL(id, info, &info);

	if (e)
		return e;
	memcpy(&a->src_storage, info.src, sizeof a->src_storage);
	if (*(uint16_t *)info.dst) // else the program's address that was not resolved yet stays
		memcpy(&a->dst_storage, info.dst, sizeof a->dst_storage);
	memcpy(&a->addr.ibaddr.sgid, info.sgid, 16);
	memcpy(&a->addr.ibaddr.dgid, info.dgid, 16);
	a->addr.ibaddr.pkey = htons(info.pkey);
	id->o.qp_type = info.qp_type;
	if (info.num_paths) {
		fill_path(&id->path, &info.path);
		id->o.route.path_rec = &id->path;
		id->o.route.num_paths = 1;
	}
	if (!info.device[0] || id->o.verbs)
		return 0;
	id->device = cm_device_of(info.device);
	if (!id->device)
		return errno;
	id->o.verbs = id->device->verbs;
	id->o.port_num = info.port_num;
	id->o.pd = cm_default_pd(id->device);
	return id->o.pd ? 0 : errno;
}

int rdma_bind_addr(struct rdma_cm_id *o, struct sockaddr *addr)
{
	struct cm_id *id = CM_ID(o);

	if (!addr || !cm_addr_len(addr))
		return cm_result(EINVAL);
	int e = CM_CALL(id, bind, addr);
	return cm_result(e ? e : cm_learn(id));
}

socklen_t cm_addr_len(const struct sockaddr *a)
{
	if (!a)
		return 0;
	switch (a->sa_family) {
	case AF_INET:
		return sizeof(struct sockaddr_in);
	case AF_INET6:
		return sizeof(struct sockaddr_in6);
	case FAMILY_IB:
		return sizeof(struct sockaddr_ib);
	}
	return 0;
}

int rdma_resolve_addr(struct rdma_cm_id *o, struct sockaddr *src, struct sockaddr *dst, int timeout_ms)
{
	struct cm_id *id = CM_ID(o);
	socklen_t n = cm_addr_len(dst);

	if (!n || (src && src->sa_family != dst->sa_family))
		return cm_result(EINVAL);
	int e = CM_CALL(id, resolve_addr, src, dst, timeout_ms);
	if (e)
		return cm_result(e);
	memcpy(&o->route.addr.dst_storage, dst, n);
	return cm_complete(id);
}

int rdma_resolve_route(struct rdma_cm_id *o, int timeout_ms)
{
	int e = CM_CALL(CM_ID(o), resolve_route, timeout_ms);

	return e ? cm_result(e) : cm_complete(CM_ID(o));
}

static uint16_t port_of(const struct sockaddr *a)
{
	switch (a->sa_family) {
	case AF_INET:
		return ((const struct sockaddr_in *)a)->sin_port;
	case AF_INET6:
		return ((const struct sockaddr_in6 *)a)->sin6_port;
	case FAMILY_IB:
		return htons((uint16_t)be64toh(((const struct sockaddr_ib *)a)->sib_sid));
	}
	return 0;
}

uint16_t rdma_get_src_port(struct rdma_cm_id *o) { return port_of(&o->route.addr.src_addr); }
uint16_t rdma_get_dst_port(struct rdma_cm_id *o) { return port_of(&o->route.addr.dst_addr); }

int rdma_set_option(struct rdma_cm_id *o, int level, int name, void *value, size_t length)
{
	struct cm_id *id = CM_ID(o);

	if (!value && length)
		return cm_result(EFAULT);
	int e = CM_CALL(id, set_option, level, name, value, length);
	if (e)
		return cm_result(e);
	// The path is reported as an event.
	return level == RDMA_OPTION_IB && name == RDMA_OPTION_IB_PATH ? cm_complete(id) : 0;
}
