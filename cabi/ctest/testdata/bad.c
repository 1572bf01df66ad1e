// Bad input: each call answers the errno of libibverbs and never crashes. One line for each answer that differs.
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "check.h"
#include "device.h"
#include "want.h"

// BOTH is WANT for calls that set errno too.
#define BOTH(call, want) \
	do { \
		errno = 0; \
		WANT(call, want); \
		WANT(errno, want); \
	} while (0)

// NONE is WANT for calls that return a pointer, MINUS for those that return -1; both set errno.
#define NONE(call, want) WANT((errno = 0, (call)) ? -1 : errno, want)
#define MINUS(call, want) WANT((errno = 0, (call)) == -1 ? errno : -2, want)

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static char buf[4096];

static struct ibv_qp *make(enum ibv_qp_type type, uint32_t wr)
{
	struct ibv_qp_init_attr a = {.send_cq = cq, .recv_cq = cq, .qp_type = type, .cap = {wr, wr, 1, 1, 64}};

	return ibv_create_qp(pd, &a);
}

// need is make for a QP that the program goes on to use. Without it, calls on what the QP should keep in use would be
// calls on freed memory.
static struct ibv_qp *need(enum ibv_qp_type type, uint32_t wr)
{
	struct ibv_qp *qp = make(type, wr);

	MUST(qp);
	return qp;
}

// good makes and changes objects without a failure. Programs print errno after other calls, so these must not set it.
static void good(void)
{
	struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
	struct ibv_mr *region;
	struct ibv_qp *qp;

	errno = 0;
	qp = need(IBV_QPT_RC, 4);
	region = ibv_reg_mr(pd, buf, sizeof buf, IBV_ACCESS_LOCAL_WRITE);
	WANT(ibv_modify_qp(qp, &reset, IBV_QP_STATE), 0);
	WANT(ibv_destroy_qp(qp), 0);
	WANT(ibv_dereg_mr(region), 0);
	WANT(errno, 0);
}

static void devices(void)
{
	struct ibv_port_attr port;
	union ibv_gid gid;
	uint16_t pkey;
	struct ibv_gid_entry entry;
	struct ibv_device_attr_ex attr;
	struct ibv_query_device_ex_input input = {.comp_mask = 1};
	struct ibv_async_event event;

	WANT(strcmp(ibv_port_state_str(77), "unknown"), 0);
	WANT(strcmp(ibv_port_state_str(IBV_PORT_ACTIVE_DEFER), "active defer"), 0);
	BOTH(ibv_query_port(ctx, 0, &port), EINVAL);
	WANT(ibv_query_port(ctx, 9, &port), EINVAL);
	MINUS(ibv_query_gid(ctx, 9, 0, &gid), EINVAL);
	MINUS(ibv_query_gid(ctx, 1, -1, &gid), EINVAL);
	MINUS(ibv_query_gid(ctx, 1, 1 << 20, &gid), EINVAL);
	MINUS(ibv_query_pkey(ctx, 1, 1 << 20, &pkey), EINVAL);
	MINUS(ibv_query_pkey(ctx, 0, 0, &pkey), EINVAL);
	WANT(ibv_get_pkey_index(ctx, 1, htons(0x1234)), -1);
	WANT(ibv_query_gid_ex(ctx, 9, 0, &entry, 0), EINVAL);
	WANT(ibv_query_gid_ex(ctx, 1, 0, &entry, 1), EOPNOTSUPP);
	WANT(ibv_query_gid_table(ctx, &entry, 0, 0), -EINVAL);
	WANT(ibv_query_device_ex(ctx, &input, &attr), EINVAL);
	fcntl(ctx->async_fd, F_SETFL, O_NONBLOCK);
	MINUS(ibv_get_async_event(ctx, &event), EAGAIN);
	NONE(ibv_import_device(-1), EBADF);
	NONE(ibv_import_device(0), EOPNOTSUPP);
	NONE(ibv_import_pd(ctx, 123456), ENOENT);
	NONE(ibv_import_mr(pd, 123456), ENOENT);
}

