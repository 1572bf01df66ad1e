// The interface between the thin C libraries and the engine: plain structures and a table of functions.
//
// Functions return 0 or an errno, unless said otherwise. A handle (void *) is a pointer that an engine function gave
// out. It is valid until destroy returns 0. "context" members are pointers of the C library that the engine returns
// with events. Pointers that the engine sets are NULL before, except *bad, which is the program's. Structures of
// verbs.h are passed as void *: the engine knows their layout.
#ifndef VERBENA_ENGINE_H
#define VERBENA_ENGINE_H

#include <stdint.h>

#define VERBENA_ENGINE_ABI 2

struct vrb_device {
	char name[64];
	char iface[64]; // network interface; empty if there is none
	uint8_t guid[8];
	int32_t node_type;
	int32_t transport_type;
	uint32_t ifindex;
};

struct vrb_cq_init {
	void *channel;	     // handle or NULL
	void *parent_domain; // handle or NULL
	void *context;
	int32_t cqe; // in: at least; out: actual
	int32_t comp_vector;
	uint64_t wc_flags; // 0: those of struct ibv_wc
	uint32_t flags;
};

// vrb_wc is a completion with all fields.
struct vrb_wc {
	uint64_t wr_id;
	uint64_t timestamp;
	uint64_t wallclock;
	uint64_t tm_tag;
	uint32_t tm_priv;
	uint32_t status;
	uint32_t opcode;
	uint32_t vendor_err;
	uint32_t byte_len;
	uint32_t imm; // network order, or the invalidated rkey
	uint32_t qp_num;
	uint32_t src_qp;
	uint32_t wc_flags;
	uint32_t flow_tag;
	uint32_t slid;
	uint16_t pkey_index;
	uint16_t cvlan; // network order
	uint8_t sl;
	uint8_t dlid_path_bits;
};

struct vrb_srq_init {
	void *xrcd; // handle or NULL
	void *cq;   // handle or NULL
	void *context;
	uint32_t type;
	uint32_t max_wr, max_sge; // in: at least; out: actual
	uint32_t max_num_tags, max_ops;
	uint32_t srq_num; // out; 0 if the SRQ has none
};

struct vrb_qp_init {
	void *pd;   // handle; NULL: xrcd
	void *xrcd; // handle or NULL
	void *send_cq, *recv_cq, *srq, *ind_tbl; // handles or NULL
	void *context;
	const uint8_t *hash_key;
	uint64_t hash_fields;
	uint64_t send_ops;
	uint32_t type;
	uint32_t sq_sig_all;
	uint32_t create_flags;
	uint32_t source_qpn;
	uint32_t cap[5]; // struct ibv_qp_cap; in: at least; out: actual
	uint32_t qp_num; // out
	uint16_t max_tso_header;
	uint8_t hash_function;
	uint8_t hash_key_len;
};

// vrb_wr is a request of the ibv_wr_* functions.
struct vrb_wr {
	uint64_t wr_id;
	uint64_t remote_addr;
	uint64_t compare_add;
	uint64_t swap;
	uint64_t bind_addr, bind_length;
	void *ah;	  // handle
	void *mw, *mr;	  // handles
	uint32_t opcode;  // enum ibv_wr_opcode
	uint32_t flags;	  // enum ibv_send_flags; with IBV_SEND_INLINE the data is in the bytes
	uint32_t imm;	  // network order, or the rkey to invalidate
	uint32_t rkey;
	uint32_t remote_qpn, remote_qkey, remote_srqn;
	uint32_t bind_access;
	uint32_t num_sge, first_sge;   // in the list of SGEs
	uint32_t data_len, data_start; // in the bytes
	uint32_t hdr_len, hdr_start;   // of TSO, in the bytes
	uint32_t flush_length;
	uint16_t mss;
	uint8_t flush_type, flush_level;
};

struct vrb_wq_init {
	void *pd, *cq; // handles
	void *context;
	uint32_t type;
	uint32_t max_wr, max_sge;
	uint32_t create_flags;
	uint32_t wq_num; // out
};

struct vrb_mr {
	void *addr; // out, of imported regions
	uint64_t length;
	uint32_t lkey, rkey, handle; // out
};

