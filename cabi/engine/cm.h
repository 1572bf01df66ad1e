// The part of the engine that librdmacm.so.1 uses for connections: engine.h explains the terms. IDs have no QP here:
// the C library creates QPs through libibverbs and moves them, as programs with QPs of their own do.
#ifndef VERBENA_ENGINE_CM_H
#define VERBENA_ENGINE_CM_H

#include <stdint.h>

#define VERBENA_CM_ABI 2

// vrb_cm_path is a path record in host order.
struct vrb_cm_path {
	uint8_t dgid[16], sgid[16];
	uint32_t flow_label;
	uint16_t pkey;
	uint8_t hop_limit, traffic_class, reversible, numb_path, sl, mtu, rate, packet_life_time, preference;
};

// vrb_cm_info is what an ID knows of its addresses.
struct vrb_cm_info {
	uint8_t src[128], dst[128]; // struct sockaddr_storage; family 0 for none
	uint8_t sgid[16], dgid[16];
	uint16_t pkey;
	uint8_t port_num;
	uint8_t num_paths; // 0 or 1
	uint32_t ps;
	uint32_t qp_type;
	char device[64]; // empty while the ID is not bound to a device
	struct vrb_cm_path path;
};

struct vrb_cm_param {
	const void *private_data;
	uint32_t private_len;
	uint32_t qp_num;
	uint8_t responder_resources, initiator_depth, flow_control, retry_count, rnr_retry_count, srq;
};

struct vrb_cm_event {
	void *context;	// of the ID; of CONNECT_REQUEST, of the listener
	void *request;	// CONNECT_REQUEST: the handle of the new ID, which has no context yet
	void *group;	// of multicast events: the context of join
	uint32_t type;	// enum rdma_cm_event_type
	int32_t status;
	uint64_t arg;	// RDMA_CM_EVENT_USER
	uint32_t qp_num, qkey;
	uint32_t private_len;
	uint8_t responder_resources, initiator_depth, flow_control, retry_count, rnr_retry_count, srq;
	uint8_t ud; // the parameters are those of datagrams
	uint8_t ah_attr[32]; // struct ibv_ah_attr
	uint8_t private_data[256];
};

// vrb_cm_ai is the part of struct rdma_addrinfo that an endpoint is made from.
struct vrb_cm_ai {
	uint32_t flags, qp_type, ps;
	const void *src, *dst; // struct sockaddr or NULL
	const void *route, *connect;
	uint64_t route_len, connect_len;
};

// Addresses are struct sockaddr of the families AF_INET, AF_INET6 and AF_IB.
#define VERBENA_CM(X) \
	/* channel: fd is a semaphore of the caller, which gets one token for each event */ \
	X(int, channel, (int fd, void **ch)) \
	X(int, create_id, (void *ch, uint32_t ps, void *context, void **id)) \
	/* create_ep: an ID that is bound, or has its route, as rdma_create_ep makes it */ \
	X(int, create_ep, (void *ch, const struct vrb_cm_ai *ai, void *context, void **id)) \
	X(int, set_context, (void *id, void *context)) \
	/* destroy closes a channel or an ID; it gives no event of it any more */ \
	X(int, destroy, (void *object)) \
	X(int, migrate, (void *id, void *ch)) \
	X(int, bind, (void *id, const void *addr)) \
	X(int, resolve_addr, (void *id, const void *src, const void *dst, int timeout_ms)) \
	X(int, resolve_route, (void *id, int timeout_ms)) \
	X(int, info, (void *id, struct vrb_cm_info *info)) \
	X(int, listen, (void *id, int backlog)) \
	X(int, connect, (void *id, const struct vrb_cm_param *param)) \
	X(int, accept, (void *id, const struct vrb_cm_param *param)) \
	X(int, establish, (void *id)) \
	/* reject: of a request, or after CONNECT_RESPONSE */ \
	X(int, reject, (void *id, const void *data, uint32_t n, int ece)) \
	X(int, disconnect, (void *id)) \
	X(int, notify, (void *id, uint32_t event)) \
	X(int, set_option, (void *id, int level, int name, const void *value, uint64_t n)) \
	/* init_qp_attr: in attr.qp_state is the state to move to */ \
	X(int, init_qp_attr, (void *id, void *qp_attr, int *mask)) \
	X(int, join, (void *id, const void *addr, uint32_t flags, void *context)) \
	X(int, leave, (void *id, const void *addr)) \
	X(int, remote_ece, (void *id, uint32_t *vendor_options)) \
	X(int, set_ece, (void *id, uint32_t vendor, uint32_t options)) \
	/* write_event: an event of the program's own */ \
	X(int, write_event, (void *id, uint32_t type, int status, uint64_t arg)) \
	/* take: EAGAIN if there is no event */ \
	X(int, take, (void *ch, struct vrb_cm_event *event))

#define VERBENA_CM_MEMBER(result, name, params) result(*name) params;
struct vrb_cm {
	VERBENA_CM(VERBENA_CM_MEMBER)
};

// verbena_cm returns the table; NULL for another ABI.
const struct vrb_cm *verbena_cm(uint32_t abi);

#endif
