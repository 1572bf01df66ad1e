// Names of values, and rates.
#include "lib.h"

#define COUNT(list) (sizeof(list) / sizeof *(list))

static const char *name_of(const char *const *list, size_t count, long i)
{
	return i >= 0 && (size_t)i < count && list[i] ? list[i] : "unknown";
}

const char *ibv_node_type_str(enum ibv_node_type t)
{
	static const char *const list[] = {[IBV_NODE_CA] = "InfiniBand channel adapter", [IBV_NODE_SWITCH] = "InfiniBand switch",
					   [IBV_NODE_ROUTER] = "InfiniBand router", [IBV_NODE_RNIC] = "iWARP NIC",
					   [IBV_NODE_USNIC] = "usNIC", [IBV_NODE_USNIC_UDP] = "usNIC UDP",
					   [IBV_NODE_UNSPECIFIED] = "unspecified"};

	return name_of(list, COUNT(list), t);
}

const char *ibv_port_state_str(enum ibv_port_state s)
{
	static const char *const list[] = {"no state change (NOP)", "down", "init", "armed", "active", "active defer"};

	return name_of(list, COUNT(list), s);
}

const char *ibv_event_type_str(enum ibv_event_type t)
{
	static const char *const list[] = {
		"CQ error", "local work queue catastrophic error", "invalid request local work queue error",
		"local access violation work queue error", "communication established", "send queue drained",
		"path migrated", "path migration request error", "local catastrophic error", "port active", "port error",
		"LID change", "P_Key change", "SM change", "SRQ catastrophic error", "SRQ limit reached",
		"last WQE reached", "client reregistration", "GID table change", "WQ fatal", "device speed change"};

	return name_of(list, COUNT(list), t);
}

const char *ibv_wc_status_str(enum ibv_wc_status s)
{
	static const char *const list[] = {
		"success", "local length error", "local QP operation error", "local EE context operation error",
		"local protection error", "Work Request Flushed Error", "memory management operation error",
		"bad response error", "local access error", "remote invalid request error", "remote access error",
		"remote operation error", "transport retry counter exceeded", "RNR retry counter exceeded",
		"local RDD violation error", "remote invalid RD request", "aborted error", "invalid EE context number",
		"invalid EE context state", "fatal error", "response timeout error", "general error", "TM error",
		"TM software rendezvous"};

	return name_of(list, COUNT(list), s);
}

const char *ibv_wr_opcode_str(enum ibv_wr_opcode op)
{
	static const char *const list[] = {
		"rdma_write", "rdma_write_with_imm", "send", "send_with_imm", "rdma_read", "atomic_cmp_and_swp",
		"atomic_fetch_and_add", "local_inv", "bind_mw", "send_with_inv", "tso", "driver1", NULL, NULL, "flush",
		"atomic_write"};

	return name_of(list, COUNT(list), op);
}

// rates has for each value the multiple of 2.5 Gb/s, which is -1 if there is none, and Mb/s.
static const struct { enum ibv_rate rate; int mult, mbps; } rates[] = {
	{IBV_RATE_2_5_GBPS, 1, 2500},	{IBV_RATE_5_GBPS, 2, 5000},	  {IBV_RATE_10_GBPS, 4, 10000},
	{IBV_RATE_20_GBPS, 8, 20000},	{IBV_RATE_30_GBPS, 12, 30000},	  {IBV_RATE_40_GBPS, 16, 40000},
	{IBV_RATE_60_GBPS, 24, 60000},	{IBV_RATE_80_GBPS, 32, 80000},	  {IBV_RATE_120_GBPS, 48, 120000},
	{IBV_RATE_14_GBPS, -1, 14062},	{IBV_RATE_56_GBPS, -1, 56250},	  {IBV_RATE_112_GBPS, -1, 112500},
	{IBV_RATE_168_GBPS, -1, 168750}, {IBV_RATE_25_GBPS, -1, 25781},	  {IBV_RATE_100_GBPS, -1, 103125},
	{IBV_RATE_200_GBPS, -1, 206250}, {IBV_RATE_300_GBPS, -1, 309375}, {IBV_RATE_28_GBPS, 11, 28125},
	{IBV_RATE_50_GBPS, 20, 53125},	{IBV_RATE_400_GBPS, 160, 425000}, {IBV_RATE_600_GBPS, 240, 637500},
	{IBV_RATE_800_GBPS, 320, 850000}, {IBV_RATE_1200_GBPS, 480, 1275000},
};

int ibv_rate_to_mult(enum ibv_rate rate)
{
	for (size_t i = 0; i < COUNT(rates); i++)
		if (rates[i].rate == rate)
			return rates[i].mult;
	return -1;
}

enum ibv_rate mult_to_ibv_rate(int mult)
{
	for (size_t i = 0; i < COUNT(rates); i++)
		if (rates[i].mult == mult && mult > 0)
			return rates[i].rate;
	return IBV_RATE_MAX;
}

int ibv_rate_to_mbps(enum ibv_rate rate)
{
	for (size_t i = 0; i < COUNT(rates); i++)
		if (rates[i].rate == rate)
			return rates[i].mbps;
	return -1;
}

enum ibv_rate mbps_to_ibv_rate(int mbps)
{
	for (size_t i = 0; i < COUNT(rates); i++)
		if (rates[i].mbps == mbps)
			return rates[i].rate;
	return IBV_RATE_MAX;
}
