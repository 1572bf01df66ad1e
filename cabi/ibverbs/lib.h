// The insides of libibverbs.so.1: objects and the engine.
//
// Each object begins with the structure that programs see, which lies in memory of malloc, followed by the engine's
// handle and the generation of the engine that it belongs to. fork ends the generation in the child: the objects of the
// parent answer EIO there, and destroying them frees their memory only.
#ifndef VERBENA_LIB_H
#define VERBENA_LIB_H

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../abi/verbena_verbs.h"
#include "../engine/engine.h"

#define VB_HIDDEN __attribute__((visibility("hidden")))

// vb_engine is the table of the loaded engine, vb_generation its number.
extern VB_HIDDEN const struct vrb_engine *vb_engine;
extern VB_HIDDEN unsigned int vb_generation;

// vb_load loads the engine if this process has none. It returns 0 or an errno.
VB_HIDDEN int vb_load(void);

// vb_loaded returns the engine if there is one. vb_forget runs in the child of a fork: it has none.
VB_HIDDEN const struct vrb_engine *vb_loaded(void);
VB_HIDDEN void vb_forget(void);
// vb_gate is where the engine learns of a fork; NULL if there is none.
VB_HIDDEN extern struct vrb_gate *vb_gate;
// vb_hold_load and vb_hold_devices take the locks of their files before a fork, so that the child does not get what a
// thread of the parent has done by half. Without hold they release them, in the parent and in the child.
VB_HIDDEN void vb_hold_load(int hold);
VB_HIDDEN void vb_hold_devices(int hold);

// vb_signals makes the handlers that the program has installed harmless for threads in the engine.
VB_HIDDEN void vb_signals(void);

// vb_urgent_begin and vb_urgent_end surround the start of the engine, which replaces the handler of SIGURG.
VB_HIDDEN void vb_urgent_begin(void);
VB_HIDDEN void vb_urgent_end(void);
VB_HIDDEN void vb_urgent_again(void);

struct vb_device {
	struct verbs_device v;
	struct vrb_device info;
	int index;
	struct vb_device *next;
};

struct vb_context {
	struct verbs_context v;
	void *h;
	unsigned int gen;
	pthread_mutex_t events; // an event is taken and counted at once; destroying an object excludes that
};

VB_HIDDEN int vb_revive(struct vb_context *);

struct vb_channel { struct ibv_comp_channel o; void *h; unsigned int gen; };
struct vb_pd { struct ibv_pd o; void *h; unsigned int gen; int is_import; };
struct vb_td { struct ibv_td o; void *h; unsigned int gen; };
struct vb_mr { struct ibv_mr o; void *h; unsigned int gen; };
struct vb_mw { struct ibv_mw o; void *h; unsigned int gen; };
struct vb_dm { struct ibv_dm o; void *h; unsigned int gen; };
struct vb_ah { struct ibv_ah o; void *h; unsigned int gen; };
struct vb_xrcd { struct ibv_xrcd o; void *h; unsigned int gen; };
struct vb_flow { struct ibv_flow o; void *h; unsigned int gen; };
struct vb_action { struct ibv_flow_action o; void *h; unsigned int gen; };
struct vb_counters { struct ibv_counters o; void *h; unsigned int gen; };
struct vb_table { struct ibv_rwq_ind_table o; void *h; unsigned int gen; };
struct vb_wq { struct ibv_wq o; void *h; unsigned int gen; uint32_t delivered; };

struct vb_srq {
	struct ibv_srq o;
	void *h;
	unsigned int gen;
	uint32_t delivered;
	uint32_t num; // of type XRC
	enum ibv_srq_type type;
};

enum { VB_PREFETCH = 16 };

struct vb_cq {
	struct ibv_cq_ex o;
	void *h;
	unsigned int gen;
	uint32_t comp_delivered, async_delivered;
	// Completions of an extended CQ that were taken from the engine and not yet by the program.
	pthread_mutex_t poll;
	struct vrb_wc *wcs; // VB_PREFETCH; NULL: not an extended CQ
	int head, count;
	int now;   // the completion that the program reads, which is before head
	int more;  // the last fetch filled wcs
	int alone; // one thread at a time: no locking
};

