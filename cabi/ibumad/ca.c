// Devices and ports. Functions return 0, or a negated errno.
#include <stdio.h>

#include "lib.h"

int umad_init(void) { return 0; }
int umad_done(void) { return 0; }

int umad_get_cas_names(char names[][UMAD_CA_NAME_LEN], int max)
{
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(NULL);

	for (int i = 0; list && list[i] && n < max; i++)
		if (strlen(ibv_get_device_name(list[i])) < UMAD_CA_NAME_LEN) // others cannot be named here
			strcpy(names[n++], ibv_get_device_name(list[i]));
	if (list)
		ibv_free_device_list(list);
	return n;
}

const char *um_name(const char *name, char room[UMAD_CA_NAME_LEN])
{
	if (name && *name)
		return name;
	return umad_get_cas_names((char(*)[UMAD_CA_NAME_LEN])room, 1) == 1 ? room : NULL;
}

// open_named opens a device. It returns NULL with errno set on failure.
static struct ibv_context *open_named(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *c = NULL;
	int before = errno, e = ENODEV;

	for (int i = 0; name && list && list[i]; i++) {
		if (!strcmp(ibv_get_device_name(list[i]), name)) {
			c = ibv_open_device(list[i]);
			e = errno;
		}
	}
	if (list)
		ibv_free_device_list(list);
	errno = c ? before : e;
	return c;
}

// gigabits returns the rate of a port in Gbit/s, rounded down.
static unsigned gigabits(const struct ibv_port_attr *p)
{
	static const struct { int code; unsigned tenths; } lanes[] = {
		{1, 25}, {2, 50}, {4, 100}, {8, 100}, {16, 140}, {32, 250}, {64, 500}, {128, 1000},
	};
	unsigned width = p->active_width == 16 ? 2 : p->active_width == 8 ? 12 : p->active_width == 4 ? 8
		       : p->active_width == 2					   ? 4
										   : 1;

	for (size_t i = 0; i < sizeof lanes / sizeof *lanes; i++)
		if (lanes[i].code == p->active_speed)
			return width * lanes[i].tenths / 10;
	return 0;
}

// keys reads the table of P_Keys. It returns 0 or an errno.
static int keys(struct ibv_context *c, const struct ibv_port_attr *a, umad_port_t *p)
{
	p->pkeys = calloc(a->pkey_tbl_len + 1, sizeof *p->pkeys);
	if (!p->pkeys)
		return ENOMEM;
	for (int i = 0; i < a->pkey_tbl_len; i++) {
		uint16_t key;
		if (ibv_query_pkey(c, p->portnum, i, &key))
			return errno;
		p->pkeys[i] = be16toh(key);
	}
	p->pkeys_size = a->pkey_tbl_len;
	return 0;
}

// fill fills in a port. It returns 0 or an errno.
static int fill(struct ibv_context *c, const char *name, int portnum, umad_port_t *p)
{
	enum { ETHERNET = 2 };
	struct ibv_port_attr a = {};
	union ibv_gid gid = {};
	int e = ibv_query_port(c, portnum, &a);

	memset(p, 0, sizeof *p);
	if (e)
		return e;
	snprintf(p->ca_name, sizeof p->ca_name, "%s", name);
	p->portnum = portnum;
	p->base_lid = a.lid;
	p->lmc = a.lmc;
	p->sm_lid = a.sm_lid;
	p->sm_sl = a.sm_sl;
	p->state = a.state;
	p->phys_state = a.phys_state;
	p->rate = gigabits(&a);
	p->capmask = htobe32(a.port_cap_flags);
	snprintf(p->link_layer, sizeof p->link_layer, a.link_layer == ETHERNET ? "Ethernet" : "InfiniBand");
	if (!ibv_query_gid(c, portnum, 0, &gid)) {
		p->gid_prefix = gid.global.subnet_prefix;
		p->port_guid = gid.global.interface_id;
	}
	return keys(c, &a, p);
}