static void memory(void)
{
	struct ibv_alloc_dm_attr large = {.length = 1ull << 40}, odd = {.length = 8, .comp_mask = 2};

	NONE(ibv_reg_mr(pd, NULL, 4096, IBV_ACCESS_LOCAL_WRITE), EFAULT);
	NONE(ibv_reg_mr(pd, buf, 0, IBV_ACCESS_LOCAL_WRITE), EINVAL);
	NONE(ibv_reg_mr(pd, buf, 4096, IBV_ACCESS_REMOTE_WRITE), EINVAL);
	NONE(ibv_reg_mr(pd, buf, 4096, 1 << 18), EINVAL);
	NONE(ibv_reg_mr(pd, buf, SIZE_MAX, IBV_ACCESS_LOCAL_WRITE), ENOMEM);
	NONE(ibv_reg_dmabuf_mr(pd, 0, 4096, 0, 0, 0), EOPNOTSUPP);
	WANT(ibv_rereg_mr(mr, 0x100, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_INPUT);
	WANT(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_INPUT);
	WANT(ibv_rereg_mr(mr, 0, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE), IBV_REREG_MR_ERR_INPUT);
	NONE(ibv_alloc_mw(pd, 9), EINVAL);
	NONE(ibv_alloc_dm(ctx, &large), ENOMEM);
	NONE(ibv_alloc_dm(ctx, &odd), EINVAL);
	errno = 0;
	BOTH(ibv_dealloc_pd(pd), EBUSY); // mr
	WANT(ibv_advise_mr(pd, 99, 0, NULL, 0), EOPNOTSUPP);
}

// unmapped tries memory that the program may not use, in the beginning and in the middle of a region.
static void unmapped(void)
{
	char *at = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	munmap(at + 4096, 4096);
	NONE(ibv_reg_mr(pd, at + 4096, 4096, 0), EFAULT);
	NONE(ibv_reg_mr(pd, at, 3 * 4096, IBV_ACCESS_LOCAL_WRITE), EFAULT);
	NONE(ibv_reg_mr(pd, (void *)8, 8, 0), EFAULT);
	mprotect(at, 4096, PROT_READ);
	NONE(ibv_reg_mr(pd, at, 4096, IBV_ACCESS_LOCAL_WRITE), EFAULT);
	WANT(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, at, 3 * 4096, 0) != 0, 1);
	munmap(at, 3 * 4096);
}

