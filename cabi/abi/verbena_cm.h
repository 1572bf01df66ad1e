// The structures of the librdmacm ABI. Layouts and values are those of release 44 and later ones.
//
// Members with "BE" are big endian.
#ifndef VERBENA_CM_H
#define VERBENA_CM_H

#include <netinet/in.h>
#include <sys/socket.h>

#include "verbena_verbs.h"

enum rdma_cm_event_type {
	RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_ADDR_ERROR, RDMA_CM_EVENT_ROUTE_RESOLVED, RDMA_CM_EVENT_ROUTE_ERROR,
	RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_CONNECT_RESPONSE, RDMA_CM_EVENT_CONNECT_ERROR,
	RDMA_CM_EVENT_UNREACHABLE, RDMA_CM_EVENT_REJECTED, RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_DISCONNECTED,
	RDMA_CM_EVENT_DEVICE_REMOVAL, RDMA_CM_EVENT_MULTICAST_JOIN, RDMA_CM_EVENT_MULTICAST_ERROR,
	RDMA_CM_EVENT_ADDR_CHANGE, RDMA_CM_EVENT_TIMEWAIT_EXIT, RDMA_CM_EVENT_ADDRINFO_RESOLVED,
	RDMA_CM_EVENT_ADDRINFO_ERROR, RDMA_CM_EVENT_USER,
};

enum rdma_port_space {
	RDMA_PS_IPOIB = 0x0002, RDMA_PS_TCP = 0x0106, RDMA_PS_UDP = 0x0111, RDMA_PS_IB = 0x013F,
};

enum { RDMA_MAX_RESP_RES = 0xFF, RDMA_MAX_INIT_DEPTH = 0xFF };
enum { RDMA_OPTION_ID = 0, RDMA_OPTION_IB = 1 };
enum {
	RDMA_OPTION_ID_TOS = 0, RDMA_OPTION_ID_REUSEADDR = 1, RDMA_OPTION_ID_AFONLY = 2, RDMA_OPTION_ID_ACK_TIMEOUT = 3,
};
enum { RDMA_OPTION_IB_PATH = 1 };
enum { RAI_PASSIVE = 1, RAI_NUMERICHOST = 2, RAI_NOROUTE = 4, RAI_FAMILY = 8, RAI_SA = 16, RAI_DNS = 32 };
enum rdma_cm_join_mc_attr_mask {
	RDMA_CM_JOIN_MC_ATTR_ADDRESS = 1, RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS = 2, RDMA_CM_JOIN_MC_ATTR_RESERVED = 4,
};
enum rdma_cm_mc_join_flags {
	RDMA_MC_JOIN_FLAG_FULLMEMBER, RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER, RDMA_MC_JOIN_FLAG_RESERVED,
};

struct ibv_sa_path_rec {
	union ibv_gid dgid, sgid;
	uint16_t dlid, slid; // BE
	int raw_traffic;
	uint32_t flow_label; // BE
	uint8_t hop_limit, traffic_class;
	int reversible;
	uint8_t numb_path;
	uint16_t pkey; // BE
	uint8_t sl, mtu_selector, mtu, rate_selector, rate, packet_life_time_selector, packet_life_time, preference;
};

struct ib_addr { uint8_t raw[16]; };

// sockaddr_ib is an address of the family AF_IB: members are BE, but for the family and the scope.
struct sockaddr_ib {
	unsigned short int sib_family;
	uint16_t sib_pkey;
	uint32_t sib_flowinfo;
	struct ib_addr sib_addr;
	uint64_t sib_sid, sib_sid_mask, sib_scope_id;
};

struct rdma_ib_addr {
	union ibv_gid sgid, dgid;
	uint16_t pkey; // BE
};

struct rdma_addr {
	union {
		struct sockaddr src_addr;
		struct sockaddr_in src_sin;
		struct sockaddr_in6 src_sin6;
		struct sockaddr_storage src_storage;
	};
	union {
		struct sockaddr dst_addr;
		struct sockaddr_in dst_sin;
		struct sockaddr_in6 dst_sin6;
		struct sockaddr_storage dst_storage;
	};
	union { struct rdma_ib_addr ibaddr; } addr;
};

struct rdma_route {
	struct rdma_addr addr;
	struct ibv_sa_path_rec *path_rec;
	int num_paths;
};

struct rdma_event_channel { int fd; };

struct rdma_cm_id {
	struct ibv_context *verbs;
	struct rdma_event_channel *channel;
	void *context;
	struct ibv_qp *qp;
	struct rdma_route route;
	enum rdma_port_space ps;
	uint8_t port_num;
	struct rdma_cm_event *event;
	struct ibv_comp_channel *send_cq_channel;
	struct ibv_cq *send_cq;
	struct ibv_comp_channel *recv_cq_channel;
	struct ibv_cq *recv_cq;
	struct ibv_srq *srq;
	struct ibv_pd *pd;
	enum ibv_qp_type qp_type;
};

struct rdma_conn_param {
	const void *private_data;
	uint8_t private_data_len, responder_resources, initiator_depth, flow_control, retry_count, rnr_retry_count, srq;
	uint32_t qp_num;
};

