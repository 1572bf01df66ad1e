// Queries of devices and ports.
#include <arpa/inet.h>

#include "lib.h"

static void copy_out(void *to, size_t room, const void *from, size_t length)
{
	memset(to, 0, room);
	memcpy(to, from, length < room ? length : room);
}

int vb_query_device_ex(struct ibv_context *x, const struct ibv_query_device_ex_input *in, struct ibv_device_attr_ex *a,
		       size_t length)
{
	struct vb_context *c = VB_CONTEXT(x);
	struct ibv_device_attr_ex full = {};

	if (length < sizeof full.orig_attr || (in && in->comp_mask))
		return EINVAL;
	int e = VB_ENTER(c);

	if (!e)
		e = vb_engine->query_device(c->h, &full);
	if (!e)
		copy_out(a, length, &full, sizeof full);
	return vb_told(e);
}

int ibv_query_device(struct ibv_context *x, struct ibv_device_attr *a)
{
	return vb_query_device_ex(x, NULL, (struct ibv_device_attr_ex *)a, sizeof *a);
}

int vb_query_port(struct ibv_context *x, uint8_t port, struct ibv_port_attr *a, size_t length)
{
	struct vb_context *c = VB_CONTEXT(x);
	struct ibv_port_attr full = {};
	int e = VB_ENTER(c);

	if (!e)
		e = vb_engine->query_port(c->h, port, &full);

	if (!e)
		copy_out(a, length, &full, sizeof full);
	return vb_told(e);
}

int ibv_query_port(struct ibv_context *x, uint8_t port, struct ibv_port_attr *a)
{
	return vb_query_port(x, port, a, VB_PORT_ATTR_COMPAT);
}

int ibv_query_port_speed(struct ibv_context *x, uint32_t port, uint64_t *speed)
{
	static const struct { uint32_t code; int speed; } lanes[] = { // in 100 Mb/s
		{1, 25}, {2, 50}, {4, 100}, {8, 100}, {16, 140}, {32, 250}, {64, 500}, {128, 1000}, {256, 2000}};
	static const struct { uint8_t code; int count; } widths[] = {{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}};
	struct ibv_port_attr a;
	int e = port > 255 ? EINVAL : vb_query_port(x, port, &a, sizeof a);

	if (e)
		return e;
	uint32_t code = a.active_speed_ex ? a.active_speed_ex : a.active_speed;
	*speed = 0;
	for (size_t i = 0; i < sizeof lanes / sizeof *lanes; i++)
		for (size_t j = 0; j < sizeof widths / sizeof *widths; j++)
			if (lanes[i].code == code && widths[j].code == a.active_width)
				*speed = (uint64_t)lanes[i].speed * widths[j].count;
	return 0;
}

int vb_query_rt_values(struct ibv_context *x, struct ibv_values_ex *v)
{
	struct vb_context *c = VB_CONTEXT(x);
	uint64_t clock = 0;

	if (v->comp_mask & ~IBV_VALUES_MASK_RAW_CLOCK)
		return EINVAL;
	uint32_t wanted = v->comp_mask;
	int e = VB_ENTER(c);

	if (!e)
		e = vb_engine->query_rt_values(c->h, &clock);
	v->comp_mask = 0;
	if (!e && wanted) {
		v->comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
		v->raw_clock.tv_sec = 0; // as adapters do: the member counts ticks
		v->raw_clock.tv_nsec = clock;
	}
	return e;
}

static int entry_of(struct ibv_context *x, uint32_t port, uint32_t index, struct ibv_gid_entry *entry)
{
	struct vb_context *c = VB_CONTEXT(x);

	memset(entry, 0, sizeof *entry);
	int e = VB_ENTER(c);
	return e ? e : vb_engine->query_gid(c->h, port, index, entry);
}

int ibv_query_gid(struct ibv_context *x, uint8_t port, int index, union ibv_gid *gid)
{
	struct ibv_gid_entry entry;
	int e = index < 0 ? EINVAL : entry_of(x, port, index, &entry);

	if (e && e != ENODATA)
		VB_FAIL(e, -1);
	*gid = entry.gid; // zero for an empty entry
	return 0;
}

int ibv_query_gid_type(struct ibv_context *x, uint8_t port, unsigned int index, enum verbena_gid_type_sysfs *type)
{
	struct ibv_gid_entry entry;
	int e = entry_of(x, port, index, &entry);

	if (e && e != ENODATA)
		VB_FAIL(e, -1);
	*type = entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? VB_GID_TYPE_SYSFS_ROCE_V2 : VB_GID_TYPE_SYSFS_IB_ROCE_V1;
	return 0;
}

int _ibv_query_gid_ex(struct ibv_context *x, uint32_t port, uint32_t index, struct ibv_gid_entry *to, uint32_t flags,
		      size_t length)
{
	struct ibv_gid_entry entry;

	if (flags)
		return EOPNOTSUPP;
	int e = entry_of(x, port, index, &entry);
	if (!e)
		copy_out(to, length, &entry, sizeof entry);
	return e;
}

ssize_t _ibv_query_gid_table(struct ibv_context *x, struct ibv_gid_entry *to, size_t count, uint32_t flags, size_t length)
{
	struct vb_context *c = VB_CONTEXT(x);

	if (flags)
		return -EOPNOTSUPP;
	int e = VB_ENTER(c);
	if (e)
		return -e;
	if (length < sizeof *to || (count && !to))
		return -EINVAL;
	if (length == sizeof *to)
		return vb_engine->query_gid_table(c->h, to, count);
	struct ibv_gid_entry *list = calloc(count ? count : 1, sizeof *list);
	if (!list)
		return -ENOMEM;
	int n = vb_engine->query_gid_table(c->h, list, count);
	for (int i = 0; i < n; i++)
		copy_out((char *)to + i * length, length, &list[i], sizeof *list);
	free(list);
	return n;
}

int ibv_query_pkey(struct ibv_context *x, uint8_t port, int index, uint16_t *pkey)
{
	struct vb_context *c = VB_CONTEXT(x);
	int e = VB_ENTER(c);

	if (!e)
		e = vb_engine->query_pkey(c->h, port, index, pkey);

	if (e)
		VB_FAIL(e, -1);
	return 0;
}

int ibv_get_pkey_index(struct ibv_context *x, uint8_t port, uint16_t pkey)
{
	uint16_t at;

	for (int i = 0; !ibv_query_pkey(x, port, i, &at); i++)
		if (at == pkey)
			return i;
	return -1;
}