// busy destroys objects that others use.
static void busy(void)
{
	struct ibv_xrcd_init_attr of = {.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1,
					.oflags = O_CREAT};
	struct ibv_xrcd_init_attr closed = of, none = {};
	struct ibv_srq_init_attr plain = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_alloc_dm_attr dm_of = {.length = 64};
	struct ibv_td_init_attr td_of = {};

	closed.fd = 999999;
	NONE(ibv_open_xrcd(ctx, &none), EINVAL);
	NONE(ibv_open_xrcd(ctx, &closed), EBADF);
	struct ibv_xrcd *xrcd = ibv_open_xrcd(ctx, &of);
	MUST(xrcd);
	struct ibv_srq_init_attr_ex xsrq = {.attr = {.max_wr = 4, .max_sge = 1}, .srq_type = IBV_SRQT_XRC, .xrcd = xrcd,
					    .cq = cq, .pd = pd, .comp_mask = IBV_SRQ_INIT_ATTR_TYPE |
					    IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_PD};
	struct ibv_srq *srq = ibv_create_srq_ex(ctx, &xsrq);
	uint32_t num;
	MUST(srq);
	WANT(ibv_close_xrcd(xrcd), EBUSY);
	WANT(ibv_destroy_srq(srq), 0);
	xsrq.comp_mask |= 1 << 20;
	NONE(ibv_create_srq_ex(ctx, &xsrq), EOPNOTSUPP);
	xsrq.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD; // no domain
	NONE(ibv_create_srq_ex(ctx, &xsrq), EINVAL);
	struct ibv_qp_open_attr shared = {.xrcd = xrcd, .qp_num = 0x123456, .qp_type = IBV_QPT_XRC_RECV,
					  .comp_mask = IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_NUM};
	NONE(ibv_open_qp(ctx, &shared), EINVAL); // no type
	shared.comp_mask |= IBV_QP_OPEN_ATTR_TYPE;
	NONE(ibv_open_qp(ctx, &shared), EINVAL); // no such QP
	WANT(ibv_close_xrcd(xrcd), 0);

	MUST(srq = ibv_create_srq(pd, &plain));
	struct ibv_qp_init_attr on = {.send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = IBV_QPT_RC, .cap = {1, 1, 1, 1, 0}};
	struct ibv_qp *qp = ibv_create_qp(pd, &on);
	MUST(qp);
	struct ibv_recv_wr wr = {}, *bad;
	BOTH(ibv_destroy_srq(srq), EBUSY);
	WANT(ibv_get_srq_num(srq, &num), EINVAL);
	WANT(ibv_post_recv(qp, &wr, &bad), EINVAL);
	WANT(ibv_destroy_qp(qp), 0);
	WANT(ibv_destroy_srq(srq), 0);

	struct ibv_dm *dm = ibv_alloc_dm(ctx, &dm_of);
	MUST(dm);
	struct ibv_mr *of_dm = ibv_reg_dm_mr(pd, dm, 0, 64, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE);
	MUST(of_dm);
	NONE(ibv_reg_dm_mr(pd, dm, 32, 64, IBV_ACCESS_ZERO_BASED), EINVAL);
	NONE(ibv_reg_dm_mr(pd, dm, 0, 64, 0), EINVAL);
	WANT(ibv_memcpy_to_dm(dm, 60, buf, 8), EFAULT);
	WANT(ibv_memcpy_to_dm(dm, 1, buf, 4), EINVAL);
	WANT(ibv_free_dm(dm), EBUSY);
	WANT(ibv_dereg_mr(of_dm), 0);
	WANT(ibv_free_dm(dm), 0);

	struct ibv_td *td = ibv_alloc_td(ctx, &td_of);
	MUST(td);
	struct ibv_parent_domain_init_attr domain = {.pd = pd, .td = td}, odd = {.pd = pd, .comp_mask = 1 << 20}, no_pd = {};
	struct ibv_pd *parent = ibv_alloc_parent_domain(ctx, &domain);
	MUST(parent);
	NONE(ibv_alloc_parent_domain(ctx, &odd), EINVAL);
	NONE(ibv_alloc_parent_domain(ctx, &no_pd), EINVAL);
	WANT(ibv_dealloc_td(td), EBUSY);
	WANT(ibv_dealloc_pd(parent), 0);
	WANT(ibv_dealloc_td(td), 0);
}

// frames tries work queues, tables, rules and counters.
static void frames(void)
{
	struct ibv_wq_init_attr good = {.wq_type = IBV_WQT_RQ, .max_wr = 4, .max_sge = 1, .pd = pd, .cq = cq};
	struct ibv_wq_init_attr type = good, none = good, large = good, flags = good;
	struct ibv_wq_attr to = {.attr_mask = IBV_WQ_ATTR_STATE, .wq_state = 77};
	struct ibv_counters_init_attr zero = {}, unknown = {.comp_mask = 1};
	uint64_t values[4];

	type.wq_type = 9;
	none.max_wr = 0;
	large.max_wr = 1 << 30;
	flags.comp_mask = IBV_WQ_INIT_ATTR_FLAGS;
	flags.create_flags = 1u << 31;
	NONE(ibv_create_wq(ctx, &type), EINVAL);
	NONE(ibv_create_wq(ctx, &none), EINVAL);
	NONE(ibv_create_wq(ctx, &large), EINVAL);
	NONE(ibv_create_wq(ctx, &flags), EINVAL);
	struct ibv_wq *wq = ibv_create_wq(ctx, &good);
	MUST(wq);
	WANT(ibv_modify_wq(wq, &to), EINVAL);
	struct ibv_rwq_ind_table_init_attr one = {.ind_tbl = &wq}, many = {.log_ind_tbl_size = 31, .ind_tbl = &wq};
	NONE(ibv_create_rwq_ind_table(ctx, &many), EINVAL);
	struct ibv_rwq_ind_table *table = ibv_create_rwq_ind_table(ctx, &one);
	MUST(table);
	BOTH(ibv_destroy_wq(wq), EBUSY);
	struct ibv_qp_init_attr_ex spread = {.qp_type = IBV_QPT_RAW_PACKET, .pd = pd, .rwq_ind_tbl = table,
					     .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE |
							  IBV_QP_INIT_ATTR_RX_HASH,
					     .rx_hash_conf = {.rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ,
							      .rx_hash_key_len = 40}};
	NONE(ibv_create_qp_ex(ctx, &spread), EINVAL); // no key
	WANT(ibv_destroy_rwq_ind_table(table), 0);
	WANT(ibv_destroy_wq(wq), 0);

	NONE(ibv_create_counters(ctx, &unknown), EOPNOTSUPP);
	struct ibv_counters *counters = ibv_create_counters(ctx, &zero);
	MUST(counters);
	WANT(ibv_read_counters(counters, values, 4, 1 << 20), EINVAL);
	WANT(ibv_destroy_counters(counters), 0);

	struct ibv_flow_attr rule = {.type = IBV_FLOW_ATTR_NORMAL, .size = sizeof rule, .port = 1};
	struct ibv_qp *qp = need(IBV_QPT_RC, 4);
	NONE(ibv_create_flow(qp, &rule), EINVAL); // not a QP of frames
	rule.type = 99;
	NONE(ibv_create_flow(qp, &rule), EINVAL);
	WANT(ibv_destroy_qp(qp), 0);
}

