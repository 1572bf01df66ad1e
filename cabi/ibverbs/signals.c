// Signal handlers of the program. A thread that is in the engine has a small stack, on which the kernel would put the
// frame of a handler: it overwrites other memory. So each handler gets SA_ONSTACK; each thread that has been in the
// engine has an alternate stack. The preloaded library does that in sigaction and signal. Here it is done for the
// handlers that are installed already, for programs that run without it: by calls that make or change objects, which
// programs do between installing their handlers and the first message.
#include <errno.h>
#include <signal.h>

#include "lib.h"

// errno stays as it is: glibc refuses its own two signals, but the call of the program has not failed.
void vb_signals(void)
{
	int before = errno;

	for (int sig = 1; sig < NSIG; sig++) {
		struct sigaction a;

		if (sigaction(sig, NULL, &a) || a.sa_handler == SIG_DFL || a.sa_handler == SIG_IGN ||
		    a.sa_flags & SA_ONSTACK)
			continue;
		a.sa_flags |= SA_ONSTACK;
		sigaction(sig, &a, NULL);
	}
	errno = before;
}
