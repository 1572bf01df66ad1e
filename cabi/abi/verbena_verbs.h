// The structures of the libibverbs ABI, and the tables of functions that programs call through.
//
// Layouts are those of release 44, in their newest form: structures that later releases made longer have the length of
// release 65, with the same members at the same offsets. A program sees only the part it was compiled with.
// "go run ./cabi/abi/check" compares sizes, offsets and values with the headers that are installed.
//
// Members with "BE" are big endian.
#ifndef VERBENA_VERBS_H
#define VERBENA_VERBS_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "verbena_flow.h"
#include "verbena_values.h"

struct ibv_ah;
struct ibv_comp_channel;
struct ibv_cq;
struct ibv_cq_ex;
struct ibv_mr;
struct ibv_pd;
struct ibv_qp;
struct ibv_srq;
struct ibv_wq;

// Addresses.

union ibv_gid {
	uint8_t raw[16];
	struct { uint64_t subnet_prefix, interface_id; } global; // BE
};

struct ibv_gid_entry {
	union ibv_gid gid;
	uint32_t gid_index, port_num, gid_type, ndev_ifindex;
};

struct ibv_global_route {
	union ibv_gid dgid;
	uint32_t flow_label;
	uint8_t sgid_index, hop_limit, traffic_class;
};

// ibv_grh is the header on the wire, all BE.
struct ibv_grh {
	uint32_t version_tclass_flow;
	uint16_t paylen;
	uint8_t next_hdr, hop_limit;
	union ibv_gid sgid, dgid;
};

struct ibv_ah_attr {
	struct ibv_global_route grh;
	uint16_t dlid;
	uint8_t sl, src_path_bits, static_rate, is_global, port_num;
};

// Attributes of devices and ports.

struct ibv_device_attr {
	char fw_ver[64];
	uint64_t node_guid, sys_image_guid; // BE
	uint64_t max_mr_size, page_size_cap;
	uint32_t vendor_id, vendor_part_id, hw_ver;
	int max_qp, max_qp_wr;
	unsigned int device_cap_flags;
	int max_sge, max_sge_rd, max_cq, max_cqe, max_mr, max_pd;
	int max_qp_rd_atom, max_ee_rd_atom, max_res_rd_atom, max_qp_init_rd_atom, max_ee_init_rd_atom;
	enum ibv_atomic_cap atomic_cap;
	int max_ee, max_rdd, max_mw, max_raw_ipv6_qp, max_raw_ethy_qp;
	int max_mcast_grp, max_mcast_qp_attach, max_total_mcast_qp_attach, max_ah;
	int max_fmr, max_map_per_fmr, max_srq, max_srq_wr, max_srq_sge;
	uint16_t max_pkeys;
	uint8_t local_ca_ack_delay, phys_port_cnt;
};

struct ibv_odp_caps {
	uint64_t general_caps;
	struct { uint32_t rc_odp_caps, uc_odp_caps, ud_odp_caps; } per_transport_caps;
};

struct ibv_tso_caps { uint32_t max_tso, supported_qpts; };

struct ibv_rss_caps {
	uint32_t supported_qpts, max_rwq_indirection_tables, max_rwq_indirection_table_size;
	uint64_t rx_hash_fields_mask;
	uint8_t rx_hash_function;
};

struct ibv_packet_pacing_caps { uint32_t qp_rate_limit_min, qp_rate_limit_max, supported_qpts; };
struct ibv_tm_caps { uint32_t max_rndv_hdr_size, max_num_tags, flags, max_ops, max_sge; };
struct ibv_cq_moderation_caps { uint16_t max_cq_count, max_cq_period; };
struct ibv_pci_atomic_caps { uint16_t fetch_add, swap, compare_swap; };

