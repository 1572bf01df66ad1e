// The state of a stream, as the kernel has it for TCP. An rsocket differs: it has no events before it connects, and the
// end of the peer ends both directions.
#define _GNU_SOURCE
#include "sockets.h"

enum { BOTH_ENDS = POLLIN | POLLOUT | POLLRDHUP };

// is_stream reports whether an rsocket is a stream of this process.
static int is_stream(const struct slot *s)
{
	return atomic_load(&s->type) == SOCK_STREAM && atomic_load(&s->born) == parent_forks();
}

int own_events(int rs)
{
	struct slot *s = own(rs);
	int progress = s && atomic_load(&s->uses) > 0 && is_stream(s) ? atomic_load(&s->progress) : CONNECTED;

	if (progress != UNCONNECTED && progress != ENDED)
		return 0;
	return POLLOUT | POLLHUP | (atomic_load(&s->shut) & NO_READ ? POLLIN | POLLRDHUP : 0);
}

// The end of the peer is no POLLHUP in TCP: the program may still send. If it asks for nothing but that, it is told
// nevertheless.
int as_tcp(int rs, int found, int asked)
{
	struct slot *s = own(rs);

	if (!found || !s || atomic_load(&s->uses) <= 0 || !is_stream(s))
		return found;
	if (found & POLLNVAL) // a thread has ended the listener
		return atomic_load(&s->progress) == ENDED ? POLLHUP | BOTH_ENDS : found;
	if (atomic_load(&s->lost))
		return found | POLLHUP | (atomic_load(&s->error) ? POLLERR : 0) | BOTH_ENDS;
	if (found & POLLERR)
		return found | POLLHUP | BOTH_ENDS;
	if (!(found & POLLHUP))
		return found;
	found |= BOTH_ENDS;
	if (atomic_load(&s->shut) & NO_WRITE)
		return found;
	return asked & (BOTH_ENDS | POLLRDNORM | POLLWRNORM) ? found & ~POLLHUP : found;
}

int has_now(int rs, int events)
{
	struct pollfd p = {.fd = rs, .events = events};
	int e = errno, n = rpoll(&p, 1, 0);

	errno = e;
	return n == 1 ? p.revents : 0;
}

// An attempt that does not block becomes a connection without a call of the program.
int made(int rs)
{
	struct sockaddr_storage peer;
	socklen_t n = sizeof peer;
	int progress = atomic_load(&own(rs)->progress), e = errno;
	int yes = progress == CONNECTED || (progress == CONNECTING && !rgetpeername(rs, (struct sockaddr *)&peer, &n));

	errno = e;
	return yes;
}

// States of TCP_INFO.
enum { ESTABLISHED = 1, SYN_SENT = 2, FIN_WAIT2 = 5, CLOSE = 7, CLOSE_WAIT = 8, LISTEN = 10 };

int tcp_state(int rs)
{
	struct slot *s = own(rs);

	switch (atomic_load(&s->progress)) {
	case LISTENING:
		return LISTEN;
	case CONNECTING:
		if (!has_now(rs, POLLOUT))
			return SYN_SENT;
		break;
	case CONNECTED:
		break;
	default:
		return CLOSE;
	}
	int found = has_now(rs, POLLRDHUP), shut = atomic_load(&s->shut);
	int ended = (found & POLLHUP) || ((found & POLLRDHUP) && !(shut & NO_READ)); // by the peer, or by both ends
	if ((found & POLLERR) || atomic_load(&s->lost))
		return CLOSE;
	return shut & NO_WRITE ? (ended ? CLOSE : FIN_WAIT2) : ended ? CLOSE_WAIT : ESTABLISHED;
}

// end_connection is end_stream for one that is connected, or connects. An rsocket that has ended both directions itself
// does not know when the peer has.
static int end_connection(int rs, int how)
{
	struct slot *s = own(rs);

	if (tcp_state(rs) == CLOSE && !(atomic_load(&s->shut) & NO_READ))
		return fail(ENOTCONN);
	if (rshutdown(rs, how)) {
		parent_tell(rs);
		return -1;
	}
	atomic_fetch_or(&s->shut, how + 1);
	return 0;
}

int end_stream(int rs, int how)
{
	struct slot *s = own(rs);
	struct sockaddr_storage peer;
	socklen_t n = sizeof peer;
	int result = -1;

	GUARD(0);
	if (how < SHUT_RD || how > SHUT_RDWR)
		return fail(EINVAL);
	if (atomic_load(&s->type) != SOCK_STREAM)
		return rgetpeername(rs, (struct sockaddr *)&peer, &n) ? -1 : rshutdown(rs, how);
	switch (atomic_load(&s->progress)) {
	case LISTENING:
		if (how == SHUT_WR)
			return 0;
		if ((result = rshutdown(rs, how))) {
			parent_tell(rs);
			return -1;
		}
		atomic_store(&s->shut, NO_READ | NO_WRITE);
		atomic_store(&s->progress, ENDED);
		break;
	case UNCONNECTED:
	case ENDED:
		atomic_fetch_or(&s->shut, how + 1);
		fail(ENOTCONN);
		break;
	default:
		result = end_connection(rs, how);
	}
	used_up(rs, POLLIN);
	used_up(rs, POLLOUT);
	return result;
}

int after_end(int rs)
{
	struct slot *s = own(rs);

	if (atomic_exchange(&s->lost, 1))
		return 0;
	atomic_store(&s->error, EPIPE);
	used_up(rs, POLLIN);
	used_up(rs, POLLOUT);
	return 1;
}
