// The structures of the libibumad ABI. Members with "BE" are big endian.
#ifndef VERBENA_UMAD_H
#define VERBENA_UMAD_H

#include <stddef.h>
#include <stdint.h>

enum { UMAD_CA_NAME_LEN = 20, UMAD_CA_MAX_PORTS = 10 };

union umad_gid {
	uint8_t raw[16];
	uint16_t raw_be16[8];
	struct { uint64_t subnet_prefix, interface_id; } global;
} __attribute__((aligned(4), packed)); // members BE

typedef struct ib_mad_addr {
	uint32_t qpn, qkey; // BE
	uint16_t lid;	    // BE
	uint8_t sl, path_bits, grh_present, gid_index, hop_limit, traffic_class;
	union { uint8_t gid[16]; union umad_gid ib_gid; };
	uint32_t flow_label; // BE
	uint16_t pkey_index;
	uint8_t reserved[6];
} ib_mad_addr_t;

typedef struct ib_user_mad {
	uint32_t agent_id, status, timeout_ms, retries, length;
	ib_mad_addr_t addr;
	uint8_t data[];
} ib_user_mad_t;

typedef struct umad_port {
	char ca_name[UMAD_CA_NAME_LEN];
	int portnum;
	unsigned base_lid, lmc, sm_lid, sm_sl, state, phys_state, rate;
	uint32_t capmask;		// BE
	uint64_t gid_prefix, port_guid; // BE
	unsigned pkeys_size;
	uint16_t *pkeys;
	char link_layer[UMAD_CA_NAME_LEN];
} umad_port_t;

typedef struct umad_ca {
	char ca_name[UMAD_CA_NAME_LEN];
	unsigned node_type;
	int numports;
	char fw_ver[20], ca_type[40], hw_ver[20];
	uint64_t node_guid, system_guid; // BE
	umad_port_t *ports[UMAD_CA_MAX_PORTS];
} umad_ca_t;

struct umad_device_node {
	struct umad_device_node *next;
	const char *ca_name;
};

struct umad_reg_attr {
	uint8_t mgmt_class, mgmt_class_version;
	uint32_t flags;
	uint64_t method_mask[2];
	uint32_t oui;
	uint8_t rmpp_version;
};

int umad_init(void);
int umad_done(void);
int umad_get_cas_names(char names[][UMAD_CA_NAME_LEN], int max);
int umad_get_ca_portguids(const char *name, uint64_t *guids, int max); // BE
int umad_get_ca(const char *name, umad_ca_t *);
int umad_release_ca(umad_ca_t *);
int umad_get_port(const char *name, int portnum, umad_port_t *);
int umad_release_port(umad_port_t *);
int umad_get_issm_path(const char *name, int portnum, char path[], int max);
int umad_open_port(const char *name, int portnum);
int umad_close_port(int port);
void *umad_get_mad(void *umad);
size_t umad_size(void);
int umad_status(void *umad);
ib_mad_addr_t *umad_get_mad_addr(void *umad);
int umad_set_grh(void *umad, void *addr);
int umad_set_addr_net(void *umad, uint16_t lid, uint32_t qpn, int sl, uint32_t qkey); // BE
int umad_set_addr(void *umad, int lid, int qpn, int sl, int qkey);
int umad_set_pkey(void *umad, int index);
int umad_get_pkey(void *umad);
int umad_send(int port, int agent, void *umad, int length, int timeout_ms, int retries);
int umad_recv(int port, void *umad, int *length, int timeout_ms);
int umad_poll(int port, int timeout_ms);
int umad_get_fd(int port);
int umad_register(int port, int mgmt_class, int version, uint8_t rmpp, long mask[16 / sizeof(long)]);
int umad_register_oui(int port, int mgmt_class, uint8_t rmpp, uint8_t oui[3], long mask[16 / sizeof(long)]);
int umad_register2(int port, struct umad_reg_attr *, uint32_t *agent);
int umad_unregister(int port, int agent);
int umad_sort_ca_device_list(struct umad_device_node **, size_t);
struct umad_device_node *umad_get_ca_device_list(void);
void umad_free_ca_device_list(struct umad_device_node *);
int umad_debug(int level);
void umad_addr_dump(ib_mad_addr_t *);
void umad_dump(void *umad);
const char *umad_class_str(uint8_t mgmt_class);
const char *umad_method_str(uint8_t mgmt_class, uint8_t method);
const char *umad_common_mad_status_str(uint16_t status); // BE
const char *umad_sa_mad_status_str(uint16_t status);	 // BE
const char *umad_attribute_str(uint8_t mgmt_class, uint16_t attribute); // BE

#endif