struct ibv_device_attr_ex {
	struct ibv_device_attr orig_attr;
	uint32_t comp_mask;
	struct ibv_odp_caps odp_caps;
	uint64_t completion_timestamp_mask, hca_core_clock, device_cap_flags_ex;
	struct ibv_tso_caps tso_caps;
	struct ibv_rss_caps rss_caps;
	uint32_t max_wq_type_rq;
	struct ibv_packet_pacing_caps packet_pacing_caps;
	uint32_t raw_packet_caps;
	struct ibv_tm_caps tm_caps;
	struct ibv_cq_moderation_caps cq_mod_caps;
	uint64_t max_dm_size;
	struct ibv_pci_atomic_caps pci_atomic_caps;
	uint32_t xrc_odp_caps, phys_port_cnt_ex;
};

struct ibv_query_device_ex_input { uint32_t comp_mask; };

struct ibv_port_attr {
	enum ibv_port_state state;
	enum ibv_mtu max_mtu, active_mtu;
	int gid_tbl_len;
	uint32_t port_cap_flags, max_msg_sz, bad_pkey_cntr, qkey_viol_cntr;
	uint16_t pkey_tbl_len, lid, sm_lid;
	uint8_t lmc, max_vl_num, sm_sl, subnet_timeout, init_type_reply;
	uint8_t active_width, active_speed, phys_state, link_layer, flags;
	uint16_t port_cap_flags2; // since release 24; the exported ibv_query_port ends before it
	uint32_t active_speed_ex; // since release 49
};

// VB_PORT_ATTR_COMPAT is the length that the exported function ibv_query_port fills, in bytes. The macro of the same
// name in verbs.h calls verbs_context.query_port instead, which is told the caller's length.
#define VB_PORT_ATTR_COMPAT offsetof(struct ibv_port_attr, port_cap_flags2)

struct ibv_values_ex {
	uint32_t comp_mask;
	struct timespec raw_clock;
};

// Protection domains and memory.

struct ibv_pd { struct ibv_context *context; uint32_t handle; };
struct ibv_td { struct ibv_context *context; };
struct ibv_td_init_attr { uint32_t comp_mask; };

struct ibv_parent_domain_init_attr {
	struct ibv_pd *pd;
	struct ibv_td *td;
	uint32_t comp_mask;
	void *(*alloc)(struct ibv_pd *, void *pd_context, size_t size, size_t alignment, uint64_t resource_type);
	void (*free)(struct ibv_pd *, void *pd_context, void *memory, uint64_t resource_type);
	void *pd_context;
};

// release 65
struct ibv_mr_init_attr {
	size_t length;
	int access;
	uint64_t comp_mask; // enum ibv_mr_init_attr_mask
	uint64_t iova;
	void *addr;
	int fd;
	uint64_t fd_offset;
	void *dmah;
	struct ibv_buf *buf;
};

struct ibv_xrcd { struct ibv_context *context; };
struct ibv_xrcd_init_attr { uint32_t comp_mask; int fd, oflags; };

struct ibv_mr {
	struct ibv_context *context;
	struct ibv_pd *pd;
	void *addr;
	size_t length;
	uint32_t handle, lkey, rkey;
};

struct ibv_mw {
	struct ibv_context *context;
	struct ibv_pd *pd;
	uint32_t rkey, handle;
	enum ibv_mw_type type;
};

struct ibv_mw_bind_info {
	struct ibv_mr *mr;
	uint64_t addr, length;
	unsigned int mw_access_flags;
};

struct ibv_mw_bind {
	uint64_t wr_id;
	unsigned int send_flags;
	struct ibv_mw_bind_info bind_info;
};

struct ibv_alloc_dm_attr { size_t length; uint32_t log_align_req, comp_mask; };

struct ibv_dm {
	struct ibv_context *context;
	int (*memcpy_to_dm)(struct ibv_dm *, uint64_t offset, const void *from, size_t length);
	int (*memcpy_from_dm)(void *to, struct ibv_dm *, uint64_t offset, size_t length);
	uint32_t comp_mask, handle;
};

// Work requests and completions.

struct ibv_sge { uint64_t addr; uint32_t length, lkey; };
struct ibv_data_buf { void *addr; size_t length; };

