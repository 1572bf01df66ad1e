// Accepts a request that asks for more READs at a time than the device takes. The first line of the output is the port.
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>

#include "check.h"

int main(void)
{
	struct ibv_qp_init_attr a = {.qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}}, in;
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = inet_addr("127.0.9.4")};
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct ibv_device_attr device;
	struct rdma_cm_event *ev;
	struct rdma_cm_id *listener;
	struct ibv_qp_attr q;

	CHECK(ch && !rdma_create_id(ch, &listener, NULL, RDMA_PS_TCP));
	CHECK(!rdma_bind_addr(listener, (struct sockaddr *)&at) && !rdma_listen(listener, 0));
	printf("%d\n", ntohs(rdma_get_src_port(listener)));
	fflush(stdout);
	CHECK(!rdma_get_cm_event(ch, &ev) && ev->event == RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(!ibv_query_device(ev->id->verbs, &device) && ev->param.conn.responder_resources > device.max_qp_rd_atom);
	CHECK(ev->param.conn.initiator_depth > device.max_qp_init_rd_atom);
	CHECK(!rdma_create_qp(ev->id, NULL, &a) && !rdma_accept(ev->id, NULL));
	CHECK(!ibv_query_qp(ev->id->qp, &q, IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MAX_QP_RD_ATOMIC, &in));
	CHECK(q.max_dest_rd_atomic == device.max_qp_rd_atom && q.max_rd_atomic == device.max_qp_init_rd_atom);
	return 0;
}