enum { VRB_ASYNC_NONE, VRB_ASYNC_CQ, VRB_ASYNC_QP, VRB_ASYNC_SRQ, VRB_ASYNC_WQ, VRB_ASYNC_PORT };

struct vrb_async {
	void *context; // of the object
	int32_t kind;  // VRB_ASYNC_*
	int32_t type;  // enum ibv_event_type
	int32_t port;
};

struct vrb_descriptor {
	int32_t fd;
	uint64_t dev, ino; // of the file that it stands for
};

// vrb_gate is fdset.Gate.
struct vrb_gate {
	int32_t forking; // not 0: the engine opens no descriptors that the list would lack
	int32_t opening; // not 0: it is opening some
};

// VERBENA_ENGINE lists the functions: result, name, parameters.
#define VERBENA_ENGINE(X) \
	X(int, set_env, (const char *name, const char *value)) \
	/* set_generation: the member after the handle of the objects that belong to this engine */ \
	X(int, set_generation, (uint32_t generation)) \
	/* owed: where the number of held acknowledgements stands, an int32_t */ \
	X(uintptr_t, owed, (void)) \
	/* gate: where a struct vrb_gate stands */ \
	X(uintptr_t, gate, (void)) \
	/* descriptors: those of the engine that keep connections open; the number of them, at most n */ \
	X(int, descriptors, (struct vrb_descriptor * fds, int n)) \
	/* devices: the number of devices, or -errno */ \
	X(int, devices, (struct vrb_device * list, int n)) \
	X(int, open, (const char *name, int async_fd, int *vectors, int *cmd_fd, void **ctx)) \
	X(int, import_device, (int cmd_fd, int async_fd, char *name, int *vectors, int *new_cmd_fd, void **ctx)) \
	/* destroy closes an object of any kind; a context with everything that it has */ \
	X(int, destroy, (void *object)) \
	X(int, query_device, (void *ctx, void *device_attr_ex)) \
	X(int, query_port, (void *ctx, int port, void *port_attr)) \
	X(int, query_rt_values, (void *ctx, uint64_t *raw_clock)) \
	/* query_gid: ENODATA for an empty entry */ \
	X(int, query_gid, (void *ctx, uint32_t port, uint32_t index, void *gid_entry)) \
	/* query_gid_table: the number of entries in use, or -errno */ \
	X(int, query_gid_table, (void *ctx, void *gid_entries, uint64_t n)) \
	X(int, query_pkey, (void *ctx, int port, int index, uint16_t *pkey)) \
	X(int, take_async, (void *ctx, struct vrb_async *event)) \
	X(int, alloc_pd, (void *ctx, uint32_t *handle, void **pd)) \
	X(int, import_pd, (void *ctx, uint32_t handle, void **pd)) \
	X(int, alloc_td, (void *ctx, void **td)) \
	X(int, alloc_parent_domain, (void *ctx, void *pd, void *td, void **out)) \
	X(int, reg_mr, (void *pd, void *addr, uint64_t length, uint64_t iova, uint32_t access, struct vrb_mr *keys, void **mr)) \
	X(int, reg_dm_mr, (void *pd, void *dm, uint64_t offset, uint64_t length, uint32_t access, struct vrb_mr *keys, void **mr)) \
	X(int, alloc_null_mr, (void *pd, struct vrb_mr *keys, void **mr)) \
	X(int, import_mr, (void *pd, uint32_t handle, struct vrb_mr *keys, void **mr)) \
	/* rereg_mr: code becomes one of enum ibv_rereg_mr_err_code */ \
	X(int, rereg_mr, (void *mr, int flags, void *pd, void *addr, uint64_t length, uint32_t access, struct vrb_mr *keys, int *code)) \
	X(int, advise_mr, (void *pd, uint32_t advice, uint32_t flags, void *sges, uint32_t n)) \
	X(int, alloc_dm, (void *ctx, uint64_t length, uint32_t log_align, uint32_t *handle, void **dm)) \
	X(int, import_dm, (void *ctx, uint32_t handle, void **dm)) \
	X(int, copy_to_dm, (void *dm, uint64_t offset, const void *from, uint64_t length)) \
	X(int, copy_from_dm, (void *to, void *dm, uint64_t offset, uint64_t length)) \
	X(int, alloc_mw, (void *pd, int type, uint32_t *rkey, void **mw)) \
	X(int, bind_mw, (void *qp, void *mw, const struct vrb_wr *wr, uint32_t *rkey)) \
	X(int, create_channel, (void *ctx, int fd, void **channel)) \
	/* take_comp: the context of the CQ; EAGAIN without an event, EIO once the device was removed */ \
	X(int, take_comp, (void *channel, void **cq)) \
	X(int, create_cq, (void *ctx, struct vrb_cq_init *init, void **cq)) \
	X(int, resize_cq, (void *cq, int cqe, int *got)) \
	X(int, moderate_cq, (void *cq, uint32_t mask, uint16_t count, uint16_t period)) \
	/* poll: the number of completions, or -1 */ \
	X(int, poll, (void *cq, int n, void *wcs)) \
	X(int, poll_ex, (void *cq, int n, struct vrb_wc *wcs)) \
	X(int, req_notify, (void *cq, int solicited_only, int kept)) \
	X(int, open_xrcd, (void *ctx, int fd, int oflags, void **xrcd)) \
	X(int, create_srq, (void *ctx, void *pd, struct vrb_srq_init *init, void **srq)) \
	X(int, modify_srq, (void *srq, void *srq_attr, int mask)) \
	X(int, query_srq, (void *srq, void *srq_attr)) \
	X(int, post_srq_recv, (void *srq, void *wr, void **bad)) \
	X(int, post_srq_ops, (void *srq, void *wr, void **bad)) \
	X(int, create_qp, (struct vrb_qp_init *init, void **qp)) \
	X(int, open_qp, (void *ctx, void *xrcd, uint32_t num, uint32_t type, void *context, void **qp)) \
	X(int, modify_qp, (void *qp, void *attr, int mask)) \
	X(int, query_qp, (void *qp, void *attr, int mask, struct vrb_qp_init *init)) \
	X(int, modify_rate, (void *qp, uint32_t rate, uint32_t burst, uint16_t size)) \
	X(int, query_ece, (void *qp, uint32_t *vendor_options)) \
	X(int, set_ece, (void *qp, uint32_t vendor, uint32_t options)) \
	X(int, post_send, (void *qp, void *wr, void **bad)) \
	X(int, post_recv, (void *qp, void *wr, void **bad)) \
	/* post_list posts all requests or none */ \
	X(int, post_list, (void *qp, struct vrb_wr *wrs, uint32_t n, void *sges, uint8_t *bytes)) \
	X(int, mcast, (void *qp, const void *gid, int lid, int attach)) \
	X(int, create_ah, (void *pd, void *attr, void **ah)) \
	X(int, ah_from_wc, (void *ctx, int port, void *wc, void *grh, void *attr)) \
	X(int, create_wq, (void *ctx, struct vrb_wq_init *init, void **wq)) \
	X(int, modify_wq, (void *wq, uint32_t mask, uint32_t state, uint32_t current, uint32_t flags, uint32_t flags_mask)) \
	X(int, post_wq_recv, (void *wq, void *wr, void **bad)) \
	X(int, create_ind_table, (void *ctx, uint32_t log_size, void **wqs, uint32_t *num, void **table)) \
	X(int, create_flow, (void *qp, void *attr, void **flow)) \
	X(int, create_action_esp, (void *ctx, void *attr, void **action)) \
	X(int, modify_action_esp, (void *action, void *attr)) \
	X(int, create_counters, (void *ctx, void **counters)) \
	X(int, attach_counters, (void *counters, void *flow, uint32_t desc, uint32_t index)) \
	X(int, read_counters, (void *counters, uint64_t *values, uint32_t n, uint32_t flags))

#define VERBENA_MEMBER(result, name, params) result(*name) params;
struct vrb_engine {
	uint32_t abi; // VERBENA_ENGINE_ABI
	uint32_t size;
	VERBENA_ENGINE(VERBENA_MEMBER)
};

// verbena_forked is for the child of a fork, whose thread must not enter the runtime of its parent when it ends.
void verbena_forked(void);

// verbena_engine returns the table; NULL for another ABI.
const struct vrb_engine *verbena_engine(uint32_t abi);

#endif