int umad_get_ca(const char *name, umad_ca_t *ca)
{
	char room[UMAD_CA_NAME_LEN];
	struct ibv_device_attr a;
	struct ibv_context *c = open_named(name = um_name(name, room));

	if (!c)
		return -errno;
	memset(ca, 0, sizeof *ca);
	int e = ibv_query_device(c, &a);
	if (!e) {
		snprintf(ca->ca_name, sizeof ca->ca_name, "%s", name);
		snprintf(ca->fw_ver, sizeof ca->fw_ver, "%.19s", a.fw_ver);
		snprintf(ca->hw_ver, sizeof ca->hw_ver, "%x", a.hw_ver);
		snprintf(ca->ca_type, sizeof ca->ca_type, "verbena");
		ca->node_type = c->device->node_type;
		ca->node_guid = a.node_guid;
		ca->system_guid = a.sys_image_guid;
		ca->numports = a.phys_port_cnt < UMAD_CA_MAX_PORTS ? a.phys_port_cnt : UMAD_CA_MAX_PORTS - 1;
	}
	for (int i = 1; !e && i <= ca->numports; i++) {
		ca->ports[i] = calloc(1, sizeof *ca->ports[i]);
		e = ca->ports[i] ? fill(c, name, i, ca->ports[i]) : ENOMEM;
	}
	ibv_close_device(c);
	if (e)
		umad_release_ca(ca);
	return -e;
}

int umad_release_ca(umad_ca_t *ca)
{
	if (!ca)
		return -ENODEV;
	for (int i = 0; i < UMAD_CA_MAX_PORTS; i++) {
		if (ca->ports[i])
			umad_release_port(ca->ports[i]);
		free(ca->ports[i]);
		ca->ports[i] = NULL;
	}
	return 0;
}

// first_active returns the number of the first active port, or 1.
static int first_active(struct ibv_context *c)
{
	struct ibv_port_attr a;

	for (int n = 1; n < UMAD_CA_MAX_PORTS && !ibv_query_port(c, n, &a); n++)
		if (a.state == IBV_PORT_ACTIVE)
			return n;
	return 1;
}

int umad_get_port(const char *name, int portnum, umad_port_t *p)
{
	char room[UMAD_CA_NAME_LEN];
	struct ibv_context *c = open_named(name = um_name(name, room));

	if (!c)
		return -errno;
	int e = fill(c, name, portnum ? portnum : first_active(c), p);
	ibv_close_device(c);
	if (e)
		umad_release_port(p);
	return -e;
}

int umad_release_port(umad_port_t *p)
{
	if (!p)
		return -ENODEV;
	free(p->pkeys);
	p->pkeys = NULL;
	p->pkeys_size = 0;
	return 0;
}

int umad_get_ca_portguids(const char *name, uint64_t *guids, int max)
{
	umad_ca_t ca;
	int e = umad_get_ca(name, &ca);

	if (e)
		return e;
	int n = ca.numports + 1;
	for (int i = 0; guids && i < n && i < max; i++)
		guids[i] = ca.ports[i] ? ca.ports[i]->port_guid : 0;
	umad_release_ca(&ca);
	return guids && n > max ? -ENOMEM : n;
}

// No device has a subnet manager.
int umad_get_issm_path(const char *name, int portnum, char path[], int max) { return -ENOENT; }

struct umad_device_node *umad_get_ca_device_list(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct umad_device_node *first = NULL, **end = &first;

	for (int i = 0; list && list[i]; i++) {
		const char *name = ibv_get_device_name(list[i]);
		struct umad_device_node *n = calloc(1, sizeof *n + strlen(name) + 1);
		if (!n)
			break;
		n->ca_name = strcpy((char *)(n + 1), name);
		*end = n;
		end = &n->next;
	}
	if (list)
		ibv_free_device_list(list);
	return first;
}

void umad_free_ca_device_list(struct umad_device_node *n)
{
	while (n) {
		struct umad_device_node *next = n->next;
		free(n);
		n = next;
	}
}

int umad_sort_ca_device_list(struct umad_device_node **head, size_t size)
{
	struct umad_device_node *sorted = NULL, *next;

	if (!head)
		return EINVAL;
	for (struct umad_device_node *n = *head; n; n = next) {
		struct umad_device_node **at = &sorted;
		next = n->next;
		while (*at && strcmp((*at)->ca_name, n->ca_name) <= 0)
			at = &(*at)->next;
		n->next = *at;
		*at = n;
	}
	*head = sorted;
	return 0;
}
