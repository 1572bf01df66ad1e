// A program that has a device and a connection forks a child, which does nothing with the device, and is killed. The
// peer hears of it although the child lives: it sees the end of its send long before the time of the retries. The
// output is the time in milliseconds.
#include <errno.h>
#include <infiniband/verbs.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "device.h"

struct end {
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char buf[64];
};

static void open_end(struct end *e)
{
	struct ibv_context *c = open_device("vrb_lo");

	CHECK(c && (e->pd = ibv_alloc_pd(c)) && (e->cq = ibv_create_cq(c, 4, NULL, NULL, 0)));
	struct ibv_qp_init_attr in = {.send_cq = e->cq, .recv_cq = e->cq, .qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}};
	CHECK(e->qp = ibv_create_qp(e->pd, &in));
	CHECK(e->mr = ibv_reg_mr(e->pd, e->buf, sizeof e->buf, IBV_ACCESS_LOCAL_WRITE));
}

static void receive_one(struct end *e)
{
	struct ibv_sge sge = {(uintptr_t)e->buf, sizeof e->buf, e->mr->lkey};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;

	CHECK(!ibv_post_recv(e->qp, &wr, &bad));
}

// connect_end exchanges the numbers. A retry takes seconds.
static void connect_end(struct end *e, int in, int out)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	uint32_t peer;
	union ibv_gid gid;

	CHECK(write(out, &e->qp->qp_num, 4) == 4 && read(in, &peer, 4) == 4);
	CHECK(!ibv_query_gid(e->qp->context, 1, 1, &gid));
	CHECK(!ibv_modify_qp(e->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	receive_one(e);
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer, .min_rnr_timer = 1,
				 .ah_attr = {.is_global = 1, .port_num = 1,
					     .grh = {.dgid = gid, .sgid_index = 1, .hop_limit = 1}}};
	CHECK(!ibv_modify_qp(e->qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
						IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 20, .retry_cnt = 7, .rnr_retry = 7};
	CHECK(!ibv_modify_qp(e->qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
						IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
	CHECK(write(out, "r", 1) == 1 && read(in, &peer, 1) == 1);
}

static struct ibv_wc next(struct end *e)
{
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(e->cq, 1, &wc)))
		;
	CHECK(n == 1);
	return wc;
}

static void send_one(struct end *e)
{
	struct ibv_sge sge = {(uintptr_t)e->buf, sizeof e->buf, e->mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;

	CHECK(!ibv_post_send(e->qp, &wr, &bad));
}

// victim receives one message, forks, and says so.
static void victim(int in, int out)
{
	static struct end e;

	alarm(60);
	open_end(&e);
	connect_end(&e, in, out);
	CHECK(next(&e).status == IBV_WC_SUCCESS);
	pid_t child = fork();
	CHECK(child >= 0);
	if (!child) {
		alarm(60);
		pause();
		_exit(0);
	}
	CHECK(write(out, &child, sizeof child) == sizeof child);
	for (;;)
		pause();
}

int main(void)
{
	static struct end e;
	int there[2], back[2];
	struct timespec from, to;
	pid_t child;

	CHECK(!pipe(there) && !pipe(back));
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (!pid)
		victim(there[0], back[1]);
	open_end(&e);
	connect_end(&e, back[0], there[1]);
	send_one(&e);
	CHECK(next(&e).status == IBV_WC_SUCCESS);
	CHECK(read(back[0], &child, sizeof child) == sizeof child);
	send_one(&e); // for which there is no receive
	usleep(20000);
	clock_gettime(CLOCK_MONOTONIC, &from);
	CHECK(!kill(pid, SIGKILL));
	CHECK(next(&e).status != IBV_WC_SUCCESS);
	clock_gettime(CLOCK_MONOTONIC, &to);
	CHECK(!kill(child, 0)); // lives
	kill(child, SIGKILL);
	printf("%ld\n", (to.tv_sec - from.tv_sec) * 1000 + (to.tv_nsec - from.tv_nsec) / 1000000);
	return 0;
}