struct rdma_ud_param {
	const void *private_data;
	uint8_t private_data_len;
	struct ibv_ah_attr ah_attr;
	uint32_t qp_num, qkey;
};

struct rdma_cm_event {
	struct rdma_cm_id *id, *listen_id;
	enum rdma_cm_event_type event;
	int status;
	union {
		struct rdma_conn_param conn;
		struct rdma_ud_param ud;
		uint64_t arg; // RDMA_CM_EVENT_USER
	} param;
};

struct rdma_addrinfo {
	int ai_flags, ai_family, ai_qp_type, ai_port_space;
	socklen_t ai_src_len, ai_dst_len;
	struct sockaddr *ai_src_addr, *ai_dst_addr;
	char *ai_src_canonname, *ai_dst_canonname;
	size_t ai_route_len;
	void *ai_route;
	size_t ai_connect_len;
	void *ai_connect;
	struct rdma_addrinfo *ai_next;
};

struct rdma_cm_join_mc_attr_ex {
	uint32_t comp_mask, join_flags;
	struct sockaddr *addr;
};

struct rdma_event_channel *rdma_create_event_channel(void);
void rdma_destroy_event_channel(struct rdma_event_channel *);
int rdma_create_id(struct rdma_event_channel *, struct rdma_cm_id **, void *context, enum rdma_port_space);
int rdma_destroy_id(struct rdma_cm_id *);
int rdma_create_ep(struct rdma_cm_id **, struct rdma_addrinfo *, struct ibv_pd *, struct ibv_qp_init_attr *);
void rdma_destroy_ep(struct rdma_cm_id *);
int rdma_migrate_id(struct rdma_cm_id *, struct rdma_event_channel *);
int rdma_bind_addr(struct rdma_cm_id *, struct sockaddr *);
int rdma_resolve_addr(struct rdma_cm_id *, struct sockaddr *src, struct sockaddr *dst, int timeout_ms);
int rdma_resolve_route(struct rdma_cm_id *, int timeout_ms);
int rdma_create_qp(struct rdma_cm_id *, struct ibv_pd *, struct ibv_qp_init_attr *);
int rdma_create_qp_ex(struct rdma_cm_id *, struct ibv_qp_init_attr_ex *);
void rdma_destroy_qp(struct rdma_cm_id *);
int rdma_create_srq(struct rdma_cm_id *, struct ibv_pd *, struct ibv_srq_init_attr *);
int rdma_create_srq_ex(struct rdma_cm_id *, struct ibv_srq_init_attr_ex *);
void rdma_destroy_srq(struct rdma_cm_id *);
int rdma_connect(struct rdma_cm_id *, struct rdma_conn_param *);
int rdma_establish(struct rdma_cm_id *);
int rdma_listen(struct rdma_cm_id *, int backlog);
int rdma_get_request(struct rdma_cm_id *listen, struct rdma_cm_id **);
int rdma_accept(struct rdma_cm_id *, struct rdma_conn_param *);
int rdma_reject(struct rdma_cm_id *, const void *private_data, uint8_t length);
int rdma_reject_ece(struct rdma_cm_id *, const void *private_data, uint8_t length);
int rdma_notify(struct rdma_cm_id *, enum ibv_event_type);
int rdma_disconnect(struct rdma_cm_id *);
int rdma_join_multicast(struct rdma_cm_id *, struct sockaddr *, void *context);
int rdma_join_multicast_ex(struct rdma_cm_id *, struct rdma_cm_join_mc_attr_ex *, void *context);
int rdma_leave_multicast(struct rdma_cm_id *, struct sockaddr *);
int rdma_get_cm_event(struct rdma_event_channel *, struct rdma_cm_event **);
int rdma_ack_cm_event(struct rdma_cm_event *);
uint16_t rdma_get_src_port(struct rdma_cm_id *); // BE
uint16_t rdma_get_dst_port(struct rdma_cm_id *); // BE
struct ibv_context **rdma_get_devices(int *count);
void rdma_free_devices(struct ibv_context **);
const char *rdma_event_str(enum rdma_cm_event_type);
int rdma_set_option(struct rdma_cm_id *, int level, int name, void *value, size_t length);
int rdma_getaddrinfo(const char *node, const char *service, const struct rdma_addrinfo *hints, struct rdma_addrinfo **);
void rdma_freeaddrinfo(struct rdma_addrinfo *);
int rdma_init_qp_attr(struct rdma_cm_id *, struct ibv_qp_attr *, int *mask);
int rdma_set_local_ece(struct rdma_cm_id *, struct ibv_ece *);
int rdma_get_remote_ece(struct rdma_cm_id *, struct ibv_ece *);
int rdma_resolve_addrinfo(struct rdma_cm_id *, const char *node, const char *service, const struct rdma_addrinfo *hints);
int rdma_query_addrinfo(struct rdma_cm_id *, struct rdma_addrinfo **);
int rdma_write_cm_event(struct rdma_cm_id *, enum rdma_cm_event_type, int status, uint64_t arg);

#endif