static void queues(void)
{
	struct ibv_comp_channel *ch = ibv_create_comp_channel(ctx);
	struct ibv_cq *with = ibv_create_cq(ctx, 4, NULL, ch, 0), *got;
	struct ibv_cq_init_attr_ex fields = {.cqe = 4, .wc_flags = 1ull << 40}, mask = {.cqe = 4, .comp_mask = 1 << 10};
	struct ibv_srq_init_attr none = {.attr = {.max_wr = 0, .max_sge = 1}}, good = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_srq_attr limit = {.srq_limit = 1000};
	struct ibv_wc wc;
	void *x;

	MUST(ch && with);
	NONE(ibv_create_cq(ctx, 0, NULL, NULL, 0), EINVAL);
	NONE(ibv_create_cq(ctx, -1, NULL, NULL, 0), EINVAL);
	NONE(ibv_create_cq(ctx, 1 << 30, NULL, NULL, 0), EINVAL);
	NONE(ibv_create_cq(ctx, 1, NULL, NULL, 999), EINVAL);
	NONE(ibv_create_cq(ctx, 1, NULL, NULL, -1), EINVAL);
	NONE(ibv_create_cq_ex(ctx, &fields), EOPNOTSUPP);
	NONE(ibv_create_cq_ex(ctx, &mask), EOPNOTSUPP);
	BOTH(ibv_resize_cq(cq, 0), EINVAL);
	WANT(ibv_poll_cq(cq, 0, &wc), 0);
	WANT(ibv_poll_cq(cq, 1, &wc), 0);
	BOTH(ibv_destroy_comp_channel(ch), EBUSY);
	fcntl(ch->fd, F_SETFL, O_NONBLOCK);
	MINUS(ibv_get_cq_event(ch, &got, &x), EAGAIN);
	WANT(ibv_destroy_cq(with), 0);
	WANT(ibv_destroy_comp_channel(ch), 0);
	NONE(ibv_create_srq(pd, &none), EINVAL);
	struct ibv_srq *srq = ibv_create_srq(pd, &good);
	MUST(srq);
	BOTH(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT), EINVAL);
	WANT(ibv_modify_srq(srq, &limit, 1 << 10), EINVAL);
	WANT(ibv_destroy_srq(srq), 0);
}

