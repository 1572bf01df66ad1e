// The member state of struct ibv_qp: it changes by ibv_modify_qp, and by an ibv_query_qp that asks for the state. A QP
// that fails by itself does not change it, nor do other queries. UCX relies on that.
#include "check.h"
#include "device.h"

static void to_rts(struct ibv_context *c, struct ibv_qp *qp)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1};

	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	CHECK(qp->state == IBV_QPS_INIT);
	a.qp_state = IBV_QPS_RTR;
	a.path_mtu = IBV_MTU_1024;
	a.dest_qp_num = qp->qp_num;
	a.ah_attr.port_num = 1;
	a.ah_attr.is_global = 1;
	a.ah_attr.grh.sgid_index = 1;
	CHECK(!ibv_query_gid(c, 1, 1, &a.ah_attr.grh.dgid));
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	a.qp_state = IBV_QPS_RTS;
	a.timeout = 14;
	a.retry_cnt = a.rnr_retry = 7;
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
	CHECK(qp->state == IBV_QPS_RTS);
}

int main(void)
{
	struct ibv_context *c = open_device("vrb_lo");
	struct ibv_pd *pd = c ? ibv_alloc_pd(c) : NULL;
	struct ibv_cq *cq = c ? ibv_create_cq(c, 4, NULL, NULL, 0) : NULL;
	CHECK(pd && cq);
	struct ibv_qp_init_attr in = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {1, 1, 1, 1, 8}}, got;
	struct ibv_qp *qp = ibv_create_qp(pd, &in);
	CHECK(qp);
	to_rts(c, qp);

	// A WRITE that the QP, its own peer, refuses.
	struct ibv_sge s = {.addr = (uintptr_t)&in, .length = 8};
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
				 .sg_list = &s, .num_sge = 1}, *bad;
	struct ibv_wc wc;
	int n = 0;
	CHECK(!ibv_post_send(qp, &wr, &bad));
	while (!(n = ibv_poll_cq(cq, 1, &wc)))
		;
	CHECK(n == 1 && wc.status != IBV_WC_SUCCESS);

	struct ibv_qp_attr a;
	CHECK(qp->state == IBV_QPS_RTS);
	CHECK(!ibv_query_qp(qp, &a, IBV_QP_AV | IBV_QP_DEST_QPN, &got) && qp->state == IBV_QPS_RTS);
	CHECK(!ibv_query_qp(qp, &a, IBV_QP_STATE, &got) && a.qp_state == IBV_QPS_ERR && qp->state == IBV_QPS_ERR);
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) && !ibv_close_device(c));
	return 0;
}
