// A child answers each message of its parent at once, and exits as soon as it has polled the last one, with its objects
// as they are. The parent must hear that the message arrived. Over UDP the engine holds acknowledgements back for the
// answer of such a program.
#include <infiniband/verbs.h>
#include <stdint.h>
#include <sys/wait.h>

#include "check.h"
#include "connect.h"

struct end {
	struct ibv_qp *qp;
	struct ibv_cq *sent, *received;
	struct ibv_mr *mr;
};

// begin makes a QP that is connected to that of the other process, over two pipes.
static struct end begin(int from, int to)
{
	struct ibv_device **all = ibv_get_device_list(NULL), **d = all;
	struct end e;
	uint32_t other;

	CHECK(all);
	while (*d && strcmp(ibv_get_device_name(*d), "vrb_lo"))
		d++;
	struct ibv_context *c = ibv_open_device(*d);
	CHECK(c);
	struct ibv_pd *pd = ibv_alloc_pd(c);
	CHECK(pd && (e.mr = ibv_reg_mr(pd, calloc(1, 4096), 4096, IBV_ACCESS_LOCAL_WRITE)));
	CHECK((e.sent = ibv_create_cq(c, 16, NULL, NULL, 0)) && (e.received = ibv_create_cq(c, 16, NULL, NULL, 0)));
	struct ibv_qp_init_attr in = {.send_cq = e.sent, .recv_cq = e.received, .qp_type = IBV_QPT_RC,
				      .cap = {16, 16, 1, 1, 0}, .sq_sig_all = 1};
	CHECK(e.qp = ibv_create_qp(pd, &in));
	CHECK(write(to, &e.qp->qp_num, 4) == 4 && read(from, &other, 4) == 4);
	connect_qp(e.qp, other);
	struct ibv_sge at = {(uintptr_t)e.mr->addr, 8, e.mr->lkey};
	struct ibv_recv_wr w = {.sg_list = &at, .num_sge = 1}, *bad;
	for (int i = 0; i < 8; i++)
		CHECK(!ibv_post_recv(e.qp, &w, &bad));
	CHECK(write(to, "", 1) == 1 && read(from, &other, 1) == 1); // both are ready
	return e;
}

static void send_one(struct end *e)
{
	struct ibv_sge at = {(uintptr_t)e->mr->addr, 8, e->mr->lkey};
	struct ibv_send_wr w = {.sg_list = &at, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;

	CHECK(!ibv_post_send(e->qp, &w, &bad));
}

static enum ibv_wc_status poll_one(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(cq, 1, &wc)))
		;
	CHECK(n == 1);
	return wc.status;
}

static void receive_one(struct end *e)
{
	struct ibv_sge at = {(uintptr_t)e->mr->addr, 8, e->mr->lkey};
	struct ibv_recv_wr w = {.sg_list = &at, .num_sge = 1}, *bad;

	CHECK(poll_one(e->received) == IBV_WC_SUCCESS);
	CHECK(!ibv_post_recv(e->qp, &w, &bad));
}

enum { rounds = 50, children = 10 };

static void child(int from, int to)
{
	struct end e = begin(from, to);

	for (int i = 0; i < rounds; i++) {
		receive_one(&e);
		send_one(&e);
		CHECK(poll_one(e.sent) == IBV_WC_SUCCESS);
	}
	CHECK(poll_one(e.received) == IBV_WC_SUCCESS);
	exit(0);
}

int main(void)
{
	for (int k = 0; k < children; k++) {
		int down[2], up[2], status;

		CHECK(!pipe(down) && !pipe(up));
		pid_t pid = fork();
		CHECK(pid >= 0);
		if (!pid)
			child(down[0], up[1]);
		struct end e = begin(up[0], down[1]);
		for (int i = 0; i < rounds; i++) {
			send_one(&e);
			CHECK(poll_one(e.sent) == IBV_WC_SUCCESS);
			receive_one(&e);
		}
		send_one(&e);
		enum ibv_wc_status last = poll_one(e.sent);
		if (last != IBV_WC_SUCCESS) {
			printf("child %d exited, and its last message ended with: %s\n", k, ibv_wc_status_str(last));
			exit(1);
		}
		CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	}
	return 0;
}
