// Flow actions, rules of UD QPs and EGRESS rules through libibverbs. The device is that of the loopback interface,
// which returns what the program sends.
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <stddef.h>
#include <time.h>
#include "check.h"
#include "device.h"

#define WANT(x, e) \
	do { \
		int got_ = (x); \
		if (got_ != (e)) { \
			printf("line %d: %s: %s, want %s\n", __LINE__, #x, strerror(got_), strerror(e)); \
			exit(1); \
		} \
	} while (0)
#define NONE(x, e) \
	do { \
		errno = 0; \
		MUST(!(x)); \
		WANT(errno, e); \
	} while (0)

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static uint8_t buf[8192];

static struct ibv_flow_action_esp esp = {.spi = 0x12345678, .flags = IBV_FLOW_ACTION_ESP_FLAGS_FULL_OFFLOAD};
static struct ibv_flow_action_esp_keymat_aes_gcm key = {.iv = 1, .salt = 5, .icv_len = 16, .key_len = 16, .aes_key = {1, 2, 3, 4}};
static struct ibv_flow_action_esp_replay_bmp window = {64};
static struct ibv_flow_ipv4_filter outer;
static struct ibv_flow_action_esp_encap encap = {.len = sizeof outer, .type = IBV_FLOW_SPEC_IPV4};
static struct ibv_flow_action_esp_attr attr = {.esp_attr = &esp, .keymat_len = sizeof key, .keymat_ptr = &key, .esp_encap = &encap};

struct rule {
	struct ibv_flow_attr attr;
	struct ibv_flow_spec_eth eth;
	struct ibv_flow_spec_action_handle handle __attribute__((packed));
};

static struct rule rule_of(struct ibv_flow_action *a, uint32_t flags, const uint8_t *mac)
{
	struct rule r = {
		.attr = {.type = IBV_FLOW_ATTR_NORMAL, .size = sizeof r, .num_of_specs = 2, .port = 1, .flags = flags},
		.eth = {.type = IBV_FLOW_SPEC_ETH, .size = sizeof r.eth},
		.handle = {.type = IBV_FLOW_SPEC_ACTION_HANDLE, .size = sizeof(struct ibv_flow_spec_action_handle), .action = a},
	};
	memcpy(r.eth.val.dst_mac, mac, 6);
	memset(r.eth.mask.dst_mac, 0xff, 6);
	return r;
}

static struct ibv_qp *make(enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = type, .sq_sig_all = 1,
					.cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1}};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 7};
	int ud = type == IBV_QPT_UD ? IBV_QP_PKEY_INDEX | IBV_QP_QKEY : 0;

	if (!qp && errno == EPERM) {
		printf("SKIP: no CAP_NET_RAW\n");
		exit(0);
	}
	MUST(qp);
	WANT(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PORT | ud), 0);
	a.qp_state = IBV_QPS_RTR;
	WANT(ibv_modify_qp(qp, &a, IBV_QP_STATE), 0);
	a.qp_state = IBV_QPS_RTS;
	WANT(ibv_modify_qp(qp, &a, IBV_QP_STATE | (ud ? IBV_QP_SQ_PSN : 0)), 0);
	return qp;
}

static void post(struct ibv_qp *qp, int slot)
{
	struct ibv_sge sge = {(uintptr_t)buf + slot * 1024, 1024, mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1}, *bad;

	WANT(ibv_post_recv(qp, &wr, &bad), 0);
}