struct ibv_send_wr {
	uint64_t wr_id;
	struct ibv_send_wr *next;
	struct ibv_sge *sg_list;
	int num_sge;
	enum ibv_wr_opcode opcode;
	unsigned int send_flags;
	union { uint32_t imm_data /* BE */, invalidate_rkey; };
	union {
		struct { uint64_t remote_addr; uint32_t rkey; } rdma;
		struct { uint64_t remote_addr, compare_add, swap; uint32_t rkey; } atomic;
		struct { struct ibv_ah *ah; uint32_t remote_qpn, remote_qkey; } ud;
	} wr;
	union { struct { uint32_t remote_srqn; } xrc; } qp_type;
	union {
		struct { struct ibv_mw *mw; uint32_t rkey; struct ibv_mw_bind_info bind_info; } bind_mw;
		struct { void *hdr; uint16_t hdr_sz, mss; } tso;
	};
};

struct ibv_recv_wr {
	uint64_t wr_id;
	struct ibv_recv_wr *next;
	struct ibv_sge *sg_list;
	int num_sge;
};

struct ibv_ops_wr {
	uint64_t wr_id;
	struct ibv_ops_wr *next;
	enum ibv_ops_wr_opcode opcode;
	int flags;
	struct {
		uint32_t unexpected_cnt, handle;
		struct {
			uint64_t recv_wr_id;
			struct ibv_sge *sg_list;
			int num_sge;
			uint64_t tag, mask;
		} add;
	} tm;
};

struct ibv_wc {
	uint64_t wr_id;
	enum ibv_wc_status status;
	enum ibv_wc_opcode opcode;
	uint32_t vendor_err, byte_len;
	union { uint32_t imm_data /* BE */, invalidated_rkey; };
	uint32_t qp_num, src_qp;
	unsigned int wc_flags;
	uint16_t pkey_index, slid;
	uint8_t sl, dlid_path_bits;
};

struct ibv_wc_tm_info { uint64_t tag; uint32_t priv; };

struct ibv_async_event {
	union {
		struct ibv_cq *cq;
		struct ibv_qp *qp;
		struct ibv_srq *srq;
		struct ibv_wq *wq;
		int port_num;
	} element;
	enum ibv_event_type event_type;
};

// Completion queues.

struct ibv_comp_channel { struct ibv_context *context; int fd, refcnt; };

// ibv_cq and ibv_cq_ex begin alike: verbs.h casts one to the other. The counters are those of events that the program
// acknowledged; ibv_destroy_cq waits on cond for them.
#define VB_CQ_BEGIN                                                                                                    \
	struct ibv_context *context;                                                                                   \
	struct ibv_comp_channel *channel;                                                                              \
	void *cq_context;                                                                                              \
	uint32_t handle;                                                                                               \
	int cqe;                                                                                                       \
	pthread_mutex_t mutex;                                                                                         \
	pthread_cond_t cond;                                                                                           \
	uint32_t comp_events_completed, async_events_completed

struct ibv_cq { VB_CQ_BEGIN; };

struct ibv_poll_cq_attr { uint32_t comp_mask; };

struct ibv_cq_ex {
	VB_CQ_BEGIN;
	uint32_t comp_mask;
	enum ibv_wc_status status;
	uint64_t wr_id;
	int (*start_poll)(struct ibv_cq_ex *, struct ibv_poll_cq_attr *);
	int (*next_poll)(struct ibv_cq_ex *);
	void (*end_poll)(struct ibv_cq_ex *);
	enum ibv_wc_opcode (*read_opcode)(struct ibv_cq_ex *);
	uint32_t (*read_vendor_err)(struct ibv_cq_ex *);
	uint32_t (*read_byte_len)(struct ibv_cq_ex *);
	uint32_t (*read_imm_data)(struct ibv_cq_ex *); // BE, or the invalidated key in host order
	uint32_t (*read_qp_num)(struct ibv_cq_ex *);
	uint32_t (*read_src_qp)(struct ibv_cq_ex *);
	unsigned int (*read_wc_flags)(struct ibv_cq_ex *);
	uint32_t (*read_slid)(struct ibv_cq_ex *);
	uint8_t (*read_sl)(struct ibv_cq_ex *);
	uint8_t (*read_dlid_path_bits)(struct ibv_cq_ex *);
	uint64_t (*read_completion_ts)(struct ibv_cq_ex *);
	uint16_t (*read_cvlan)(struct ibv_cq_ex *);
	uint32_t (*read_flow_tag)(struct ibv_cq_ex *);
	void (*read_tm_info)(struct ibv_cq_ex *, struct ibv_wc_tm_info *);
	uint64_t (*read_completion_wallclock_ns)(struct ibv_cq_ex *);
};