static void pairs(void)
{
	struct ibv_qp_init_attr no_cq = {.qp_type = IBV_QPT_RC, .cap = {1, 1, 1, 1, 0}};
	struct ibv_qp_init_attr_ex mask = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {1, 1, 1, 1, 0},
					   .pd = pd, .comp_mask = IBV_QP_INIT_ATTR_PD | 1 << 20};
	struct ibv_qp_init_attr_ex ops = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UD, .cap = {1, 1, 1, 1, 0},
					  .pd = pd, .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
					  .send_ops_flags = IBV_QP_EX_WITH_RDMA_READ};
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTS, .port_num = 1}, q;
	struct ibv_qp_init_attr in;
	struct ibv_ah_attr flat = {.port_num = 1}, index = {.port_num = 1, .is_global = 1, .grh = {.sgid_index = 200}};
	struct ibv_ah_attr port = {.port_num = 9, .is_global = 1};
	union ibv_gid gid = {};
	struct ibv_qp *qp = need(IBV_QPT_RC, 4);

	NONE(ibv_create_qp(pd, &no_cq), EINVAL);
	NONE(make(77, 1), EINVAL);
	NONE(make(IBV_QPT_RC, 1 << 30), EINVAL);
	NONE(ibv_create_qp_ex(ctx, &mask), EOPNOTSUPP);
	NONE(ibv_create_qp_ex(ctx, &ops), EOPNOTSUPP);
	errno = 0;
	WANT(ibv_modify_qp(qp, &a, IBV_QP_STATE), EINVAL);
	WANT(errno, EINVAL);
	WANT(ibv_modify_qp(qp, &a, 1 << 30), EINVAL);
	a.qp_state = IBV_QPS_INIT;
	WANT(ibv_modify_qp(qp, &a, IBV_QP_STATE), EINVAL); // attributes are missing
	WANT(ibv_query_qp(qp, &q, ~0, &in), 0);	     // the mask is a hint
	WANT(qp->state, IBV_QPS_RESET);
	BOTH(ibv_destroy_cq(cq), EBUSY);
	BOTH(ibv_attach_mcast(qp, &gid, 0), EINVAL);
	WANT(ibv_qp_to_qp_ex(qp) != NULL, 0);
	NONE(ibv_create_ah(pd, &flat), EINVAL);
	NONE(ibv_create_ah(pd, &index), EINVAL);
	NONE(ibv_create_ah(pd, &port), EINVAL);
	WANT(ibv_destroy_qp(qp), 0);
}

// post posts a list of two requests and returns the errno, and in *bad the index of the refused one.
static int post(struct ibv_qp *qp, struct ibv_send_wr *second, int *bad)
{
	struct ibv_sge sge = {(uintptr_t)buf, 8, mr->lkey};
	struct ibv_send_wr first = *second, *at = NULL;
	int e;

	first.opcode = IBV_WR_SEND;
	first.send_flags = 0;
	first.sg_list = &sge;
	first.num_sge = 1;
	first.next = second;
	e = ibv_post_send(qp, &first, &at);
	*bad = at == &first ? 0 : at == second ? 1 : -1;
	return e;
}

// ready moves a QP to RTS, connected to itself.
static void ready(struct ibv_qp *qp)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	union ibv_gid gid;

	ibv_query_gid(ctx, 1, 1, &gid);
	WANT(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num,
				 .ah_attr = {.is_global = 1, .port_num = 1,
					     .grh = {.dgid = gid, .sgid_index = 1, .hop_limit = 1}}};
	WANT(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), 0);
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7};
	WANT(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					   IBV_QP_MAX_QP_RD_ATOMIC), 0);
}

