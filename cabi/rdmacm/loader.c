// The engine's part for connections, and the devices.
#include <fcntl.h>
#include <stdio.h>

#include "lib.h"

const struct vrb_cm *cm_engine;
const unsigned int *cm_generation;
pthread_mutex_t cm_mu = PTHREAD_MUTEX_INITIALIZER;

static pthread_mutex_t load_mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t devices_mu = PTHREAD_MUTEX_INITIALIZER;
static unsigned int loaded; // the generation of cm_engine; 0 for none
static struct cm_device *devices;

// after_fork runs in the child, in which no other thread holds a lock.
static void after_fork(void)
{
	pthread_mutex_init(&cm_mu, NULL);
	pthread_mutex_init(&load_mu, NULL);
	pthread_mutex_init(&devices_mu, NULL);
}

int cm_load(void)
{
	static int hooked;
	int e = 0;

	pthread_mutex_lock(&load_mu);
	if (!loaded || loaded != *cm_generation) {
		if (!hooked) {
			hooked = 1;
			pthread_atfork(NULL, NULL, after_fork);
		}
		const struct vrb_cm *table = verbena_table("verbena_cm", VERBENA_CM_ABI, &cm_generation);
		if (table) {
			cm_engine = table;
			loaded = *cm_generation;
		} else {
			e = errno;
		}
	}
	pthread_mutex_unlock(&load_mu);
	return e;
}

static struct ibv_context *open_named(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *c = NULL;
	int i = 0, e = 0;

	while (list && list[i] && strcmp(ibv_get_device_name(list[i]), name))
		i++;
	if (!list)
		e = errno;
	else if (!list[i])
		e = ENODEV;
	else if (!(c = ibv_open_device(list[i])))
		e = errno;
	ibv_free_device_list(list);
	if (e)
		errno = e;
	return c;
}

struct cm_device *cm_device_of(const char *name)
{
	struct cm_device *d;

	pthread_mutex_lock(&devices_mu);
	for (d = devices; d && strcmp(d->name, name); d = d->next)
		;
	if (!d && (d = calloc(1, sizeof *d))) {
		snprintf(d->name, sizeof d->name, "%s", name);
		d->verbs = open_named(name);
		if (d->verbs) {
			d->next = devices;
			devices = d;
		} else {
			free(d);
			d = NULL;
		}
	}
	pthread_mutex_unlock(&devices_mu);
	return d;
}

// refresh forgets the objects of the parent. devices_mu is held.
static void refresh(struct cm_device *d)
{
	if (d->gen != *cm_generation) {
		d->pd = NULL;
		d->xrcd = NULL;
		d->gen = *cm_generation;
	}
}

struct ibv_pd *cm_default_pd(struct cm_device *d)
{
	pthread_mutex_lock(&devices_mu);
	refresh(d);
	if (!d->pd)
		d->pd = ibv_alloc_pd(d->verbs);
	struct ibv_pd *pd = d->pd;
	pthread_mutex_unlock(&devices_mu);
	return pd;
}

struct ibv_xrcd *cm_default_xrcd(struct cm_device *d)
{
	struct ibv_xrcd_init_attr a = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT};

	pthread_mutex_lock(&devices_mu);
	refresh(d);
	if (!d->xrcd)
		d->xrcd = CM_VERBS(d->verbs)->open_xrcd(d->verbs, &a);
	struct ibv_xrcd *xrcd = d->xrcd;
	pthread_mutex_unlock(&devices_mu);
	return xrcd;
}

struct ibv_context **rdma_get_devices(int *count)
{
	int n = 0, used = 0, e = cm_load();
	struct ibv_device **list = e ? NULL : ibv_get_device_list(&n);

	if (count)
		*count = 0;
	if (!list) {
		errno = e ? e : errno;
		return NULL;
	}
	struct ibv_context **contexts = calloc(n + 1, sizeof *contexts);
	for (int i = 0; contexts && i < n; i++) {
		struct cm_device *d = cm_device_of(ibv_get_device_name(list[i]));
		if (d)
			contexts[used++] = d->verbs;
	}
	ibv_free_device_list(list);
	if (contexts && !used) {
		free(contexts);
		errno = ENODEV;
		return NULL;
	}
	if (count)
		*count = used;
	return contexts;
}

void rdma_free_devices(struct ibv_context **list) { free(list); }
