// Buffers of datagrams, and the names of their fields.
#include <arpa/inet.h>
#include <stdio.h>

#include "lib.h"

static int level;

size_t umad_size(void) { return sizeof(struct ib_user_mad); }
void *umad_get_mad(void *umad) { return ((struct ib_user_mad *)umad)->data; }
ib_mad_addr_t *umad_get_mad_addr(void *umad) { return &((struct ib_user_mad *)umad)->addr; }
int umad_status(void *umad) { return ((struct ib_user_mad *)umad)->status; }
int umad_get_pkey(void *umad) { return ((struct ib_user_mad *)umad)->addr.pkey_index; }

int umad_set_pkey(void *umad, int index)
{
	((struct ib_user_mad *)umad)->addr.pkey_index = index;
	return 0;
}

int umad_set_addr_net(void *umad, uint16_t lid, uint32_t qpn, int sl, uint32_t qkey)
{
	ib_mad_addr_t *a = umad_get_mad_addr(umad);

	a->lid = lid;
	a->qpn = qpn;
	a->sl = sl;
	a->qkey = qkey;
	return 0;
}

int umad_set_addr(void *umad, int lid, int qpn, int sl, int qkey)
{
	return umad_set_addr_net(umad, htons(lid), htonl(qpn), sl, htonl(qkey));
}

int umad_set_grh(void *umad, void *addr)
{
	ib_mad_addr_t *a = umad_get_mad_addr(umad);
	const ib_mad_addr_t *from = addr;

	a->grh_present = from != NULL;
	if (!from)
		return 0;
	memcpy(a->gid, from->gid, sizeof a->gid);
	a->flow_label = htonl(from->flow_label);
	a->hop_limit = from->hop_limit;
	a->traffic_class = from->traffic_class;
	a->gid_index = from->gid_index;
	return 0;
}

int umad_debug(int to)
{
	if (to >= 0)
		level = to;
	return level;
}

void umad_addr_dump(ib_mad_addr_t *a)
{
	char gid[INET6_ADDRSTRLEN];

	printf("qpn %u qkey 0x%x lid 0x%x sl %u\n", ntohl(a->qpn), ntohl(a->qkey), ntohs(a->lid), a->sl);
	if (a->grh_present)
		printf("gid %s gid_index %u hop_limit %u traffic_class %u flow_label 0x%x\n",
		       inet_ntop(AF_INET6, a->gid, gid, sizeof gid), a->gid_index, a->hop_limit, a->traffic_class,
		       ntohl(a->flow_label));
}

void umad_dump(void *umad)
{
	struct ib_user_mad *u = umad;

	printf("agent %u status %u timeout %u ms\n", u->agent_id, u->status, u->timeout_ms);
	umad_addr_dump(&u->addr);
}

struct named { unsigned int value; const char *name; };

// find returns the name of a value, or other.
static const char *find(const struct named *list, size_t n, unsigned int value, const char *other)
{
	for (size_t i = 0; i < n; i++)
		if (list[i].value == value)
			return list[i].name;
	return other;
}

#define FIND(list, value, other) find(list, sizeof list / sizeof *list, value, other)

const char *umad_class_str(uint8_t mgmt_class)
{
	static const struct named classes[] = {
		{0x01, "Subn"}, {0x81, "Subn"}, {0x03, "SubnAdm"}, {0x04, "Perf"}, {0x05, "BM"}, {0x06, "DevMgt"},
		{0x07, "ComMgt"}, {0x08, "SNMP"}, {0x10, "DevAdm"}, {0x11, "BootMgt"}, {0x12, "BIS"},
		{0x21, "CongestionManagment"}, // spelled so in libibumad
	};

	if ((mgmt_class >= 0x09 && mgmt_class <= 0x0f) || (mgmt_class >= 0x30 && mgmt_class <= 0x4f))
		return "Vendor";
	return FIND(classes, mgmt_class, mgmt_class >= 0x10 && mgmt_class <= 0x2f ? "Application" : "<unknown>");
}

const char *umad_method_str(uint8_t mgmt_class, uint8_t method)
{
	static const struct named common[] = {
		{0x01, "Get"}, {0x02, "Set"}, {0x81, "GetResp"}, {0x03, "Send"}, {0x05, "Trap"}, {0x06, "Report"},
		{0x86, "ReportResp"}, {0x07, "TrapRepress"},
	};
	static const struct named sa[] = {
		{0x12, "GetTable"}, {0x92, "GetTableResp"}, {0x13, "GetTraceTable"},
		{0x14, "GetMulti"}, {0x94, "GetMultiResp"}, {0x15, "Delete"}, {0x95, "DeleteResp"},
	};
	const char *name = FIND(common, method, NULL);

	if (!name && mgmt_class == 0x03)
		name = FIND(sa, method, NULL);
	return name ? name : "<unknown"; // spelled so in libibumad
}