struct ibv_cq_init_attr_ex {
	uint32_t cqe;
	void *cq_context;
	struct ibv_comp_channel *channel;
	uint32_t comp_vector;
	uint64_t wc_flags;
	uint32_t comp_mask, flags;
	struct ibv_pd *parent_domain;
};

struct ibv_moderate_cq { uint16_t cq_count, cq_period; };
struct ibv_modify_cq_attr { uint32_t attr_mask; struct ibv_moderate_cq moderate; };

// Shared receive queues.

struct ibv_srq {
	struct ibv_context *context;
	void *srq_context;
	struct ibv_pd *pd;
	uint32_t handle;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t events_completed;
};

struct ibv_srq_attr { uint32_t max_wr, max_sge, srq_limit; };
struct ibv_srq_init_attr { void *srq_context; struct ibv_srq_attr attr; };
struct ibv_tm_cap { uint32_t max_num_tags, max_ops; };

// ibv_srq_init_attr_ex begins as ibv_srq_init_attr: verbs.h casts one to the other.
struct ibv_srq_init_attr_ex {
	void *srq_context;
	struct ibv_srq_attr attr;
	uint32_t comp_mask;
	enum ibv_srq_type srq_type;
	struct ibv_pd *pd;
	struct ibv_xrcd *xrcd;
	struct ibv_cq *cq;
	struct ibv_tm_cap tm_cap;
};

// Work queues. verbs.h itself fills wq_context, events_completed, mutex and cond after create_wq.

struct ibv_wq {
	struct ibv_context *context;
	void *wq_context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	uint32_t wq_num, handle;
	enum ibv_wq_state state;
	enum ibv_wq_type wq_type;
	int (*post_recv)(struct ibv_wq *, struct ibv_recv_wr *, struct ibv_recv_wr **bad);
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t events_completed, comp_mask;
};

struct ibv_wq_init_attr {
	void *wq_context;
	enum ibv_wq_type wq_type;
	uint32_t max_wr, max_sge;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	uint32_t comp_mask, create_flags;
};

struct ibv_wq_attr {
	uint32_t attr_mask;
	enum ibv_wq_state wq_state, curr_wq_state;
	uint32_t flags, flags_mask;
};

struct ibv_rwq_ind_table {
	struct ibv_context *context;
	int ind_tbl_handle, ind_tbl_num;
	uint32_t comp_mask;
};

struct ibv_rwq_ind_table_init_attr {
	uint32_t log_ind_tbl_size;
	struct ibv_wq **ind_tbl;
	uint32_t comp_mask;
};

// Queue pairs.

struct ibv_qp_cap { uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data; };

// ibv_qp_init_attr and ibv_qp_init_attr_ex begin alike: verbs.h casts one to the other.
#define VB_QP_INIT_BEGIN                                                                                               \
	void *qp_context;                                                                                              \
	struct ibv_cq *send_cq, *recv_cq;                                                                              \
	struct ibv_srq *srq;                                                                                           \
	struct ibv_qp_cap cap;                                                                                         \
	enum ibv_qp_type qp_type;                                                                                      \
	int sq_sig_all

struct ibv_qp_init_attr { VB_QP_INIT_BEGIN; };

struct ibv_rx_hash_conf {
	uint8_t rx_hash_function, rx_hash_key_len;
	uint8_t *rx_hash_key;
	uint64_t rx_hash_fields_mask;
};

struct ibv_qp_init_attr_ex {
	VB_QP_INIT_BEGIN;
	uint32_t comp_mask;
	struct ibv_pd *pd;
	struct ibv_xrcd *xrcd;
	uint32_t create_flags;
	uint16_t max_tso_header;
	struct ibv_rwq_ind_table *rwq_ind_tbl;
	struct ibv_rx_hash_conf rx_hash_conf;
	uint32_t source_qpn;
	uint64_t send_ops_flags;
};

