// 32 threads with a QP pair each poll one CQ, while a timer interrupts the program at 1 kHz. Each message completes once.
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "check.h"
#include "connect.h"

enum { THREADS = 32, MESSAGES = 200 };

static struct ibv_cq *cq;
static struct ibv_mr *mr;
static char *buf;
static struct ibv_qp *qps[THREADS][2];
static atomic_int sent[THREADS], received[THREADS], alarms, done;

static void on_alarm(int signal) { alarms++; }

static void poll_some(void)
{
	struct ibv_wc wcs[4];
	int n = ibv_poll_cq(cq, 4, wcs);

	CHECK(n >= 0);
	for (int i = 0; i < n; i++) {
		CHECK(wcs[i].status == IBV_WC_SUCCESS);
		if (wcs[i].opcode & IBV_WC_RECV)
			received[wcs[i].wr_id]++;
		else
			sent[wcs[i].wr_id]++;
	}
}

static void *run(void *arg)
{
	long id = (long)arg;
	struct ibv_sge sge = {(uintptr_t)buf + 128 * id, 64, mr->lkey};
	struct ibv_recv_wr rwr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *rbad;
	struct ibv_send_wr swr = {.wr_id = id, .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED,
				  .opcode = IBV_WR_SEND}, *sbad;

	for (int i = 0; i < MESSAGES; i++) {
		CHECK(!ibv_post_recv(qps[id][1], &rwr, &rbad));
		CHECK(!ibv_post_send(qps[id][0], &swr, &sbad));
		while (sent[id] <= i || received[id] <= i)
			poll_some();
	}
	done++;
	return NULL;
}

int main(int argc, char **argv)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *c = NULL;
	struct itimerval timer = {{0, 1000}, {0, 1000}};
	pthread_t threads[THREADS];

	for (int i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), argc > 1 ? argv[1] : "vrb_lo"))
			c = ibv_open_device(list[i]);
	CHECK(c);
	ibv_free_device_list(list);
	struct sigaction on = {.sa_handler = on_alarm};
	sigaction(SIGALRM, &on, NULL);
	setitimer(ITIMER_REAL, &timer, NULL);
	struct ibv_pd *pd = ibv_alloc_pd(c);
	CHECK(pd && (buf = calloc(THREADS, 128)));
	CHECK(mr = ibv_reg_mr(pd, buf, THREADS * 128, IBV_ACCESS_LOCAL_WRITE));
	CHECK(cq = ibv_create_cq(c, 4 * THREADS, NULL, NULL, 0));
	struct ibv_qp_init_attr in = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}};
	for (int i = 0; i < THREADS; i++) {
		CHECK((qps[i][0] = ibv_create_qp(pd, &in)) && (qps[i][1] = ibv_create_qp(pd, &in)));
		connect_qp(qps[i][0], qps[i][1]->qp_num);
		connect_qp(qps[i][1], qps[i][0]->qp_num);
	}
	for (long i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&threads[i], NULL, run, (void *)i));
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	poll_some();
	for (int i = 0; i < THREADS; i++)
		CHECK(sent[i] == MESSAGES && received[i] == MESSAGES);
	CHECK(alarms > 0);
	return 0; // without closing anything
}
