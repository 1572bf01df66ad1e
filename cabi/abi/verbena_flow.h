// The structures of flow steering: what follows an ibv_flow_attr in memory, and flow actions.
#ifndef VERBENA_FLOW_H
#define VERBENA_FLOW_H

#include <stdint.h>

#include "verbena_values.h"

struct ibv_context;
struct ibv_counters;

enum ibv_flow_flags { IBV_FLOW_ATTR_FLAGS_DONT_TRAP = VB_BIT(1), IBV_FLOW_ATTR_FLAGS_EGRESS = VB_BIT(2) };

enum ibv_flow_attr_type {
	IBV_FLOW_ATTR_NORMAL = 0, IBV_FLOW_ATTR_ALL_DEFAULT = 1, IBV_FLOW_ATTR_MC_DEFAULT = 2, IBV_FLOW_ATTR_SNIFFER = 3,
};

enum ibv_flow_spec_type {
	IBV_FLOW_SPEC_ETH = 0x20, IBV_FLOW_SPEC_IPV4 = 0x30, IBV_FLOW_SPEC_IPV6 = 0x31, IBV_FLOW_SPEC_IPV4_EXT = 0x32,
	IBV_FLOW_SPEC_ESP = 0x34, IBV_FLOW_SPEC_TCP = 0x40, IBV_FLOW_SPEC_UDP = 0x41, IBV_FLOW_SPEC_VXLAN_TUNNEL = 0x50,
	IBV_FLOW_SPEC_GRE = 0x51, IBV_FLOW_SPEC_MPLS = 0x60, IBV_FLOW_SPEC_INNER = 0x100,
	IBV_FLOW_SPEC_ACTION_TAG = 0x1000, IBV_FLOW_SPEC_ACTION_DROP = 0x1001, IBV_FLOW_SPEC_ACTION_HANDLE = 0x1002,
	IBV_FLOW_SPEC_ACTION_COUNT = 0x1003,
};

// ibv_flow_attr is followed by num_of_specs specifications of their own sizes; size counts them all, in bytes.
struct ibv_flow_attr {
	uint32_t comp_mask;
	enum ibv_flow_attr_type type;
	uint16_t size, priority;
	uint8_t num_of_specs, port;
	uint32_t flags;
};

// Each specification begins with its type and size. Values and masks are in network byte order.
#define VB_SPEC enum ibv_flow_spec_type type; uint16_t size

struct ibv_flow_eth_filter {
	uint8_t dst_mac[6], src_mac[6];
	uint16_t ether_type, vlan_tag;
};
struct ibv_flow_spec_eth { VB_SPEC; struct ibv_flow_eth_filter val, mask; };

struct ibv_flow_ipv4_filter { uint32_t src_ip, dst_ip; };
struct ibv_flow_spec_ipv4 { VB_SPEC; struct ibv_flow_ipv4_filter val, mask; };

struct ibv_flow_ipv4_ext_filter {
	uint32_t src_ip, dst_ip;
	uint8_t proto, tos, ttl, flags;
};
struct ibv_flow_spec_ipv4_ext { VB_SPEC; struct ibv_flow_ipv4_ext_filter val, mask; };

struct ibv_flow_ipv6_filter {
	uint8_t src_ip[16], dst_ip[16];
	uint32_t flow_label;
	uint8_t next_hdr, traffic_class, hop_limit;
};
struct ibv_flow_spec_ipv6 { VB_SPEC; struct ibv_flow_ipv6_filter val, mask; };

struct ibv_flow_esp_filter { uint32_t spi, seq; };
struct ibv_flow_spec_esp { VB_SPEC; struct ibv_flow_esp_filter val, mask; };

struct ibv_flow_tcp_udp_filter { uint16_t dst_port, src_port; };
struct ibv_flow_spec_tcp_udp { VB_SPEC; struct ibv_flow_tcp_udp_filter val, mask; };

struct ibv_flow_gre_filter {
	uint16_t c_ks_res0_ver, protocol;
	uint32_t key;
};
struct ibv_flow_spec_gre { VB_SPEC; struct ibv_flow_gre_filter val, mask; };

struct ibv_flow_mpls_filter { uint32_t label; };
struct ibv_flow_spec_mpls { VB_SPEC; struct ibv_flow_mpls_filter val, mask; };

