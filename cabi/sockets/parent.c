// A forked child cannot use the rsockets of its parent: they are in the parent's engine. It is told so once, since a
// program rarely names the reason of an EIO.
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "sockets.h"

static atomic_uint forks; // between the first process and this one
static pid_t process;     // whose memory this is
static atomic_int told;

unsigned int parent_forks(void) { return atomic_load(&forks); }

static void after_fork(void)
{
	process = getpid();
	atomic_fetch_add(&forks, 1);
	atomic_store(&told, 0);
}

__attribute__((constructor)) static void watch(void)
{
	process = getpid();
	pthread_atfork(NULL, NULL, after_fork);
}

int of_vfork(void) { return process && getpid() != process; }

void parent_tell(int rs)
{
	struct slot *s = own(rs);
	int e = errno;

	if (!s || atomic_load(&s->born) == atomic_load(&forks) || atomic_exchange(&told, 1))
		return;
	dprintf(2, "verbena: %s: process %d cannot use a connection of the process that forked it (EIO); %s\n",
		program_invocation_short_name, (int)getpid(),
		links() ? "leave the program out by preload_config, at both ends" :
			  "a server that forks for each connection needs RDMAV_FORK_SAFE=1, at both ends");
	errno = e;
}
