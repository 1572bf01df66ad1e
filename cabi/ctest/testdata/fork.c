// A program that has a device forks. Children and grandchildren open a device of their own and use the context of the
// parent, whose objects answer EIO there. Each line of the output is the number of the first QP of a child.
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "connect.h"

static const char *device = "vrb_lo";

// traffic sends one message between two QPs, waiting for an event. It returns the number of a QP.
static uint32_t traffic(struct ibv_context *c)
{
	char *buf = calloc(1, 4096);
	struct ibv_pd *pd = ibv_alloc_pd(c);
	struct ibv_comp_channel *ch = ibv_create_comp_channel(c);
	struct ibv_cq *cq = ibv_create_cq(c, 16, NULL, ch, 0), *of;
	struct ibv_qp_init_attr in = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}};
	struct ibv_qp *q[2];
	struct ibv_wc wc;
	void *x;

	CHECK(pd && ch && cq);
	struct ibv_mr *mr = ibv_reg_mr(pd, buf, 4096, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr);
	for (int i = 0; i < 2; i++)
		CHECK(q[i] = ibv_create_qp(pd, &in));
	for (int i = 0; i < 2; i++)
		connect_qp(q[i], q[!i]->qp_num);
	struct ibv_sge to = {(uintptr_t)buf + 2048, 64, mr->lkey}, from = {(uintptr_t)buf, 64, mr->lkey};
	struct ibv_recv_wr rwr = {.sg_list = &to, .num_sge = 1}, *rbad;
	struct ibv_send_wr swr = {.sg_list = &from, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED, .opcode = IBV_WR_SEND};
	struct ibv_send_wr *sbad;
	strcpy(buf, "hello");
	CHECK(!ibv_req_notify_cq(cq, 0));
	CHECK(!ibv_post_recv(q[1], &rwr, &rbad));
	CHECK(!ibv_post_send(q[0], &swr, &sbad));
	CHECK(!ibv_get_cq_event(ch, &of, &x) && of == cq);
	ibv_ack_cq_events(cq, 1);
	for (int got = 0, n; got < 2; got += n) {
		n = ibv_poll_cq(cq, 1, &wc);
		CHECK(n == 0 || (n == 1 && !wc.status));
	}
	CHECK(!strcmp(buf + 2048, "hello"));
	uint32_t num = q[0]->qp_num;
	for (int i = 0; i < 2; i++)
		CHECK(!ibv_destroy_qp(q[i]));
	CHECK(!ibv_destroy_cq(cq) && !ibv_destroy_comp_channel(ch) && !ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd));
	free(buf);
	return num;
}

static struct ibv_context *open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *c = NULL;

	for (int i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), device))
			c = ibv_open_device(list[i]);
	CHECK(c);
	ibv_free_device_list(list);
	return c;
}

static void join(pid_t pid)
{
	int status;

	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

// post_to posts a datagram to an address handle, by a QP of this process. It returns the errno.
static int post_to(struct ibv_pd *pd, struct ibv_ah *ah)
{
	struct ibv_cq *cq = ibv_create_cq(pd->context, 4, NULL, NULL, 0);
	struct ibv_qp_init_attr in = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UD, .cap = {4, 4, 1, 1, 0}};
	struct ibv_qp *qp = ibv_create_qp(pd, &in);
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 1};
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
				 .wr.ud = {.ah = ah, .remote_qpn = 77, .remote_qkey = 1}}, *bad;

	CHECK(qp && !ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	a.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE));
	a.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN));
	int e = ibv_post_send(qp, &wr, &bad);
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq));
	return e;
}

static struct ibv_ah *address(struct ibv_pd *pd)
{
	struct ibv_ah_attr a = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = 1, .hop_limit = 1}};
	struct ibv_ah *ah;

	CHECK(!ibv_query_gid(pd->context, 1, 1, &a.grh.dgid));
	CHECK(ah = ibv_create_ah(pd, &a));
	return ah;
}

// Objects of the parent.
static struct ibv_comp_channel *channel;
static struct ibv_dm *dm;
static struct ibv_srq *srq;
static struct ibv_td *td;
static struct ibv_xrcd *xrcd;

