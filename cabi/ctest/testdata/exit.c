// Children end at each phase, in several ways, also while another thread polls, and a timer interrupts them at 1 kHz.
// Each ends at once with its own status, without a handler of its own for anything.
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define FAILED 99
#include "check.h"

enum { OPENED, DOMAIN, QUEUE, PAIR, POSTED, POLLED, ARMED, PHASES };
enum { EXIT, QUICK, KILLED, THREAD, WAYS };

static struct ibv_cq *cq;
static char buf[4096];

static void on_alarm(int signal) { }

static void *poll_on(void *arg)
{
	struct ibv_wc wc;

	while (cq)
		ibv_poll_cq(cq, 1, &wc);
	return arg;
}

static void end(int way)
{
	pthread_t t;

	switch (way) {
	case QUICK:
		_exit(7);
	case KILLED:
		raise(SIGKILL);
		break;
	case THREAD:
		CHECK(!pthread_create(&t, NULL, poll_on, NULL));
		usleep(1000);
	}
	exit(7);
}

static void to_self(struct ibv_qp *qp)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	union ibv_gid gid;

	CHECK(!ibv_query_gid(qp->context, 1, 1, &gid));
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num,
				 .ah_attr = {.is_global = 1, .port_num = 1,
					     .grh = {.dgid = gid, .sgid_index = 1, .hop_limit = 1}}};
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7};
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					     IBV_QP_MAX_QP_RD_ATOMIC));
}

static void child(int phase, int way)
{
	struct itimerval timer = {{0, 1000}, {0, 1000}};
	struct sigaction on = {.sa_handler = on_alarm};
	struct ibv_device **list;
	struct ibv_context *c = NULL;
	struct ibv_comp_channel *ch;
	struct ibv_pd *pd;
	struct ibv_qp *qp;
	struct ibv_mr *mr;

	sigaction(SIGALRM, &on, NULL);
	setitimer(ITIMER_REAL, &timer, NULL);
	CHECK(list = ibv_get_device_list(NULL));
	for (int i = 0; list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), "vrb_lo"))
			CHECK(c = ibv_open_device(list[i]));
	CHECK(c);
	if (phase == OPENED)
		end(way);
	CHECK((pd = ibv_alloc_pd(c)) && (mr = ibv_reg_mr(pd, buf, sizeof buf, IBV_ACCESS_LOCAL_WRITE)));
	if (phase == DOMAIN)
		end(way);
	CHECK((ch = ibv_create_comp_channel(c)) && (cq = ibv_create_cq(c, 64, NULL, ch, 0)));
	if (phase == QUEUE)
		end(way);
	struct ibv_qp_init_attr in = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {16, 16, 1, 1, 0}};
	CHECK(qp = ibv_create_qp(pd, &in));
	to_self(qp);
	if (phase == PAIR)
		end(way);
	struct ibv_sge sge = {(uintptr_t)buf, 64, mr->lkey};
	struct ibv_recv_wr rwr = {.sg_list = &sge, .num_sge = 1}, *rbad;
	struct ibv_send_wr swr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *sbad;
	for (int i = 0; i < 8; i++)
		CHECK(!ibv_post_recv(qp, &rwr, &rbad) && !ibv_post_send(qp, &swr, &sbad));
	if (phase == POSTED)
		end(way);
	struct ibv_wc wc;
	for (int got = 0, n; got < 4; got += n)
		CHECK((n = ibv_poll_cq(cq, 1, &wc)) >= 0 && (!n || !wc.status));
	if (phase == POLLED)
		end(way);
	CHECK(!ibv_req_notify_cq(cq, 0));
	end(way);
}

int main(void)
{
	int failed = 0;

	for (int phase = 0; phase < PHASES; phase++) {
		for (int way = 0; way < WAYS; way++) {
			int status;
			pid_t pid = fork();

			CHECK(pid >= 0);
			if (!pid)
				child(phase, way);
			CHECK(waitpid(pid, &status, 0) == pid);
			int want = way == KILLED ? SIGKILL : 7 << 8;
			if (status != want) {
				printf("phase %d, way %d: status %#x, want %#x\n", phase, way, status, want);
				failed = 1;
			}
		}
	}
	return failed;
}