struct vb_qp {
	struct ibv_qp_ex o;
	void *h;
	unsigned int gen;
	uint32_t delivered;
	int is_ex;
	// The requests between wr_start and wr_complete.
	pthread_mutex_t build;
	struct vrb_wr *wrs;
	struct ibv_sge *sges;
	uint8_t *bytes;
	uint32_t num_wrs, num_sges, num_bytes;
	uint32_t room_wrs, room_sges, room_bytes;
	int err;
};

#define VB(kind, p) ((struct vb_##kind *)(p))
#define VB_DEAD(o) __builtin_expect((o)->gen != vb_generation, 0)
// VB_H is the handle of an object: NULL for none, and for one of the parent.
#define VB_H(kind, p) ((p) && !VB_DEAD(VB(kind, p)) ? VB(kind, p)->h : NULL)

// VB_LOST reports whether there is an object and it is one of the parent.
#define VB_LOST(kind, p) ((p) && VB_DEAD(VB(kind, p)))

// VB_ENTER returns 0 or an errno for a context that a function of the engine is called with.
#define VB_ENTER(c) (VB_DEAD(c) ? vb_revive(c) : 0)

// vb_gen returns the generation of the objects that a context creates.
static inline unsigned int vb_gen(struct vb_context *c)
{
	(void)VB_ENTER(c); // on failure the generation is an old one
	return c->gen;
}

#define VB_CONTEXT(c) ((struct vb_context *)((char *)(c) - offsetof(struct verbs_context, context)))

#define VB_FAIL(e, result) \
	do { \
		errno = (e); \
		return result; \
	} while (0)

// vb_told returns an errno, and sets it as the system call of an adapter does: programs print it with perror.
static inline int vb_told(int e)
{
	if (e)
		errno = e;
	return e;
}

// vb_end destroys the engine's part of an object, and frees the object if that succeeds.
#define vb_end(o) \
	({ \
		int e_ = VB_DEAD(o) ? 0 : vb_engine->destroy((o)->h); \
		if (!e_) \
			free(o); \
		vb_told(e_); \
	})

// vb_fill_* set the functions of a context.
VB_HIDDEN void vb_fill_ops(struct verbs_context *v);
VB_HIDDEN int vb_query_port(struct ibv_context *, uint8_t port, struct ibv_port_attr *, size_t length);
VB_HIDDEN int vb_query_device_ex(struct ibv_context *, const struct ibv_query_device_ex_input *,
				 struct ibv_device_attr_ex *, size_t length);
VB_HIDDEN int vb_query_rt_values(struct ibv_context *, struct ibv_values_ex *);

VB_HIDDEN struct ibv_mr *vb_alloc_null_mr(struct ibv_pd *);
VB_HIDDEN int vb_advise_mr(struct ibv_pd *, enum ib_uverbs_advise_mr_advice, uint32_t flags, struct ibv_sge *,
			   uint32_t count);
VB_HIDDEN struct ibv_mr *vb_reg_dm_mr(struct ibv_pd *, struct ibv_dm *, uint64_t offset, size_t, unsigned int access);
VB_HIDDEN struct ibv_dm *vb_alloc_dm(struct ibv_context *, struct ibv_alloc_dm_attr *);
VB_HIDDEN int vb_free_dm(struct ibv_dm *);
VB_HIDDEN struct ibv_mw *vb_alloc_mw(struct ibv_pd *, enum ibv_mw_type);
VB_HIDDEN int vb_bind_mw(struct ibv_qp *, struct ibv_mw *, struct ibv_mw_bind *);
VB_HIDDEN int vb_dealloc_mw(struct ibv_mw *);
VB_HIDDEN struct ibv_td *vb_alloc_td(struct ibv_context *, struct ibv_td_init_attr *);
VB_HIDDEN int vb_dealloc_td(struct ibv_td *);
VB_HIDDEN struct ibv_pd *vb_alloc_parent_domain(struct ibv_context *, struct ibv_parent_domain_init_attr *);

