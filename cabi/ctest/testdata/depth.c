// The depth of a send queue: adapters round it up, and programs such as perftest post before they poll. The QP reports
// the actual depth, and takes that many requests.
#include <infiniband/verbs.h>
#include <stdio.h>
#include <string.h>

static int failed;

static void try(struct ibv_pd *pd, struct ibv_cq *cq, uint32_t asked, uint32_t want)
{
	struct ibv_qp_init_attr in = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
				      .cap = {asked, 1, 1, 1, 0}}, got;
	struct ibv_qp_attr attr;
	struct ibv_qp *qp = ibv_create_qp(pd, &in);

	if (!qp) {
		printf("max_send_wr %u: no QP\n", asked);
		failed = 1;
		return;
	}
	if (ibv_query_qp(qp, &attr, IBV_QP_CAP, &got) || attr.cap.max_send_wr != want || in.cap.max_send_wr != want) {
		printf("max_send_wr %u: %u created, %u queried, want %u\n", asked, in.cap.max_send_wr,
		       attr.cap.max_send_wr, want);
		failed = 1;
	}
	ibv_destroy_qp(qp);
}

// fill posts to a QP in ERR, where requests complete and stay in the queue until they are polled.
static void fill(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr in = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {1, 1, 1, 1, 0}};
	struct ibv_qp *qp = ibv_create_qp(pd, &in);
	struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
	uint32_t posted = 0;

	if (!qp || ibv_modify_qp(qp, &error, IBV_QP_STATE)) {
		printf("no QP\n");
		failed = 1;
		return;
	}
	while (posted < 1000 && !ibv_post_send(qp, &wr, &bad))
		posted++;
	if (posted != in.cap.max_send_wr) {
		printf("%u requests were posted, want %u\n", posted, in.cap.max_send_wr);
		failed = 1;
	}
	ibv_destroy_qp(qp);
}

// resize changes the depth of a QP: the requests that fit are then more, and the actual depths are reported.
static void resize(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr in = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {1, 1, 1, 1, 0}}, got;
	struct ibv_qp *qp = ibv_create_qp(pd, &in);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1}, seen;
	struct ibv_recv_wr wr = {.num_sge = 0}, *bad;
	uint32_t posted = 0;

	if (!qp || ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)) {
		printf("no QP\n");
		failed = 1;
		return;
	}
	attr.cap = (struct ibv_qp_cap){40, 50, 1, 1, 0};
	if (ibv_modify_qp(qp, &attr, IBV_QP_CAP) || attr.cap.max_send_wr != 64 || attr.cap.max_recv_wr != 64 ||
	    ibv_query_qp(qp, &seen, IBV_QP_CAP, &got) || seen.cap.max_send_wr != 64 || got.cap.max_recv_wr != 64) {
		printf("resized to %u and %u, want 64 and 64\n", attr.cap.max_send_wr, attr.cap.max_recv_wr);
		failed = 1;
	}
	while (posted < 1000 && !ibv_post_recv(qp, &wr, &bad))
		posted++;
	if (posted != 64) {
		printf("%u receives were posted after the resize, want 64\n", posted);
		failed = 1;
	}
	ibv_destroy_qp(qp);
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *c = list && list[0] ? ibv_open_device(list[0]) : NULL;
	struct ibv_pd *pd = c ? ibv_alloc_pd(c) : NULL;
	struct ibv_cq *cq = c ? ibv_create_cq(c, 64, NULL, NULL, 0) : NULL;

	if (!pd || !cq)
		return 1;
	try(pd, cq, 0, 1);
	try(pd, cq, 1, 16);
	try(pd, cq, 16, 16);
	try(pd, cq, 17, 32);
	try(pd, cq, 100, 128);
	struct ibv_device_attr limits;
	if (ibv_query_device(c, &limits))
		return 1;
	try(pd, cq, limits.max_qp_wr, limits.max_qp_wr);
	fill(pd, cq);
	resize(pd, cq);
	return failed;
}
