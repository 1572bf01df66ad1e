// The insides of librdmacm.so.1: IDs over the engine, QPs and CQs over libibverbs.so.1.
//
// Each object begins with the structure that programs see. It belongs to the generation of the engine that made it:
// after fork the objects of the parent answer EIO.
#ifndef VERBENA_RDMACM_LIB_H
#define VERBENA_RDMACM_LIB_H

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../abi/verbena_cm.h"
#include "../engine/cm.h"

#define CM_HIDDEN __attribute__((visibility("hidden")))

// cm_engine is the engine's table, cm_generation where the number of the generation stands. Both are set after cm_load.
extern CM_HIDDEN const struct vrb_cm *cm_engine;
extern CM_HIDDEN const unsigned int *cm_generation;

// cm_load loads the engine if this process has none. It returns 0 or an errno.
CM_HIDDEN int cm_load(void);

enum { FAMILY_IB = 27 };

// cm_mu is held while an event is taken and counted, and while an ID is destroyed.
extern CM_HIDDEN pthread_mutex_t cm_mu;

struct cm_channel {
	struct rdma_event_channel o;
	void *h;
	unsigned int gen;
	int inside; // calls of rdma_get_cm_event, which use it; guarded by cm_mu, as destroyed is
	int destroyed;
};

// cm_device is a device of all IDs. It stays open.
struct cm_device {
	struct ibv_context *verbs;
	struct ibv_pd *pd;
	struct ibv_xrcd *xrcd;
	unsigned int gen; // of pd and xrcd
	struct cm_device *next;
	char name[64];
};

// cm_group is a multicast group that an ID has joined.
struct cm_group {
	union ibv_gid gid;
	struct sockaddr_storage addr;
	void *context; // the program's
	int send_only, attached;
	uint32_t delivered, acked; // events
	struct cm_group *next;
};

struct cm_id {
	struct rdma_cm_id o;
	void *h;
	unsigned int gen;
	int sync; // o.channel is the ID's own: calls wait
	int over; // the end of the connection was reported
	struct cm_device *device;
	struct ibv_qp_init_attr *request_qp; // of an endpoint that listens: the QPs of requests
	struct ibv_sa_path_rec path;
	struct cm_group *groups;
	uint8_t responder_resources, initiator_depth; // of the request
	pthread_mutex_t mu;			      // guards the counts, and resolved
	pthread_cond_t cond;
	int resolving;			// until rdma_query_addrinfo
	struct rdma_addrinfo *resolved; // of rdma_resolve_addrinfo
	uint32_t delivered, acked;
};

struct cm_event {
	struct rdma_cm_event o;
	struct cm_id *owner; // counts it
	struct cm_group *group;
	uint8_t private_data[256];
};

#define CM_ID(id) ((struct cm_id *)(id))
#define CM_CHANNEL(ch) ((struct cm_channel *)(ch))
#define CM_DEAD(o) (!cm_generation || (o)->gen != *cm_generation)
#define CM_VERBS(c) ((struct verbs_context *)((char *)(c) - offsetof(struct verbs_context, context)))

// cm_result returns 0, or -1 with errno set.
static inline int cm_result(int e)
{
	if (!e)
		return 0;
	errno = e;
	return -1;
}

// CM_CALL calls the engine with the handle of an object; EIO for one of the parent.
#define CM_CALL(o, function, ...) (CM_DEAD(o) ? EIO : cm_engine->function((o)->h, ##__VA_ARGS__))

// cm_device_of returns the opened device with that name, NULL with errno set on failure.
CM_HIDDEN struct cm_device *cm_device_of(const char *name);
// cm_default_pd and cm_default_xrcd return what all IDs of a device use by default.
CM_HIDDEN struct ibv_pd *cm_default_pd(struct cm_device *);
CM_HIDDEN struct ibv_xrcd *cm_default_xrcd(struct cm_device *);

// cm_free_channel frees a channel that no call uses.
CM_HIDDEN void cm_free_channel(struct cm_channel *);
// cm_new makes an ID without the engine's part.
CM_HIDDEN struct cm_id *cm_new(struct rdma_event_channel *, void *context, enum rdma_port_space);
// cm_learn takes over what the engine knows of the ID's addresses.
CM_HIDDEN int cm_learn(struct cm_id *);
// cm_complete waits for the event of a call's result, if the ID is synchronous. It returns 0, or -1 with errno set.
CM_HIDDEN int cm_complete(struct cm_id *);
CM_HIDDEN void cm_drop_event(struct cm_id *);
// cm_wait waits until the program has acknowledged all events that *acked counts.
CM_HIDDEN void cm_wait(struct cm_id *, const uint32_t *acked, const uint32_t *delivered);

// cm_move moves the ID's QP to INIT, RTR and RTS with the engine's attributes. It returns 0 or an errno. A number that
// is RDMA_MAX_RESP_RES or RDMA_MAX_INIT_DEPTH stands for the engine's.
CM_HIDDEN int cm_connect_qp(struct cm_id *, uint8_t responder_resources, uint8_t initiator_depth);
CM_HIDDEN void cm_fail_qp(struct cm_id *);
CM_HIDDEN int cm_streams(struct cm_id *); // is the device one of iWARP

// cm_attach attaches the QP to the group of an event. It returns 0 or an errno.
CM_HIDDEN int cm_attach(struct cm_id *, struct cm_group *, const union ibv_gid *);
CM_HIDDEN void cm_leave_groups(struct cm_id *);

CM_HIDDEN socklen_t cm_addr_len(const struct sockaddr *);

#endif
