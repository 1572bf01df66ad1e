// Programs that make the system call themselves, by syscall of the C library: libuv sends and receives datagrams so, as
// it is older than those functions of the C library.
#define _GNU_SOURCE
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sockets.h"

// is_ours reports whether a call of the kernel is one of those below, on a descriptor of this library. A connection that
// may become an rsocket only does so if it is used.
static int is_ours(long number, int fd, int second)
{
	switch (number) {
	case SYS_sendmmsg:
	case SYS_recvmmsg:
	case SYS_read:
	case SYS_write:
		return ours(fd);
	case SYS_accept4:
	case SYS_close:
		return rs_of(fd) >= 0;
	case SYS_dup3:
		return rs_of(fd) >= 0 || rs_of(second) >= 0;
	}
	return 0;
}

// direct is a call on a descriptor of this library.
static long direct(long number, int fd, const long a[5])
{
	switch (number) {
	case SYS_sendmmsg:
		return sendmmsg(fd, (struct mmsghdr *)a[0], a[1], a[2]);
	case SYS_recvmmsg:
		return recvmmsg(fd, (struct mmsghdr *)a[0], a[1], a[2], (struct timespec *)a[3]);
	case SYS_accept4:
		return accept4(fd, (struct sockaddr *)a[0], (socklen_t *)a[1], a[2]);
	case SYS_read:
		return read(fd, (void *)a[0], a[1]);
	case SYS_write:
		return write(fd, (void *)a[0], a[1]);
	case SYS_dup3:
		return dup3(fd, a[0], a[1]);
	}
	return close(fd);
}

long syscall(long number, ...)
{
	va_list args;
	long a[6];

	va_start(args, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(args, long);
	va_end(args);
	return is_ours(number, a[0], a[1]) ? direct(number, a[0], &a[1]) :
					     NEXT(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
