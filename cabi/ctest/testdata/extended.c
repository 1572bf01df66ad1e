// A CQ of one thread: while the program reads a completion it destroys the QP of it, or polls in the plain way. It gets
// each other completion once.
#include <infiniband/verbs.h>

#include "check.h"
#include "device.h"

static struct ibv_pd *pd;
static struct ibv_cq_ex *cq;

static struct ibv_qp *make(void)
{
	struct ibv_cq *plain = ibv_cq_ex_to_cq(cq);
	struct ibv_qp_init_attr in = {.send_cq = plain, .recv_cq = plain, .qp_type = IBV_QPT_RC, .cap = {4, 32, 1, 1, 0}};
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	struct ibv_qp *qp = ibv_create_qp(pd, &in);

	CHECK(qp);
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	a.qp_state = IBV_QPS_ERR;
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE));
	return qp;
}

// complete makes completions: a receive of a QP in the error state is flushed.
static void complete(struct ibv_qp *qp, uint64_t first, uint64_t last)
{
	struct ibv_recv_wr *bad;

	for (; first <= last; first++)
		CHECK(!ibv_post_recv(qp, &(struct ibv_recv_wr){.wr_id = first}, &bad));
}

// begin reads the next completion, for which it waits. All are there, mostly; the test passes if they are not.
static void begin(void)
{
	struct ibv_poll_cq_attr none = {};
	int e;

	while ((e = ibv_start_poll(cq, &none)) == ENOENT)
		;
	CHECK(!e);
}

static void next(void)
{
	int e = ibv_next_poll(cq);

	CHECK(!e || e == ENOENT);
	if (e) {
		ibv_end_poll(cq);
		begin();
	}
}

static void reads(uint64_t wr_id, struct ibv_qp *qp)
{
	CHECK(cq->wr_id == wr_id && cq->status == IBV_WC_WR_FLUSH_ERR && ibv_wc_read_qp_num(cq) == qp->qp_num);
}

int main(void)
{
	struct ibv_cq_init_attr_ex init = {.cqe = 64, .wc_flags = IBV_WC_EX_WITH_QP_NUM,
					   .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
					   .flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED};
	struct ibv_context *c = open_device("vrb_lo");
	struct ibv_wc wc;
	int n;

	CHECK(c && (pd = ibv_alloc_pd(c)) && (cq = ibv_create_cq_ex(c, &init)));
	struct ibv_qp *a = make(), *b = make();
	complete(a, 1, 2);
	complete(b, 3, 4);
	complete(a, 5, 5);
	complete(b, 6, 6);
	usleep(100000);
	begin();
	reads(1, a);
	CHECK(!ibv_destroy_qp(a));
	next();
	reads(3, b);
	next();
	reads(4, b);
	next();
	reads(6, b);
	CHECK(ibv_next_poll(cq) == ENOENT);
	ibv_end_poll(cq);

	complete(b, 10, 30);
	usleep(100000);
	begin();
	reads(10, b);
	for (uint64_t i = 11; i <= 12; i++) {
		while (!(n = ibv_poll_cq(ibv_cq_ex_to_cq(cq), 1, &wc)))
			;
		CHECK(n == 1 && wc.wr_id == i);
	}
	reads(10, b);
	for (uint64_t i = 13; i <= 30; i++) {
		next();
		reads(i, b);
	}
	CHECK(ibv_next_poll(cq) == ENOENT);
	ibv_end_poll(cq);
	CHECK(!ibv_poll_cq(ibv_cq_ex_to_cq(cq), 1, &wc));
	CHECK(!ibv_destroy_qp(b) && !ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
	return 0;
}
