// Memory of the program. The kernel answers EFAULT where it cannot read or write it, and so do calls on rsockets.
#define _GNU_SOURCE
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "sockets.h"

// readable asks the kernel to change the signal mask in a way that there is not. It reads the mask before it refuses.
int readable(const void *at, size_t n)
{
	enum { PAGE = 4096, NO_WAY = 0x7fffffff };
	uintptr_t a = (uintptr_t)at & ~(uintptr_t)7, end = (uintptr_t)at + n;
	int before = errno, yes = end >= (uintptr_t)at && (a >= PAGE || !n); // NULL is no mask, not a wrong one

	for (; yes && a < end; a = (a | (PAGE - 1)) + 1)
		yes = NEXT(syscall)(SYS_rt_sigprocmask, NO_WAY, a, NULL, 8) != -1 || errno != EFAULT;
	errno = before;
	return yes;
}

int put(void *to, const void *from, size_t n)
{
	struct iovec source = {(void *)from, n}, target = {to, n};
	int before = errno;
	ssize_t got = n ? process_vm_writev(getpid(), &source, 1, &target, 1, 0) : 0;

	if (got < 0 && errno != EFAULT)
		memcpy(to, from, got = n); // the call is not allowed here
	errno = before;
	return got == (ssize_t)n ? 0 : fail(EFAULT);
}