struct ibv_qp_open_attr {
	uint32_t comp_mask, qp_num;
	struct ibv_xrcd *xrcd;
	void *qp_context;
	enum ibv_qp_type qp_type;
};

struct ibv_qp_attr {
	enum ibv_qp_state qp_state, cur_qp_state;
	enum ibv_mtu path_mtu;
	enum ibv_mig_state path_mig_state;
	uint32_t qkey, rq_psn, sq_psn, dest_qp_num;
	unsigned int qp_access_flags;
	struct ibv_qp_cap cap;
	struct ibv_ah_attr ah_attr, alt_ah_attr;
	uint16_t pkey_index, alt_pkey_index;
	uint8_t en_sqd_async_notify, sq_draining, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer;
	uint8_t port_num, timeout, retry_cnt, rnr_retry, alt_port_num, alt_timeout;
	uint32_t rate_limit; // kbit/s
};

struct ibv_qp_rate_limit_attr {
	uint32_t rate_limit, max_burst_sz; // kbit/s, bytes
	uint16_t typical_pkt_sz;
	uint32_t comp_mask;
};

struct ibv_ece { uint32_t vendor_id, options, comp_mask; };

struct ibv_qp {
	struct ibv_context *context;
	void *qp_context;
	struct ibv_pd *pd;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_srq *srq;
	uint32_t handle, qp_num;
	enum ibv_qp_state state;
	enum ibv_qp_type qp_type;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t events_completed;
};

struct ibv_qp_ex {
	struct ibv_qp qp_base;
	uint64_t comp_mask, wr_id;
	unsigned int wr_flags;
	void (*wr_atomic_cmp_swp)(struct ibv_qp_ex *, uint32_t rkey, uint64_t remote, uint64_t compare, uint64_t swap);
	void (*wr_atomic_fetch_add)(struct ibv_qp_ex *, uint32_t rkey, uint64_t remote, uint64_t add);
	void (*wr_bind_mw)(struct ibv_qp_ex *, struct ibv_mw *, uint32_t rkey, const struct ibv_mw_bind_info *);
	void (*wr_local_inv)(struct ibv_qp_ex *, uint32_t rkey);
	void (*wr_rdma_read)(struct ibv_qp_ex *, uint32_t rkey, uint64_t remote);
	void (*wr_rdma_write)(struct ibv_qp_ex *, uint32_t rkey, uint64_t remote);
	void (*wr_rdma_write_imm)(struct ibv_qp_ex *, uint32_t rkey, uint64_t remote, uint32_t imm);
	void (*wr_send)(struct ibv_qp_ex *);
	void (*wr_send_imm)(struct ibv_qp_ex *, uint32_t imm);
	void (*wr_send_inv)(struct ibv_qp_ex *, uint32_t rkey);
	void (*wr_send_tso)(struct ibv_qp_ex *, void *header, uint16_t length, uint16_t mss);
	void (*wr_set_ud_addr)(struct ibv_qp_ex *, struct ibv_ah *, uint32_t qpn, uint32_t qkey);
	void (*wr_set_xrc_srqn)(struct ibv_qp_ex *, uint32_t srqn);
	void (*wr_set_inline_data)(struct ibv_qp_ex *, void *from, size_t length);
	void (*wr_set_inline_data_list)(struct ibv_qp_ex *, size_t count, const struct ibv_data_buf *);
	void (*wr_set_sge)(struct ibv_qp_ex *, uint32_t lkey, uint64_t addr, uint32_t length);
	void (*wr_set_sge_list)(struct ibv_qp_ex *, size_t count, const struct ibv_sge *);
	void (*wr_start)(struct ibv_qp_ex *);
	int (*wr_complete)(struct ibv_qp_ex *);
	void (*wr_abort)(struct ibv_qp_ex *);
	void (*wr_atomic_write)(struct ibv_qp_ex *, uint32_t rkey, uint64_t remote, const void *value);
	void (*wr_flush)(struct ibv_qp_ex *, uint32_t rkey, uint64_t remote, size_t length, uint8_t type,
			 uint8_t level); // since release 45
};