const char *umad_common_mad_status_str(uint16_t status)
{
	static const struct named invalid[] = {
		{0x04, "Bad Version"}, {0x08, "Method not supported"}, {0x0c, "Method/Attribute combo not supported"},
		{0x1c, "Invalid attribute/modifier field"},
	};
	unsigned int s = ntohs(status);

	if (s & 0x01)
		return "Busy";
	if (s & 0x02)
		return "Redirection required";
	return FIND(invalid, s & 0x1c, "Success"); // libibumad's word for reserved codes too
}

const char *umad_sa_mad_status_str(uint16_t status)
{
	static const struct named sa[] = {
		{0, "Success"}, {1, "No Resources"}, {2, "Request Invalid"}, {3, "No Records"}, {4, "Too Many Records"},
		{5, "Invalid GID"}, {6, "Insufficient Components"}, {7, "Request Denied"}, {8, "Priority Suggested"},
	};

	return FIND(sa, ntohs(status) >> 8, "Undefined Error");
}

const char *umad_attribute_str(uint8_t mgmt_class, uint16_t attribute)
{
	static const struct named common[] = {
		{0x0001, "Class Port Info"}, {0x0002, "Notice"}, {0x0003, "Inform Info"},
	};
	static const struct named sm[] = {
		{0x0010, "NodeDescription"}, {0x0011, "NodeInfo"}, {0x0012, "SwitchInfo"}, {0x0014, "GUIDInfo"},
		{0x0015, "PortInfo"}, {0x0016, "P_KeyTable"}, {0x0017, "SLtoVLMappingTable"}, {0x0018, "VLArbitrationTable"},
		{0x0019, "LinearForwardingTable"}, {0x001a, "RandomForwardingTable"}, {0x001b, "MulticastForwardingTable"},
		{0x001c, "LinkSpeedWidthPairsTable"}, {0x001d, "VendorSpecificMadsTable"}, {0x001e, "HierarchyInfo"},
		{0x0020, "SMInfo"}, {0x0030, "VendorDiag"}, {0x0031, "LedInfo"}, {0x0032, "CableInfo"},
		{0x0033, "PortInfoExtended"},
	};
	static const struct named sa[] = {
		{0x0011, "NodeRecord"}, {0x0012, "PortInfoRecord"}, {0x0013, "SLtoVLMappingTableRecord"},
		{0x0014, "SwitchInfoRecord"}, {0x0015, "LinearForwardingTableRecord"}, {0x0016, "RandomForwardingTableRecord"},
		{0x0017, "MulticastForwardingTableRecord"}, {0x0018, "SMInfoRecord"},
		{0x0019, "LinkSpeedWidthPairsTableRecord"}, {0x0020, "LinkRecord"}, {0x0030, "GuidInfoRecord"},
		{0x0031, "ServiceRecord"}, {0x0033, "P_KeyTableRecord"}, {0x0035, "PathRecord"},
		{0x0036, "VLArbitrationTableRecord"}, {0x0038, "MCMemberRecord"}, {0x0039, "TraceRecord"},
		{0x003a, "MultiPathRecord"}, {0x003b, "ServiceAssociationRecord"}, {0x003c, "HierarchyInfoRecord"},
		{0x003d, "CableInfoRecord"}, {0x003e, "PortInfoExtendedRecord"}, {0x00f3, "InformInfoRecord"},
	};
	static const struct named cm[] = {
		{0x0010, "ConnectRequest"}, {0x0011, "MsgRcptAck"}, {0x0012, "ConnectReject"}, {0x0013, "ConnectReply"},
		{0x0014, "ReadyToUse"}, {0x0015, "DisconnectRequest"}, {0x0016, "DisconnectReply"},
		{0x0017, "ServiceIDResReq"}, {0x0018, "ServiceIDResReqResp"}, {0x0019, "LoadAlternatePath"},
		{0x001a, "AlternatePathResponse"}, {0x001b, "SuggestAlternatePath"}, {0x001c, "SuggestPathResponse"},
	};
	unsigned int a = ntohs(attribute);
	const char *name = FIND(common, a, "<unknown>");

	switch (mgmt_class) {
	case 0x01:
	case 0x81:
		return FIND(sm, a, name);
	case 0x03:
		return FIND(sa, a, name);
	case 0x07:
		return FIND(cm, a, name);
	}
	return name;
}