// foreign gives objects of the parent to calls that make objects of this process.
static void foreign(struct ibv_context *c, struct ibv_pd *pd, struct ibv_pd *pd_of_parent, struct ibv_cq *cq_of_parent)
{
	struct ibv_cq *own = ibv_create_cq(c, 8, NULL, NULL, 0);
	struct ibv_qp_init_attr in = {.send_cq = own, .recv_cq = own, .srq = srq, .qp_type = IBV_QPT_RC,
				      .cap = {4, 4, 1, 1, 0}};

	struct ibv_parent_domain_init_attr domain = {.pd = pd, .td = td};
	struct ibv_wq_init_attr wq = {.wq_type = IBV_WQT_RQ, .max_wr = 4, .max_sge = 1, .pd = pd, .cq = cq_of_parent};
	struct ibv_srq_init_attr_ex shared = {.attr = {.max_wr = 4, .max_sge = 1}, .srq_type = IBV_SRQT_XRC, .pd = pd,
					      .xrcd = xrcd, .cq = own, .comp_mask = IBV_SRQ_INIT_ATTR_TYPE |
					      IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_PD};

	CHECK(own && !ibv_create_qp(pd, &in) && errno == EIO);
	in.srq = NULL;
	CHECK(!ibv_create_qp(pd_of_parent, &in) && errno == EIO);
	in.recv_cq = cq_of_parent;
	CHECK(!ibv_create_qp(pd, &in) && errno == EIO);
	CHECK(!ibv_create_wq(c, &wq) && errno == EIO);
	CHECK(!ibv_create_srq_ex(c, &shared) && errno == EIO);
	CHECK(!ibv_alloc_parent_domain(c, &domain) && errno == EIO);
	CHECK(!ibv_dealloc_td(td) && !ibv_close_xrcd(xrcd));
	CHECK(!ibv_destroy_cq(own) && !ibv_destroy_srq(srq));
	CHECK(!ibv_create_cq(c, 8, NULL, channel, 0) && errno == EIO);
	CHECK(!ibv_reg_dm_mr(pd, dm, 0, 64, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE) && errno == EIO);
	CHECK(!ibv_destroy_comp_channel(channel) && !ibv_free_dm(dm));
}

static void child(struct ibv_context *of_parent, struct ibv_pd *pd, struct ibv_cq *cq, struct ibv_ah *ah)
{
	struct ibv_wc wc;

	CHECK(ibv_poll_cq(cq, 1, &wc) == -1);
	CHECK(!ibv_reg_mr(pd, &wc, sizeof wc, 0) && errno == EIO);
	struct ibv_context *c = open_device();
	printf("%06x\n", traffic(c));
	fflush(stdout);
	traffic(of_parent);
	struct ibv_pd *own = ibv_alloc_pd(c);
	CHECK(own && post_to(own, ah) == EINVAL);
	foreign(c, own, pd, cq);
	CHECK(!ibv_dealloc_pd(own));
	pid_t pid = fork();
	if (!pid) {
		c = open_device();
		traffic(c);
		CHECK(!ibv_close_device(c));
		_exit(0);
	}
	join(pid);
	traffic(c);
	CHECK(!ibv_destroy_ah(ah) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd));
	CHECK(!ibv_close_device(c) && !ibv_close_device(of_parent));
}

int main(int argc, char **argv)
{
	enum { CHILDREN = 4 };
	pid_t pids[CHILDREN];

	device = argc > 1 ? argv[1] : device;
	struct ibv_context *c = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(c);
	struct ibv_cq *cq = ibv_create_cq(c, 8, NULL, NULL, 0);
	CHECK(pd && cq);
	struct ibv_ah *ah = address(pd);
	CHECK(!post_to(pd, ah));
	struct ibv_alloc_dm_attr size = {.length = 64};
	struct ibv_srq_init_attr few = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_xrcd_init_attr domain = {.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1,
					    .oflags = O_CREAT};
	struct ibv_td_init_attr none = {};
	CHECK(srq = ibv_create_srq(pd, &few));
	CHECK((channel = ibv_create_comp_channel(c)) && (dm = ibv_alloc_dm(c, &size)));
	CHECK((td = ibv_alloc_td(c, &none)) && (xrcd = ibv_open_xrcd(c, &domain)));
	for (int i = 0; i < CHILDREN; i++) {
		pids[i] = fork();
		if (!pids[i]) {
			child(c, pd, cq, ah);
			_exit(0);
		}
	}
	traffic(c);
	for (int i = 0; i < CHILDREN; i++)
		join(pids[i]);
	traffic(c);
	CHECK(!ibv_close_device(c)); // with a PD and a CQ left
	return 0;
}