static void requests(void)
{
	struct ibv_sge list[2] = {{(uintptr_t)buf, 8, mr->lkey}, {(uintptr_t)buf, 8, mr->lkey}};
	struct ibv_sge nowhere = {0, 8, 0}, huge = {(uintptr_t)buf, 1 << 31, mr->lkey};
	struct { const char *what; struct ibv_send_wr wr; } sends[] = {
		{"unknown opcode", {.opcode = 99, .sg_list = list, .num_sge = 1}},
		{"negative num_sge", {.opcode = IBV_WR_SEND, .sg_list = list, .num_sge = -1}},
		{"num_sge beyond max_send_sge", {.opcode = IBV_WR_SEND, .sg_list = list, .num_sge = 2}},
		{"a million SGEs", {.opcode = IBV_WR_SEND, .sg_list = list, .num_sge = 1000000}},
		{"no list", {.opcode = IBV_WR_SEND, .num_sge = 1}},
		{"inline beyond max_inline_data", {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE, .sg_list = &huge, .num_sge = 1}},
		{"inline without memory", {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE, .sg_list = &nowhere, .num_sge = 1}},
		{"unknown flags", {.opcode = IBV_WR_SEND, .send_flags = 1 << 20, .sg_list = list, .num_sge = 1}},
		{"BIND_MW without a window", {.opcode = IBV_WR_BIND_MW}},
	};
	struct ibv_recv_wr third = {.sg_list = list, .num_sge = 2}, second = {.next = &third, .sg_list = list, .num_sge = 1};
	struct ibv_recv_wr first = {.next = &second, .sg_list = list, .num_sge = 1}, *rbad = NULL;
	struct ibv_qp *qp = need(IBV_QPT_RC, 64);
	int bad;

	WANT(post(qp, &sends[1].wr, &bad), EINVAL); // RESET
	WANT(bad, 0);
	WANT(ibv_post_recv(qp, &first, &rbad), EINVAL);
	WANT(rbad == &first, 1);
	ready(qp);
	for (size_t i = 0; i < sizeof sends / sizeof *sends; i++) {
		int e = post(qp, &sends[i].wr, &bad);
		if (e != EINVAL || bad != 1) {
			printf("%s: %d, bad request %d, want EINVAL and 1\n", sends[i].what, e, bad);
			failed = 1;
		}
	}
	WANT(ibv_post_recv(qp, &first, &rbad), EINVAL);
	WANT(rbad == &third, 1);
	second.next = NULL;
	int e = 0;
	for (int i = 0; i < 100 && !e; i++)
		e = ibv_post_recv(qp, &second, &rbad);
	WANT(e, ENOMEM);
	WANT(ibv_destroy_qp(qp), 0);
	qp = need(IBV_QPT_UD, 4);
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
	a.qp_state = IBV_QPS_RTR;
	ibv_modify_qp(qp, &a, IBV_QP_STATE);
	a.qp_state = IBV_QPS_RTS;
	WANT(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
	struct ibv_send_wr no_ah = {.opcode = IBV_WR_SEND, .sg_list = list, .num_sge = 1}, *sbad = NULL;
	WANT(ibv_post_send(qp, &no_ah, &sbad), EINVAL);
	WANT(sbad == &no_ah, 1);
	struct ibv_send_wr write = {.opcode = IBV_WR_RDMA_WRITE, .sg_list = list, .num_sge = 1,
				    .wr.rdma = {.remote_addr = 0x12345000, .rkey = 1}}; // where SEND has the AH
	WANT(ibv_post_send(qp, &write, &sbad), EINVAL);
	WANT(sbad == &write, 1);
	WANT(ibv_destroy_qp(qp), 0);
}

// builders tries the requests of ibv_wr_*: wr_complete answers for all of them.
static void builders(void)
{
	struct ibv_qp_init_attr_ex in = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {16, 16, 1, 1, 0}, .pd = pd,
					 .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
					 .send_ops_flags = IBV_QP_EX_WITH_SEND};
	struct ibv_qp *qp = ibv_create_qp_ex(ctx, &in);
	MUST(qp);
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(qp);
	struct ibv_sge list[2] = {{(uintptr_t)buf, 8, mr->lkey}, {(uintptr_t)buf, 8, mr->lkey}};

	ibv_wr_start(x);
	ibv_wr_send(x);
	ibv_wr_set_sge(x, mr->lkey, (uintptr_t)buf, 8);
	WANT(ibv_wr_complete(x), EINVAL); // RESET
	ready(qp);
	ibv_wr_start(x);
	ibv_wr_send(x);
	ibv_wr_set_sge_list(x, 2, list);
	WANT(ibv_wr_complete(x), EINVAL); // max_send_sge is 1
	ibv_wr_start(x);
	for (int i = 0; i < 1000; i++) {
		ibv_wr_send(x);
		ibv_wr_set_sge_list(x, 1, list);
	}
	WANT(ibv_wr_complete(x), ENOMEM);
	ibv_wr_start(x);
	ibv_wr_abort(x);
	ibv_wr_start(x);
	WANT(ibv_wr_complete(x), 0); // nothing
	WANT(ibv_destroy_qp(qp), 0);
}

int main(int argc, char **argv)
{
	if (!(ctx = open_device(argc > 1 ? argv[1] : "vrb_lo")) || !(pd = ibv_alloc_pd(ctx)) || !(cq = ibv_create_cq(ctx, 256, NULL, NULL, 0)) ||
	    !(mr = ibv_reg_mr(pd, buf, sizeof buf, IBV_ACCESS_LOCAL_WRITE))) {
		perror("open");
		return 2;
	}
	good();
	devices();
	memory();
	unmapped();
	busy();
	frames();
	builders();
	queues();
	pairs();
	requests();
	struct ibv_qp *left = need(IBV_QPT_RC, 4); // closing the device destroys what is left
	(void)left;
	WANT(ibv_close_device(ctx), 0);
	return failed;
}
