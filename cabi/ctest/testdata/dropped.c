// Two datagrams of a UD QP to itself that are dropped, and one that arrives after them.
#include <infiniband/verbs.h>

#include "check.h"
#include "device.h"

enum { QKEY = 7, GRH = 40, LENGTH = 100 };

static char memory[4096];
static struct ibv_qp *qp;
static struct ibv_ah *ah;
static struct ibv_mr *mr;

static void send_datagram(uint32_t length, uint32_t qkey)
{
	struct ibv_sge from = {(uintptr_t)memory, length, mr->lkey};
	struct ibv_send_wr w = {.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
				.wr.ud = {.ah = ah, .remote_qpn = qp->qp_num, .remote_qkey = qkey}}, *bad;
	CHECK(!ibv_post_send(qp, &w, &bad));
}

static void take(struct ibv_cq *cq, int n)
{
	struct ibv_wc wc;
	while (n > 0) {
		int got = ibv_poll_cq(cq, 1, &wc);
		CHECK(got >= 0 && (got == 0 || wc.status == IBV_WC_SUCCESS));
		n -= got;
	}
}

int main(void)
{
	struct ibv_context *ctx = open_device("lone");
	CHECK(ctx);
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_cq *cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
	mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
	CHECK(pd && cq && mr);
	struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UD, .cap = {4, 4, 1, 1, 0}};
	qp = ibv_create_qp(pd, &init);
	CHECK(qp);
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	a.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE));
	a.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN));
	struct ibv_ah_attr to = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = 1, .hop_limit = 64}};
	CHECK(!ibv_query_gid(ctx, 1, 1, &to.grh.dgid));
	ah = ibv_create_ah(pd, &to);
	CHECK(ah);

	struct ibv_sge into = {(uintptr_t)memory + LENGTH, LENGTH, mr->lkey}; // without room for the GRH
	struct ibv_recv_wr r = {.sg_list = &into, .num_sge = 1}, *bad;
	CHECK(!ibv_post_recv(qp, &r, &bad));
	send_datagram(LENGTH, QKEY);
	send_datagram(LENGTH - GRH, QKEY + 1);
	send_datagram(LENGTH - GRH, QKEY);
	take(cq, 4); // three sends and one receive

	CHECK(!ibv_destroy_ah(ah) && !ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_dereg_mr(mr));
	CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(ctx));
	return 0;
}
