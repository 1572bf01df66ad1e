// The alternate stack, on which handlers of signals run. The engine's has 32 KiB. A handler of a server may fork, and the
// child may live in the handler and load an engine there, so a thread that waits gets a larger one.
#define _GNU_SOURCE
#include <stddef.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "sockets.h"

enum { SIZE = 1 << 20 };

void *stack_new(void)
{
	size_t guard = sysconf(_SC_PAGESIZE);
	stack_t old;

	if (sigaltstack(NULL, &old) || (old.ss_flags & SS_ONSTACK) || (!(old.ss_flags & SS_DISABLE) && old.ss_size >= SIZE))
		return NULL;
	char *at = mmap(NULL, SIZE + guard, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (at == MAP_FAILED)
		return NULL;
	mprotect(at, guard, PROT_NONE);
	stack_t s = {.ss_sp = at + guard, .ss_size = SIZE};
	if (!sigaltstack(&s, NULL))
		return at;
	munmap(at, SIZE + guard);
	return NULL;
}

void stack_end(void *at)
{
	size_t guard = sysconf(_SC_PAGESIZE);
	stack_t now, none = {.ss_flags = SS_DISABLE};

	if (!at || sigaltstack(NULL, &now) || (now.ss_flags & SS_ONSTACK))
		return;
	if (now.ss_sp == (char *)at + guard)
		sigaltstack(&none, NULL);
	munmap(at, SIZE + guard);
}

static void disarm(void)
{
	stack_t none = {.ss_flags = SS_DISABLE};

	sigaltstack(&none, NULL);
}

// after_fork runs in the child. If that is in a handler it uses the alternate stack, on top of which another signal would
// overwrite it while the thread is in an engine. The kernel lets a thread change its alternate stack from another one
// only. The end of the handler gives it back.
static void after_fork(void)
{
	static char other[16 << 10];
	ucontext_t here, there;
	stack_t now;

	if (sigaltstack(NULL, &now) || !(now.ss_flags & SS_ONSTACK) || getcontext(&there))
		return;
	there.uc_stack = (stack_t){.ss_sp = other, .ss_size = sizeof other};
	there.uc_link = &here;
	makecontext(&there, disarm, 0);
	swapcontext(&here, &there);
}

__attribute__((constructor)) static void watch(void) { pthread_atfork(NULL, NULL, after_fork); }
