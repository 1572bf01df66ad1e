// libverbena-sockets.so: the sockets of a program become rsockets of librdmacm.so.1, without a change of the program.
// It is preloaded, so its functions are found before those of the C library.
//
// A descriptor of a socket is the number of the rsocket, or a duplicate of it. The slot of a descriptor names the
// rsocket; what the duplicates share is in the rsocket's own slot.
#ifndef VERBENA_SOCKETS_H
#define VERBENA_SOCKETS_H

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <time.h>

#include "../rdmacm/socket.h"

struct epoll;

struct slot {
	atomic_int rs;              // number of the rsocket + 1; 0: the descriptor is none
	_Atomic(struct epoll *) ep; // the descriptor is an epoll instance that has rsockets
	// Of the rsocket with this number:
	atomic_int uses;                // descriptors
	atomic_int nonblock;            // O_NONBLOCK
	atomic_int type;                // SOCK_STREAM or SOCK_DGRAM
	atomic_int receive_ms, send_ms; // SO_RCVTIMEO and SO_SNDTIMEO; 0: none
	// Edges for epoll: each changes when the program has used up what it was told of.
	atomic_uint in_edge, out_edge;
	_Atomic(struct epoll *) watcher; // an epoll instance that has the rsocket with EPOLLET
};

// slot_of returns the slot of a descriptor; NULL if there never was an rsocket near it.
RS_HIDDEN struct slot *slot_of(int fd);

// make_slot is slot_of, but makes the slot. It returns NULL without memory.
RS_HIDDEN struct slot *make_slot(int fd);

// each_slot calls a function with each descriptor that has a slot.
RS_HIDDEN void each_slot(void (*f)(int fd, struct slot *, void *), void *arg);

// rs_of returns the rsocket of a descriptor; -1 for an ordinary one.
static inline int rs_of(int fd)
{
	struct slot *s = slot_of(fd);

	return s ? atomic_load(&s->rs) - 1 : -1;
}

// own is the slot of an rsocket.
static inline struct slot *own(int rs) { return slot_of(rs); }

// NEXT(name) is the function of the C library with the name of the calling one.
#define NEXT(name) \
	({ \
		static __typeof__(&name) next_; \
		if (!next_) \
			next_ = (__typeof__(&name))next_function(#name); \
		next_; \
	})
RS_HIDDEN void *next_function(const char *name);

static inline int fail(int e)
{
	errno = e;
	return -1;
}

// now_ms is a clock in milliseconds.
RS_HIDDEN int64_t now_ms(void);

// to_ms rounds a time-out up; -1 for none.
RS_HIDDEN int to_ms(const struct timespec *t);

// wait_for waits for events of descriptors, rsockets among them, as poll does: a signal handler ends it with EINTR.
RS_HIDDEN int wait_for(struct pollfd *fds, nfds_t n, int timeout_ms);

// ready waits for an event of an rsocket that blocks. It returns -1 with errno set: EINTR, or EAGAIN after ms if these
// are not 0.
RS_HIDDEN int ready(int rs, short event, int ms);

// used_up tells epoll that the program has used up an event.
RS_HIDDEN void used_up(int rs, short event);

// forget removes a descriptor that is being closed from the epoll instances, and the instance that it is.
RS_HIDDEN void forget(int fd);

// take is data's way in: flags are those of recv. name and length may be NULL.
RS_HIDDEN ssize_t take(int rs, struct msghdr *m, int flags);

// give is data's way out.
RS_HIDDEN ssize_t give(int rs, const struct msghdr *m, int flags);

#endif
