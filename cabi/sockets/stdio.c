// Streams of the C library on sockets. Those read and write descriptors by functions of their own.
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sockets.h"

static int number(void *cookie) { return (int)(intptr_t)cookie; }

static ssize_t reads(void *cookie, char *buf, size_t n) { return read(number(cookie), buf, n); }

// writes returns 0 on failure, as functions of fopencookie do.
static ssize_t writes(void *cookie, const char *buf, size_t n)
{
	size_t done = 0;

	while (done < n) {
		ssize_t some = write(number(cookie), buf + done, n - done);
		if (some < 0)
			break;
		done += some;
	}
	return done;
}

// seeks fails as lseek on a socket does: a stream goes on then.
static int seeks(void *cookie, off64_t *at, int whence) { return fail(ESPIPE); }

static int closes(void *cookie) { return close(number(cookie)); }

FILE *fdopen(int fd, const char *mode)
{
	cookie_io_functions_t functions = {.read = reads, .write = writes, .seek = seeks, .close = closes};

	if (!ours(fd))
		return NEXT(fdopen)(fd, mode);
	FILE *f = fopencookie((void *)(intptr_t)fd, mode, functions);
	if (f)
		f->_fileno = fd; // for fileno; the functions of a cookie do not use it
	return f;
}

int vdprintf(int fd, const char *restrict format, va_list args)
{
	char *text;

	if (!ours(fd))
		return NEXT(vdprintf)(fd, format, args);
	int n = vasprintf(&text, format, args);
	if (n < 0)
		return -1;
	ssize_t done = writes((void *)(intptr_t)fd, text, n);
	free(text);
	return done == n ? n : -1;
}

int dprintf(int fd, const char *restrict format, ...)
{
	va_list args;

	va_start(args, format);
	int n = vdprintf(fd, format, args);
	va_end(args);
	return n;
}

int __vdprintf_chk(int fd, int flag, const char *restrict format, va_list args)
{
	return ours(fd) ? vdprintf(fd, format, args) : NEXT(__vdprintf_chk)(fd, flag, format, args);
}

int __dprintf_chk(int fd, int flag, const char *restrict format, ...)
{
	va_list args;

	va_start(args, format);
	int n = __vdprintf_chk(fd, flag, format, args);
	va_end(args);
	return n;
}