struct ibv_flow_tunnel_filter { uint32_t tunnel_id; };
struct ibv_flow_spec_tunnel { VB_SPEC; struct ibv_flow_tunnel_filter val, mask; };

struct ibv_flow_spec_action_tag { VB_SPEC; uint32_t tag_id; };
struct ibv_flow_spec_action_drop { VB_SPEC; };
struct ibv_flow_spec_action_handle { VB_SPEC; const struct ibv_flow_action *action; };
struct ibv_flow_spec_counter_action { VB_SPEC; struct ibv_counters *counters; };

// ibv_flow_spec is any of them.
struct ibv_flow_spec {
	union {
		struct { VB_SPEC; } hdr;
		struct ibv_flow_spec_eth eth;
		struct ibv_flow_spec_ipv4 ipv4;
		struct ibv_flow_spec_ipv4_ext ipv4_ext;
		struct ibv_flow_spec_ipv6 ipv6;
		struct ibv_flow_spec_tcp_udp tcp_udp;
		struct ibv_flow_spec_esp esp;
		struct ibv_flow_spec_tunnel tunnel;
		struct ibv_flow_spec_gre gre;
		struct ibv_flow_spec_mpls mpls;
		struct ibv_flow_spec_action_tag flow_tag;
		struct ibv_flow_spec_action_drop drop;
		struct ibv_flow_spec_action_handle handle;
		struct ibv_flow_spec_counter_action flow_count;
	};
};

struct ibv_flow {
	uint32_t comp_mask;
	struct ibv_context *context;
	uint32_t handle;
};

struct ibv_flow_action { struct ibv_context *context; };

enum ibv_flow_action_esp_mask { IBV_FLOW_ACTION_ESP_MASK_ESN = VB_BIT(0) };

// The kernel's structures of ESP actions; libibverbs names them without ib_uverbs_.
#define ibv_flow_action_esp_keymat ib_uverbs_flow_action_esp_keymat
#define ibv_flow_action_esp_keymat_aes_gcm ib_uverbs_flow_action_esp_keymat_aes_gcm
#define ibv_flow_action_esp_replay ib_uverbs_flow_action_esp_replay
#define ibv_flow_action_esp_replay_bmp ib_uverbs_flow_action_esp_replay_bmp
#define ibv_flow_action_esp_encap ib_uverbs_flow_action_esp_encap
#define ibv_flow_action_esp ib_uverbs_flow_action_esp

enum ibv_flow_action_esp_keymat { IB_UVERBS_FLOW_ACTION_ESP_KEYMAT_AES_GCM = 0 };
enum ibv_flow_action_esp_replay { IB_UVERBS_FLOW_ACTION_ESP_REPLAY_NONE = 0, IB_UVERBS_FLOW_ACTION_ESP_REPLAY_BMP = 1 };

struct ibv_flow_action_esp_keymat_aes_gcm {
	uint64_t iv;
	uint32_t iv_algo, salt, icv_len, key_len, aes_key[8];
};

struct ibv_flow_action_esp_replay_bmp { uint32_t size; };

struct ibv_flow_action_esp_encap {
	void *val_ptr;
	struct ibv_flow_action_esp_encap *next_ptr;
	uint16_t len, type;
};

struct ibv_flow_action_esp {
	uint32_t spi, seq, tfc_pad, flags;
	uint64_t hard_limit_pkts;
};

struct ibv_flow_action_esp_attr {
	struct ibv_flow_action_esp *esp_attr;
	enum ibv_flow_action_esp_keymat keymat_proto;
	uint16_t keymat_len;
	void *keymat_ptr;
	enum ibv_flow_action_esp_replay replay_proto;
	uint16_t replay_len;
	void *replay_ptr;
	struct ibv_flow_action_esp_encap *esp_encap;
	uint32_t comp_mask, esn;
};

// Tag matching: the headers that begin a message. Big endian.

enum ibv_tmh_op { IBV_TMH_NO_TAG = 0, IBV_TMH_RNDV = 1, IBV_TMH_FIN = 2, IBV_TMH_EAGER = 3 };

struct ibv_tmh {
	uint8_t opcode, reserved[3];
	uint32_t app_ctx;
	uint64_t tag;
};

struct ibv_rvh {
	uint64_t va;
	uint32_t rkey, len;
};

#endif
