// Files of sysfs, which programs read through this library.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib.h"

const char *ibv_get_sysfs_path(void)
{
	const char *path = secure_getenv("VERBENA_SYSFS");

	return path && *path ? path : "/sys";
}

// attribute writes the text of a file of a device. It returns -1 for a file that Verbena does not know.
static int attribute(const char *dir, const char *file, char *to, size_t room)
{
	static const char folder[] = "/sys/class/infiniband/";
	struct ibv_device **list, *d = NULL;
	struct ibv_device_attr_ex a;
	int n = -1;

	if (strncmp(dir, folder, sizeof folder - 1) || strncmp(dir + sizeof folder - 1, "vrb_", 4))
		return -1;
	if (!strcmp(file, "hca_type"))
		return snprintf(to, room, "verbena");
	list = ibv_get_device_list(NULL);
	for (int i = 0; list && list[i]; i++)
		if (!strcmp(list[i]->name, dir + sizeof folder - 1))
			d = list[i];
	if (d && !strcmp(file, "node_guid")) {
		const uint8_t *g = ((struct vb_device *)d)->info.guid;
		n = snprintf(to, room, "%02x%02x:%02x%02x:%02x%02x:%02x%02x", g[0], g[1], g[2], g[3], g[4], g[5], g[6], g[7]);
	} else if (d && !strcmp(file, "fw_ver")) {
		struct ibv_context *x = ibv_open_device(d);
		if (x && !vb_query_device_ex(x, NULL, &a, sizeof a))
			n = snprintf(to, room, "%s", a.orig_attr.fw_ver);
		if (x)
			ibv_close_device(x);
	}
	ibv_free_device_list(list);
	return n;
}

int ibv_read_sysfs_file(const char *dir, const char *file, char *to, size_t room)
{
	char path[4096];
	int n = attribute(dir, file, to, room);

	if (n >= 0)
		return (size_t)n < room ? n : (int)room - 1;
	if ((size_t)snprintf(path, sizeof path, "%s/%s", dir, file) >= sizeof path)
		VB_FAIL(ENAMETOOLONG, -1);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	ssize_t got = read(fd, to, room);
	close(fd);
	if (got > 0 && (size_t)got <= room && to[got - 1] == '\n')
		to[--got] = 0;
	else if (got >= 0 && (size_t)got < room)
		to[got] = 0;
	return got;
}

int ibv_read_ibdev_sysfs_file(char *to, size_t room, void *device, const char *format, ...)
{
	char file[1024];
	va_list args;

	va_start(args, format);
	int n = vsnprintf(file, sizeof file, format, args);
	va_end(args);
	if (n < 0 || (size_t)n >= sizeof file)
		VB_FAIL(ENAMETOOLONG, -1);
	return ibv_read_sysfs_file(((struct ibv_device *)device)->ibdev_path, file, to, room);
}