static void send_frame(struct ibv_qp *qp, const void *frame, int n)
{
	struct ibv_sge sge = {(uintptr_t)buf + 7 * 1024, n, mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 99, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;

	memcpy(buf + 7 * 1024, frame, n);
	WANT(ibv_post_send(qp, &wr, &bad), 0);
}

// received waits for a receive for at most ms milliseconds, and reports whether there was one.
static int received(struct ibv_wc *out, int ms)
{
	struct timespec begun, now;
	struct ibv_wc wc;

	clock_gettime(CLOCK_MONOTONIC, &begun);
	for (;;) {
		while (ibv_poll_cq(cq, 1, &wc) > 0) {
			MUST(wc.status == IBV_WC_SUCCESS);
			if (wc.wr_id != 99) {
				*out = wc;
				return 1;
			}
		}
		clock_gettime(CLOCK_MONOTONIC, &now);
		if ((now.tv_sec - begun.tv_sec) * 1000 + (now.tv_nsec - begun.tv_nsec) / 1000000 >= ms)
			return 0;
	}
}

static void refused(void)
{
	struct ibv_flow_action_esp_attr a = attr;

	a.comp_mask = 2;
	NONE(ibv_create_flow_action_esp(ctx, &a), EOPNOTSUPP);
	a = attr, a.keymat_ptr = NULL;
	NONE(ibv_create_flow_action_esp(ctx, &a), EINVAL);
	a = attr, a.esp_attr = NULL;
	NONE(ibv_create_flow_action_esp(ctx, &a), EINVAL);
	a = attr, a.keymat_len = 8;
	NONE(ibv_create_flow_action_esp(ctx, &a), EINVAL);
	a = attr, a.esp_encap = NULL; // tunnel mode
	NONE(ibv_create_flow_action_esp(ctx, &a), EINVAL);
	key.key_len = 1000;
	NONE(ibv_create_flow_action_esp(ctx, &attr), EINVAL);
	key.key_len = 16, key.iv_algo = 1;
	NONE(ibv_create_flow_action_esp(ctx, &attr), EOPNOTSUPP);
	key.iv_algo = 0, esp.flags |= 16;
	NONE(ibv_create_flow_action_esp(ctx, &attr), EOPNOTSUPP);
	esp.flags &= ~16, encap.next_ptr = &encap; // without an end
	NONE(ibv_create_flow_action_esp(ctx, &attr), EINVAL);
	encap.next_ptr = NULL, encap.len = 3;
	NONE(ibv_create_flow_action_esp(ctx, &attr), EOPNOTSUPP);
	encap.len = sizeof outer;
}

// counted attaches counters before their rule exists, as programs for adapters do, and reads them.
static void counted(struct ibv_qp *raw, struct ibv_qp *ud, const uint8_t *mac)
{
	struct {
		struct ibv_flow_attr attr;
		struct ibv_flow_spec_eth eth;
		struct ibv_flow_spec_counter_action count __attribute__((packed));
	} r = {
		.attr = {.type = IBV_FLOW_ATTR_NORMAL, .size = sizeof r, .num_of_specs = 2, .port = 1},
		.eth = {.type = IBV_FLOW_SPEC_ETH, .size = sizeof r.eth},
	};
	struct ibv_counters_init_attr none = {};
	struct ibv_counters *counters = ibv_create_counters(ctx, &none);
	struct ibv_counter_attach_attr bytes = {.counter_desc = IBV_COUNTER_BYTES, .index = 0};
	struct ibv_counter_attach_attr packets = {.counter_desc = IBV_COUNTER_PACKETS, .index = 2};
	uint64_t values[3] = {9, 9, 9};
	uint8_t frame[64] = {0};
	struct ibv_wc wc;

	MUST(counters);
	WANT(ibv_attach_counters_point_flow(counters, &bytes, NULL), 0);
	WANT(ibv_attach_counters_point_flow(counters, &packets, NULL), 0);
	WANT(ibv_attach_counters_point_flow(counters, &packets, NULL), EINVAL);
	memcpy(r.eth.val.dst_mac, mac, 6);
	memset(r.eth.mask.dst_mac, 0xff, 6);
	r.count = (struct ibv_flow_spec_counter_action){
		.type = IBV_FLOW_SPEC_ACTION_COUNT, .size = sizeof r.count, .counters = counters};
	struct ibv_flow *flow = ibv_create_flow(ud, &r.attr);
	MUST(flow);
	memcpy(frame, mac, 6);
	frame[6] = 2, frame[12] = 8, frame[14] = 0x45, frame[17] = 50, frame[22] = 9, frame[23] = 200;
	for (int i = 0; i < 3; i++) {
		post(ud, i);
		send_frame(raw, frame, sizeof frame);
		MUST(received(&wc, 10000));
	}
	// Each frame counts twice: as one that a QP of the device sends, and as one that the interface returns.
	for (int i = 0; i < 10000 && values[2] != 6; i++) {
		WANT(ibv_read_counters(counters, values, 3, IBV_READ_COUNTERS_ATTR_PREFER_CACHED), 0);
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	MUST(values[0] == 6 * sizeof frame && values[1] == 0 && values[2] == 6);
	WANT(ibv_destroy_flow(flow), 0);
	WANT(ibv_destroy_counters(counters), 0);
}

static void work_queue(void)
{
	struct ibv_wq_init_attr init = {.wq_type = IBV_WQT_RQ, .max_wr = 4, .max_sge = 1, .pd = pd, .cq = cq,
		.comp_mask = IBV_WQ_INIT_ATTR_FLAGS, .create_flags = IBV_WQ_FLAGS_CVLAN_STRIPPING | IBV_WQ_FLAGS_SCATTER_FCS |
		IBV_WQ_FLAGS_DELAY_DROP | IBV_WQ_FLAGS_PCI_WRITE_END_PADDING};
	struct ibv_wq_attr strip = {.attr_mask = IBV_WQ_ATTR_FLAGS, .flags_mask = IBV_WQ_FLAGS_CVLAN_STRIPPING};
	struct ibv_wq_attr fixed = {.attr_mask = IBV_WQ_ATTR_FLAGS, .flags_mask = IBV_WQ_FLAGS_DELAY_DROP};
	struct ibv_device_attr_ex caps;
	struct ibv_wq *wq = ibv_create_wq(ctx, &init);

	MUST(wq);
	WANT(ibv_modify_wq(wq, &strip), 0);
	WANT(ibv_modify_wq(wq, &fixed), EOPNOTSUPP);
	WANT(ibv_destroy_wq(wq), 0);
	WANT(ibv_query_device_ex(ctx, NULL, &caps), 0);
	MUST(caps.raw_packet_caps & IBV_RAW_PACKET_CAP_DELAY_DROP);
	MUST(caps.device_cap_flags_ex & IBV_DEVICE_PCI_WRITE_END_PADDING);
}

int main(void)
{
	const uint8_t mac[6] = {2, 0xfc, getpid() >> 8, getpid(), 0, 1};
	uint8_t frame[64] = {0};
	struct ibv_wc wc;

	MUST(ctx = open_device("vrb_lo"));
	pd = ibv_alloc_pd(ctx);
	cq = ibv_create_cq(ctx, 64, NULL, NULL, 0);
	mr = ibv_reg_mr(pd, buf, sizeof buf, IBV_ACCESS_LOCAL_WRITE);
	MUST(pd && cq && mr);
	encap.val_ptr = &outer;
	outer.src_ip = htonl(0xc0000201), outer.dst_ip = htonl(0xc0000202);
	struct ibv_qp *raw = make(IBV_QPT_RAW_PACKET), *ud = make(IBV_QPT_UD);

	refused();
	work_queue();
	counted(raw, ud, mac);
	attr.replay_ptr = &window, attr.replay_len = sizeof window, attr.replay_proto = IBV_FLOW_ACTION_ESP_REPLAY_BMP;
	struct ibv_flow_action *dec = ibv_create_flow_action_esp(ctx, &attr);
	MUST(dec);
	attr.replay_ptr = NULL, esp.flags |= IBV_FLOW_ACTION_ESP_FLAGS_ENCRYPT;
	struct ibv_flow_action *enc = ibv_create_flow_action_esp(ctx, &attr);
	MUST(enc);
	esp.flags &= ~IBV_FLOW_ACTION_ESP_FLAGS_ENCRYPT;

	// What is sent is encrypted, and what comes back is decrypted.
	struct rule out = rule_of(enc, IBV_FLOW_ATTR_FLAGS_EGRESS, mac), in = rule_of(dec, 0, mac), wrong = rule_of(dec, IBV_FLOW_ATTR_FLAGS_EGRESS, mac);
	NONE(ibv_create_flow(raw, &wrong.attr), EINVAL);
	struct ibv_flow *fo = ibv_create_flow(raw, &out.attr), *fi = ibv_create_flow(ud, &in.attr);
	MUST(fo && fi);
	WANT(ibv_destroy_flow_action(dec), EBUSY);
	memcpy(frame, mac, 6);
	frame[6] = 2, frame[12] = 8, frame[14] = 0x45, frame[17] = 50, frame[22] = 9, frame[23] = 200;
	memcpy(frame + 40, "secret", 6);
	post(ud, 0);
	send_frame(raw, frame, sizeof frame);
	MUST(received(&wc, 10000));
	MUST(wc.byte_len == 40 + sizeof frame && !memcmp(buf + 40, frame, sizeof frame) && !(wc.wc_flags & IBV_WC_GRH));
	MUST(!received(&wc, 50)); // once

	// With another key on one side nothing is received; with the same on both sides it is.
	struct ibv_flow_action_esp_attr change = {.keymat_len = sizeof key, .keymat_ptr = &key};
	key.aes_key[0] = 99;
	WANT(ibv_modify_flow_action_esp(dec, &change), 0);
	post(ud, 1);
	send_frame(raw, frame, sizeof frame);
	MUST(!received(&wc, 100));
	WANT(ibv_modify_flow_action_esp(enc, &change), 0);
	send_frame(raw, frame, sizeof frame);
	MUST(received(&wc, 10000) && !memcmp(buf + 1024 + 40, frame, sizeof frame));
	change.comp_mask = 4;
	WANT(ibv_modify_flow_action_esp(enc, &change), EOPNOTSUPP);

	WANT(ibv_destroy_flow(fo), 0);
	WANT(ibv_destroy_flow(fi), 0);
	WANT(ibv_destroy_flow_action(dec), 0);
	WANT(ibv_destroy_flow_action(enc), 0);
	WANT(ibv_destroy_qp(ud), 0);
	WANT(ibv_destroy_qp(raw), 0);
	WANT(ibv_dereg_mr(mr), 0);
	WANT(ibv_destroy_cq(cq), 0);
	WANT(ibv_dealloc_pd(pd), 0);
	WANT(ibv_close_device(ctx), 0);
	printf("done\n");
	return 0;
}
