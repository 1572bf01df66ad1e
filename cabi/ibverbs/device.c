// Devices and contexts.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "lib.h"

enum { MAX_DEVICES = 256 };

// Devices stay in memory once they were listed: programs keep pointers to them.
static pthread_mutex_t devices_mu = PTHREAD_MUTEX_INITIALIZER;
static struct vb_device *devices;
static pthread_mutex_t revive_mu = PTHREAD_MUTEX_INITIALIZER;

void vb_hold_devices(int hold)
{
	int (*f)(pthread_mutex_t *) = hold ? pthread_mutex_lock : pthread_mutex_unlock;

	f(&revive_mu);
	f(&devices_mu);
}

// device_of returns the device with the name of info. devices_mu is held.
static struct vb_device *device_of(const struct vrb_device *info)
{
	struct vb_device **at = &devices, *d;
	int index = 0;

	for (; *at; at = &(*at)->next, index++)
		if (!strcmp((*at)->v.device.name, info->name))
			break;
	d = *at;
	if (!d) {
		d = calloc(1, sizeof *d);
		if (!d)
			return NULL;
		d->index = index;
		memcpy(d->v.device.name, info->name, IBV_SYSFS_NAME_MAX);
		snprintf(d->v.device.dev_name, IBV_SYSFS_NAME_MAX, "uverbs%d", index);
		snprintf(d->v.device.dev_path, IBV_SYSFS_PATH_MAX, "/sys/class/infiniband_verbs/uverbs%d", index);
		snprintf(d->v.device.ibdev_path, IBV_SYSFS_PATH_MAX, "/sys/class/infiniband/%s", info->name);
		*at = d;
	}
	d->info = *info;
	d->v.device.node_type = info->node_type;
	d->v.device.transport_type = info->transport_type;
	return d;
}

struct ibv_device **ibv_get_device_list(int *count)
{
	struct vrb_device *info = calloc(MAX_DEVICES, sizeof *info);
	struct ibv_device **list = NULL;
	int e = vb_load(), n = 0;

	if (count)
		*count = 0;
	if (!info)
		VB_FAIL(ENOMEM, NULL);
	if (!e && (n = vb_engine->devices(info, MAX_DEVICES)) < 0)
		e = -n;
	if (!e && !(list = calloc(n + 1, sizeof *list)))
		e = ENOMEM;
	pthread_mutex_lock(&devices_mu);
	for (int i = 0; !e && i < n; i++) {
		list[i] = (struct ibv_device *)device_of(&info[i]);
		if (!list[i])
			e = ENOMEM;
	}
	pthread_mutex_unlock(&devices_mu);
	free(info);
	if (e) {
		free(list);
		VB_FAIL(e, NULL);
	}
	if (count)
		*count = n;
	return list;
}

void ibv_free_device_list(struct ibv_device **list) { free(list); }
const char *ibv_get_device_name(struct ibv_device *d) { return d->name; }
int ibv_get_device_index(struct ibv_device *d) { return ((struct vb_device *)d)->index; }

uint64_t ibv_get_device_guid(struct ibv_device *d)
{
	uint64_t guid;

	memcpy(&guid, ((struct vb_device *)d)->info.guid, sizeof guid);
	return guid;
}

static struct vb_context *new_context(void)
{
	struct vb_context *c = calloc(1, sizeof *c);

	if (!c)
		VB_FAIL(ENOMEM, NULL);
	struct ibv_context *x = &c->v.context;
	x->async_fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	if (x->async_fd < 0) {
		free(c);
		return NULL;
	}
	x->abi_compat = VB_ABI_EXTENDED;
	c->v.sz = sizeof c->v;
	vb_fill_ops(&c->v);
	pthread_mutex_init(&x->mutex, NULL);
	pthread_mutex_init(&c->events, NULL);
	return c;
}

static struct ibv_context *opened(struct vb_context *c, struct ibv_device *d, int e)
{
	if (e) {
		close(c->v.context.async_fd);
		free(c);
		VB_FAIL(e, NULL);
	}
	c->gen = vb_generation;
	c->v.context.device = d;
	return &c->v.context;
}

struct ibv_context *ibv_open_device(struct ibv_device *d)
{
	int e = vb_load();

	if (e)
		VB_FAIL(e, NULL);
	struct vb_context *c = new_context();
	if (!c)
		return NULL;
	struct ibv_context *x = &c->v.context;
	e = vb_engine->open(d->name, x->async_fd, &x->num_comp_vectors, &x->cmd_fd, &c->h);
	return opened(c, d, e);
}

struct ibv_context *ibv_import_device(int cmd_fd)
{
	struct vrb_device info = {};
	struct vb_device *d = NULL;
	int e = vb_load();

	if (e)
		VB_FAIL(e, NULL);
	struct vb_context *c = new_context();
	if (!c)
		return NULL;
	struct ibv_context *x = &c->v.context;
	e = vb_engine->import_device(cmd_fd, x->async_fd, info.name, &x->num_comp_vectors, &x->cmd_fd, &c->h);
	pthread_mutex_lock(&devices_mu);
	for (d = devices; !e && d && strcmp(d->v.device.name, info.name); d = d->next)
		;
	pthread_mutex_unlock(&devices_mu);
	return opened(c, (struct ibv_device *)d, e);
}

// vb_revive opens the device of a context again, in a child that fork gave the context to: a child of a program with
// an adapter can use it too. The descriptors keep their numbers, and the objects of the parent stay out of reach.
int vb_revive(struct vb_context *c)
{
	struct ibv_context *x = &c->v.context;
	int e = vb_load(), vectors, cmd_fd, async_fd;

	pthread_mutex_lock(&revive_mu);
	if (!e && VB_DEAD(c)) {
		async_fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
		if (async_fd < 0 || dup3(async_fd, x->async_fd, O_CLOEXEC) < 0)
			e = errno;
		if (async_fd >= 0)
			close(async_fd);
		if (!e)
			e = vb_engine->open(x->device->name, x->async_fd, &vectors, &cmd_fd, &c->h);
		if (!e) {
			close(x->cmd_fd); // the parent's
			x->cmd_fd = cmd_fd;
			pthread_mutex_init(&c->events, NULL);
			c->gen = vb_generation;
		}
	}
	pthread_mutex_unlock(&revive_mu);
	return e;
}

int ibv_close_device(struct ibv_context *x)
{
	struct vb_context *c = VB_CONTEXT(x);
	int e = VB_DEAD(c) ? 0 : vb_engine->destroy(c->h);

	if (e)
		VB_FAIL(e, -1);
	if (VB_DEAD(c))
		close(x->cmd_fd); // otherwise the engine has closed it
	close(x->async_fd);
	free(c);
	return 0;
}

int ibv_fork_init(void) { return 0; }
enum ibv_fork_status ibv_is_fork_initialized(void) { return IBV_FORK_UNNEEDED; }
int ibv_dontfork_range(void *at, size_t length) { return 0; }
int ibv_dofork_range(void *at, size_t length) { return 0; }