struct ibv_ah { struct ibv_context *context; struct ibv_pd *pd; uint32_t handle; };

// Counters.

struct ibv_counters { struct ibv_context *context; };
struct ibv_counters_init_attr { uint32_t comp_mask; };
struct ibv_counter_attach_attr { enum ibv_counter_description counter_desc; uint32_t index, comp_mask; };

// Devices and contexts.

enum { IBV_SYSFS_NAME_MAX = 64, IBV_SYSFS_PATH_MAX = 256 };

struct _ibv_device_ops { void *(*_dummy1)(void); void (*_dummy2)(void); };

struct ibv_device {
	struct _ibv_device_ops _ops;
	enum ibv_node_type node_type;
	enum ibv_transport_type transport_type;
	char name[IBV_SYSFS_NAME_MAX], dev_name[IBV_SYSFS_NAME_MAX];
	char dev_path[IBV_SYSFS_PATH_MAX], ibdev_path[IBV_SYSFS_PATH_MAX];
};

// verbs_device is what provider libraries take an ibv_device for: libmlx5 and libefa compare ops with their own table
// to tell their devices from others. ops is NULL here.
struct verbs_device {
	struct ibv_device device;
	const void *ops;
	int refcount;
	void *entry[2], *sysfs;
	uint64_t core_support;
};

typedef void *(*verbena_unused_op)(void);

struct ibv_context_ops {
	verbena_unused_op _compat_query_device, _compat_query_port, _compat_alloc_pd, _compat_dealloc_pd;
	verbena_unused_op _compat_reg_mr, _compat_rereg_mr, _compat_dereg_mr;
	struct ibv_mw *(*alloc_mw)(struct ibv_pd *, enum ibv_mw_type);
	int (*bind_mw)(struct ibv_qp *, struct ibv_mw *, struct ibv_mw_bind *);
	int (*dealloc_mw)(struct ibv_mw *);
	verbena_unused_op _compat_create_cq;
	int (*poll_cq)(struct ibv_cq *, int count, struct ibv_wc *);
	int (*req_notify_cq)(struct ibv_cq *, int solicited_only);
	verbena_unused_op _compat_cq_event, _compat_resize_cq, _compat_destroy_cq;
	verbena_unused_op _compat_create_srq, _compat_modify_srq, _compat_query_srq, _compat_destroy_srq;
	int (*post_srq_recv)(struct ibv_srq *, struct ibv_recv_wr *, struct ibv_recv_wr **bad);
	verbena_unused_op _compat_create_qp, _compat_query_qp, _compat_modify_qp, _compat_destroy_qp;
	int (*post_send)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **bad);
	int (*post_recv)(struct ibv_qp *, struct ibv_recv_wr *, struct ibv_recv_wr **bad);
	verbena_unused_op _compat_create_ah, _compat_destroy_ah, _compat_attach_mcast, _compat_detach_mcast;
	verbena_unused_op _compat_async_event;
};

struct ibv_context {
	struct ibv_device *device;
	struct ibv_context_ops ops;
	int cmd_fd, async_fd, num_comp_vectors;
	pthread_mutex_t mutex;
	void *abi_compat; // VB_ABI_EXTENDED: a verbs_context lies around this structure
};

#define VB_ABI_EXTENDED ((void *)UINTPTR_MAX)

