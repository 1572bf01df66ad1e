// A program polls a CQ, requests an event and then sleeps. A completion between the two wakes it, as on adapters. A
// completion that has had its event does not raise another one.
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdint.h>

#include "check.h"
#include "connect.h"
#include "device.h"

static struct ibv_qp *qp;
static struct ibv_mr *mr;
static struct ibv_cq *sent, *received;
static struct ibv_comp_channel *channel;

static void poll_one(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(cq, 1, &wc)))
		;
	CHECK(n == 1 && wc.status == IBV_WC_SUCCESS);
}

// message returns when a message is received, whose completion is not polled.
static void message(void)
{
	struct ibv_sge at = {(uintptr_t)mr->addr, 8, mr->lkey};
	struct ibv_recv_wr r = {.sg_list = &at, .num_sge = 1}, *bad_recv;
	struct ibv_send_wr s = {.sg_list = &at, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad_send;

	CHECK(!ibv_post_recv(qp, &r, &bad_recv));
	CHECK(!ibv_post_send(qp, &s, &bad_send));
	poll_one(sent);
}

// take takes an event if one comes within some milliseconds, and says whether.
static int take(int ms)
{
	struct pollfd p = {.fd = channel->fd, .events = POLLIN};
	struct ibv_cq *cq;
	void *context;

	if (!poll(&p, 1, ms))
		return 0;
	CHECK(!ibv_get_cq_event(channel, &cq, &context) && cq == received);
	ibv_ack_cq_events(cq, 1);
	return 1;
}

// extended has a program that takes one completion for each event: those that it leaves wake it.
static void extended(struct ibv_cq_ex *cq)
{
	struct ibv_poll_cq_attr a = {0};

	CHECK(!ibv_req_notify_cq(received, 0));
	for (int i = 0; i < 5; i++)
		message();
	for (int i = 0; i < 5; i++) {
		CHECK(take(10000) && !ibv_start_poll(cq, &a));
		CHECK(!ibv_req_notify_cq(received, 0)); // here and after end_poll
		ibv_end_poll(cq);
		CHECK(!ibv_req_notify_cq(received, 0));
	}
	while (take(50))
		; // of a request between the two calls
	CHECK(ibv_start_poll(cq, &a) == ENOENT);
}

int main(void)
{
	struct ibv_context *c = open_device("vrb_lo");

	CHECK(c && (channel = ibv_create_comp_channel(c)));
	struct ibv_pd *pd = ibv_alloc_pd(c);
	CHECK(pd && (mr = ibv_reg_mr(pd, calloc(1, 4096), 4096, IBV_ACCESS_LOCAL_WRITE)));
	CHECK((sent = ibv_create_cq(c, 16, NULL, NULL, 0)) && (received = ibv_create_cq(c, 16, NULL, channel, 0)));
	struct ibv_qp_init_attr in = {.send_cq = sent, .recv_cq = received, .qp_type = IBV_QPT_RC,
				      .cap = {16, 16, 1, 1, 0}, .sq_sig_all = 1};
	CHECK(qp = ibv_create_qp(pd, &in));
	connect_qp(qp, qp->qp_num);

	message();
	CHECK(!take(50));
	CHECK(!ibv_req_notify_cq(received, 0));
	CHECK(take(10000));
	CHECK(!ibv_req_notify_cq(received, 0));
	CHECK(!take(50));
	poll_one(received);
	message();
	CHECK(take(10000));
	message();
	CHECK(!ibv_req_notify_cq(received, 1)); // neither is solicited
	CHECK(!take(50));
	CHECK(!ibv_req_notify_cq(received, 0));
	CHECK(take(10000));

	struct ibv_cq_init_attr_ex ex = {.cqe = 16, .channel = channel, .wc_flags = IBV_WC_EX_WITH_BYTE_LEN};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(c, &ex);
	CHECK(cq && !ibv_destroy_qp(qp) && !ibv_destroy_cq(received));
	in.recv_cq = received = ibv_cq_ex_to_cq(cq);
	CHECK(qp = ibv_create_qp(pd, &in));
	connect_qp(qp, qp->qp_num);
	extended(cq);
	return 0;
}
