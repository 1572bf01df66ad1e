// What calls answer after the interface of a device was deleted.
// Destruction succeeds only if RDMAV_ALLOW_DISASSOC_DESTROY is set.
#define _GNU_SOURCE
#include <infiniband/verbs.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "device.h"
#include "want.h"

// FAILS is WANT of EIO for a call that sets errno.
#define FAILS(call) WANT((errno = 0, (call)) ? 0 : errno, EIO)

// device opens the one of d0 in a network namespace of this program.
static struct ibv_context *device(void)
{
	if (unshare(CLONE_NEWNET) || system("ip link add d0 type veth peer name d1 && ip link set d1 up && "
					    "ip link set d0 up && ip addr add 10.9.9.1/24 dev d0"))
		return NULL;
	return open_device("vrb_d0");
}

int main(void)
{
	int destroyed = getenv("RDMAV_ALLOW_DISASSOC_DESTROY") ? 0 : EIO;
	struct ibv_context *x = device();
	static char buf[64];
	struct ibv_async_event event;
	struct ibv_port_attr port;
	struct ibv_cq *of;
	void *context;

	MUST(x);
	struct ibv_pd *pd = ibv_alloc_pd(x);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(x);
	MUST(pd && channel);
	struct ibv_cq *cq = ibv_create_cq(x, 4, NULL, channel, 0);
	struct ibv_mr *mr = ibv_reg_mr(pd, buf, sizeof buf, IBV_ACCESS_LOCAL_WRITE);
	MUST(cq && mr);
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = { 1, 1, 1, 1, 0 } };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	MUST(qp);
	MUST(!system("ip link del d0"));
	do {
		MUST(!ibv_get_async_event(x, &event));
		ibv_ack_async_event(&event);
	} while (event.event_type != IBV_EVENT_DEVICE_FATAL);
	FAILS(!ibv_get_async_event(x, &event));
	FAILS(!ibv_get_async_event(x, &event));
	FAILS(!ibv_get_cq_event(channel, &of, &context));
	WANT(ibv_query_port(x, 1, &port), EIO);
	FAILS(ibv_alloc_pd(x));
	FAILS(ibv_create_cq(x, 4, NULL, NULL, 0));
	FAILS(ibv_create_qp(pd, &init));
	FAILS(ibv_reg_mr(pd, buf, sizeof buf, 0));
	WANT(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EIO);
	WANT(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), EIO);
	WANT(ibv_destroy_qp(qp), destroyed);
	WANT(ibv_dereg_mr(mr), destroyed);
	WANT(ibv_destroy_cq(cq), destroyed);
	if (!destroyed) // a CQ that is not destroyed counts as a user
		WANT(ibv_destroy_comp_channel(channel), 0);
	WANT(ibv_dealloc_pd(pd), destroyed);
	WANT(ibv_close_device(x), 0);
	return failed;
}