// verbs_context lies around the ibv_context that programs hold and grows at its beginning. verbs.h finds a function by
// its distance from context, and takes it only if sz says that the table is that long and the pointer is not NULL.
struct verbs_context {
	// since release 64
	void (*free_buf)(void *buf);
	void *(*alloc_buf)(struct ibv_pd *, size_t, void **buf);
	// since releases 59 and 62
	int (*dm_export_dmabuf_fd)(struct ibv_dm *);
	struct ibv_mr *(*reg_mr_ex)(struct ibv_pd *, void *attr);
	int (*dealloc_dmah)(void *dmah);
	void *(*alloc_dmah)(struct ibv_context *, void *attr);
	// release 44
	int (*query_port)(struct ibv_context *, uint8_t port, struct ibv_port_attr *, size_t length);
	int (*advise_mr)(struct ibv_pd *, enum ib_uverbs_advise_mr_advice, uint32_t flags, struct ibv_sge *,
			 uint32_t count);
	struct ibv_mr *(*alloc_null_mr)(struct ibv_pd *);
	int (*read_counters)(struct ibv_counters *, uint64_t *values, uint32_t count, uint32_t flags);
	int (*attach_counters_point_flow)(struct ibv_counters *, struct ibv_counter_attach_attr *, struct ibv_flow *);
	struct ibv_counters *(*create_counters)(struct ibv_context *, struct ibv_counters_init_attr *);
	int (*destroy_counters)(struct ibv_counters *);
	struct ibv_mr *(*reg_dm_mr)(struct ibv_pd *, struct ibv_dm *, uint64_t offset, size_t length, unsigned int access);
	struct ibv_dm *(*alloc_dm)(struct ibv_context *, struct ibv_alloc_dm_attr *);
	int (*free_dm)(struct ibv_dm *);
	int (*modify_flow_action_esp)(struct ibv_flow_action *, struct ibv_flow_action_esp_attr *);
	int (*destroy_flow_action)(struct ibv_flow_action *);
	struct ibv_flow_action *(*create_flow_action_esp)(struct ibv_context *, struct ibv_flow_action_esp_attr *);
	int (*modify_qp_rate_limit)(struct ibv_qp *, struct ibv_qp_rate_limit_attr *);
	struct ibv_pd *(*alloc_parent_domain)(struct ibv_context *, struct ibv_parent_domain_init_attr *);
	int (*dealloc_td)(struct ibv_td *);
	struct ibv_td *(*alloc_td)(struct ibv_context *, struct ibv_td_init_attr *);
	int (*modify_cq)(struct ibv_cq *, struct ibv_modify_cq_attr *);
	int (*post_srq_ops)(struct ibv_srq *, struct ibv_ops_wr *, struct ibv_ops_wr **bad);
	int (*destroy_rwq_ind_table)(struct ibv_rwq_ind_table *);
	struct ibv_rwq_ind_table *(*create_rwq_ind_table)(struct ibv_context *, struct ibv_rwq_ind_table_init_attr *);
	int (*destroy_wq)(struct ibv_wq *);
	int (*modify_wq)(struct ibv_wq *, struct ibv_wq_attr *);
	struct ibv_wq *(*create_wq)(struct ibv_context *, struct ibv_wq_init_attr *);
	int (*query_rt_values)(struct ibv_context *, struct ibv_values_ex *);
	struct ibv_cq_ex *(*create_cq_ex)(struct ibv_context *, struct ibv_cq_init_attr_ex *);
	void *priv;
	int (*query_device_ex)(struct ibv_context *, const struct ibv_query_device_ex_input *, struct ibv_device_attr_ex *,
			       size_t length);
	int (*ibv_destroy_flow)(struct ibv_flow *);
	void (*ABI_placeholder2)(void);
	struct ibv_flow *(*ibv_create_flow)(struct ibv_qp *, struct ibv_flow_attr *);
	void (*ABI_placeholder1)(void);
	struct ibv_qp *(*open_qp)(struct ibv_context *, struct ibv_qp_open_attr *);
	struct ibv_qp *(*create_qp_ex)(struct ibv_context *, struct ibv_qp_init_attr_ex *);
	int (*get_srq_num)(struct ibv_srq *, uint32_t *);
	struct ibv_srq *(*create_srq_ex)(struct ibv_context *, struct ibv_srq_init_attr_ex *);
	struct ibv_xrcd *(*open_xrcd)(struct ibv_context *, struct ibv_xrcd_init_attr *);
	int (*close_xrcd)(struct ibv_xrcd *);
	uint64_t _ABI_placeholder3;
	size_t sz; // sizeof(struct verbs_context)
	struct ibv_context context;
};

#include "verbena_functions.h"

#endif