VB_HIDDEN struct ibv_cq_ex *vb_create_cq_ex(struct ibv_context *, struct ibv_cq_init_attr_ex *);
VB_HIDDEN int vb_modify_cq(struct ibv_cq *, struct ibv_modify_cq_attr *);
VB_HIDDEN int vb_poll_cq(struct ibv_cq *, int count, struct ibv_wc *);
VB_HIDDEN int vb_req_notify_cq(struct ibv_cq *, int solicited_only);
VB_HIDDEN void vb_fill_cq_ex(struct vb_cq *);
// vb_take_fetched copies completions that were fetched before to a program that polls in the plain way.
VB_HIDDEN int vb_take_fetched(struct vb_cq *, int count, struct ibv_wc *);
// vb_purge drops the fetched completions of a QP.
VB_HIDDEN void vb_purge(struct ibv_cq *, uint32_t qp_num);

VB_HIDDEN struct ibv_srq *vb_create_srq_ex(struct ibv_context *, struct ibv_srq_init_attr_ex *);
VB_HIDDEN int vb_get_srq_num(struct ibv_srq *, uint32_t *);
VB_HIDDEN int vb_post_srq_recv(struct ibv_srq *, struct ibv_recv_wr *, struct ibv_recv_wr **bad);
VB_HIDDEN int vb_post_srq_ops(struct ibv_srq *, struct ibv_ops_wr *, struct ibv_ops_wr **bad);
VB_HIDDEN struct ibv_xrcd *vb_open_xrcd(struct ibv_context *, struct ibv_xrcd_init_attr *);
VB_HIDDEN int vb_close_xrcd(struct ibv_xrcd *);

VB_HIDDEN struct ibv_qp *vb_create_qp_ex(struct ibv_context *, struct ibv_qp_init_attr_ex *);
VB_HIDDEN struct ibv_qp *vb_open_qp(struct ibv_context *, struct ibv_qp_open_attr *);
VB_HIDDEN int vb_modify_qp_rate_limit(struct ibv_qp *, struct ibv_qp_rate_limit_attr *);
VB_HIDDEN int vb_post_send(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **bad);
VB_HIDDEN int vb_post_recv(struct ibv_qp *, struct ibv_recv_wr *, struct ibv_recv_wr **bad);
VB_HIDDEN void vb_fill_qp_ex(struct ibv_qp_ex *);

VB_HIDDEN struct ibv_wq *vb_create_wq(struct ibv_context *, struct ibv_wq_init_attr *);
VB_HIDDEN int vb_modify_wq(struct ibv_wq *, struct ibv_wq_attr *);
VB_HIDDEN int vb_destroy_wq(struct ibv_wq *);
VB_HIDDEN struct ibv_rwq_ind_table *vb_create_table(struct ibv_context *, struct ibv_rwq_ind_table_init_attr *);
VB_HIDDEN int vb_destroy_table(struct ibv_rwq_ind_table *);
VB_HIDDEN struct ibv_flow *vb_create_flow(struct ibv_qp *, struct ibv_flow_attr *);
VB_HIDDEN int vb_destroy_flow(struct ibv_flow *);
VB_HIDDEN struct ibv_flow_action *vb_create_action(struct ibv_context *, struct ibv_flow_action_esp_attr *);
VB_HIDDEN int vb_modify_action(struct ibv_flow_action *, struct ibv_flow_action_esp_attr *);
VB_HIDDEN int vb_destroy_action(struct ibv_flow_action *);
VB_HIDDEN struct ibv_counters *vb_create_counters(struct ibv_context *, struct ibv_counters_init_attr *);
VB_HIDDEN int vb_destroy_counters(struct ibv_counters *);
VB_HIDDEN int vb_attach_counters(struct ibv_counters *, struct ibv_counter_attach_attr *, struct ibv_flow *);
VB_HIDDEN int vb_read_counters(struct ibv_counters *, uint64_t *, uint32_t count, uint32_t flags);

// vb_peer_mac looks up the MAC address of the peer with that GID, and returns an errno. The network interface counts
// for link-local addresses only.
VB_HIDDEN int vb_peer_mac(const uint8_t gid[16], int ifindex, uint8_t mac[6]);

// vb_wait blocks until a program has acknowledged the events of an object that it was given.
VB_HIDDEN void vb_wait(pthread_mutex_t *, pthread_cond_t *, const uint32_t *acked, const uint32_t *delivered);

#endif
