// TSO on a UD QP, by ibv_post_send and by ibv_wr_send_tso: the data of one request arrives in messages of mss bytes, each
// behind the headers, with its own sequence number. The QP sends to itself.
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdlib.h>

#include "check.h"
#include "device.h"

enum { MSS = 600, BYTES = 1500, HEADERS = 44, GRH = 40, ROOM = 1024 };

static uint8_t buf[3 * ROOM];
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct ibv_qp *qp;
static struct ibv_ah *ah;

// headers are those of IP over InfiniBand, of IPv4 and of TCP, with the sequence number 256.
static uint8_t headers[HEADERS] = {
	8, 0, 0, 0, 0x45, 0, 0, 0, 0, 7, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
	0, 1, 0, 2, 0, 0, 1, 0, 0, 0, 0, 2, 0x50, 0x18, 1, 0, 0, 0, 0, 0,
};

static void make(struct ibv_context *c)
{
	struct ibv_pd *pd = ibv_alloc_pd(c);
	CHECK(pd && (cq = ibv_create_cq(c, 16, NULL, NULL, 0)));
	CHECK(mr = ibv_reg_mr(pd, buf, sizeof buf, IBV_ACCESS_LOCAL_WRITE));
	struct ibv_qp_init_attr_ex in = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UD, .sq_sig_all = 1, .cap = {4, 8, 1, 1, 0}, .pd = pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_MAX_TSO_HEADER | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.max_tso_header = HEADERS, .send_ops_flags = IBV_QP_EX_WITH_TSO,
	};
	CHECK(qp = ibv_create_qp_ex(c, &in));
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 7};
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	a.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE));
	a.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN));
	struct ibv_ah_attr to = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = 1, .hop_limit = 1}};
	CHECK(!ibv_query_gid(c, 1, 1, &to.grh.dgid) && (ah = ibv_create_ah(pd, &to)));
}

static void post_recvs(void)
{
	for (int i = 0; i < 3; i++) {
		struct ibv_sge to = {(uintptr_t)buf + i * ROOM, ROOM, mr->lkey};
		struct ibv_recv_wr w = {.wr_id = i, .sg_list = &to, .num_sge = 1}, *bad;
		CHECK(!ibv_post_recv(qp, &w, &bad));
	}
}

// take polls the three messages and the completion of the request.
static void take(void)
{
	int sent = 0;

	for (int i = 0; i < 3 || !sent;) {
		struct ibv_wc wc;
		if (!ibv_poll_cq(cq, 1, &wc))
			continue;
		CHECK(wc.status == IBV_WC_SUCCESS);
		if (wc.opcode == IBV_WC_TSO) {
			sent++;
			continue;
		}
		uint32_t data = i < 2 ? MSS : BYTES - 2 * MSS, seq;
		uint8_t *m = buf + wc.wr_id * ROOM + GRH;
		CHECK((int)wc.wr_id == i && wc.byte_len == GRH + HEADERS + data && wc.wc_flags & IBV_WC_IP_CSUM_OK);
		memcpy(&seq, m + 28, 4);
		CHECK(ntohl(seq) == 256u + i * MSS && m[HEADERS] == 'd' && m[HEADERS + data - 1] == 'd');
		i++;
	}
}

int main(void)
{
	struct ibv_context *c = open_device("vrb_lo");
	struct ibv_device_attr_ex attr;

	CHECK(c && !ibv_query_device_ex(c, NULL, &attr));
	CHECK(attr.tso_caps.max_tso >= BYTES && attr.tso_caps.supported_qpts & 1 << IBV_QPT_UD);
	make(c);
	uint8_t *data = malloc(BYTES);
	struct ibv_mr *more = ibv_reg_mr(qp->pd, data, BYTES, 0);
	CHECK(data && more);
	memset(data, 'd', BYTES);
	struct ibv_sge from = {(uintptr_t)data, BYTES, more->lkey};

	post_recvs();
	struct ibv_send_wr w = {.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_TSO,
				.wr.ud = {.ah = ah, .remote_qpn = qp->qp_num, .remote_qkey = 7},
				.tso = {.hdr = headers, .hdr_sz = HEADERS, .mss = MSS}},
			   *bad;
	CHECK(!ibv_post_send(qp, &w, &bad));
	take();

	post_recvs();
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(qp);
	CHECK(x);
	ibv_wr_start(x);
	ibv_wr_send_tso(x, headers, HEADERS, MSS);
	ibv_wr_set_ud_addr(x, ah, qp->qp_num, 7);
	ibv_wr_set_sge(x, more->lkey, (uintptr_t)data, BYTES);
	CHECK(!ibv_wr_complete(x));
	take();
	return 0;
}
