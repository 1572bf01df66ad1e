// Fork mode: the TCP sockets that a program has from before exec. The program that executed it knew them, this one does
// not.
#define _GNU_SOURCE
#include <dirent.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <unistd.h>

#include "link.h"

static int option(int fd, int name)
{
	int value = 0;
	socklen_t n = sizeof value;

	return NEXT(getsockopt)(fd, SOL_SOCKET, name, &value, &n) ? 0 : value;
}

int has_sent(int tcp)
{
	struct tcp_info info = {0};
	socklen_t n = sizeof info;

	return !NEXT(getsockopt)(tcp, IPPROTO_TCP, TCP_INFO, &info, &n) && info.tcpi_bytes_sent;
}

static int has_received(int tcp)
{
	struct tcp_info info = {0};
	socklen_t n = sizeof info;

	return !NEXT(getsockopt)(tcp, IPPROTO_TCP, TCP_INFO, &info, &n) && info.tcpi_bytes_received;
}

// take_over makes a listener one of this program, as a server has it that a supervisor has started. A connection on a
// standard descriptor is that of a server for one client, as inetd starts it. It stays TCP, since such programs use it
// by streams of the C library: the client must not wait. Other connections may be of the parent, which goes on to use
// them.
static void take_over(int fd)
{
	switch (is_tcp(fd)) {
	case 1:
		if (option(fd, SO_ACCEPTCONN) && intercepted(option(fd, SO_DOMAIN), SOCK_STREAM, IPPROTO_TCP) && link_new(fd) >= 0)
			link_listens(fd);
		break;
	case 2:
		if (fd <= STDERR_FILENO && !has_sent(fd) && !has_received(fd))
			tell_plain(fd);
	}
}

void inherit(void)
{
	DIR *folder = opendir("/proc/self/fd");
	int e = errno;

	for (struct dirent *d; folder && (d = readdir(folder));)
		if (d->d_name[0] != '.' && atoi(d->d_name) != dirfd(folder))
			take_over(atoi(d->d_name));
	if (folder)
		closedir(folder);
	errno = e;
}
