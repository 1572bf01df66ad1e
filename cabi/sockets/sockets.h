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

// Options of rsockets.
enum { SOL_RDMA = 0x10000, RDMA_SQSIZE = 0, RDMA_RQSIZE = 1, RDMA_INLINE = 2, RDMA_AGAIN = 0x100, RDMA_UNACKED = 0x101 };

struct epoll;
struct link;

// names are the addresses of the TCP connection in whose place an rsocket is.
struct names {
	struct sockaddr_storage local, peer;
	socklen_t local_length, peer_length;
};

// What connect and listen have done to a stream. As in the kernel, the call after an attempt that goes on has its
// result. ENDED: shutdown has ended a listener.
enum { UNCONNECTED, CONNECTING, CONNECTED, LISTENING, ENDED };

// What shutdown has ended.
enum { NO_READ = 1, NO_WRITE = 2 };

// KEPT is the most options of a socket that are only kept: see options.c.
enum { KEPT = 40 };

struct slot {
	atomic_int rs;              // number of the rsocket + 1; 0: the descriptor is none
	_Atomic(struct link *) link; // the descriptor is a TCP socket that may become an rsocket
	atomic_int was_link;        // it was one since the descriptor was made
	_Atomic(struct epoll *) ep; // the descriptor is an epoll instance that has rsockets
	atomic_int created;         // the descriptor was made as one
	atomic_int outside;         // calls that wait for an instance in the kernel, since it had none
	// Of the rsocket with this number:
	atomic_int uses;                // descriptors
	atomic_uint born;               // parent_forks when it was made
	atomic_int nonblock;            // O_NONBLOCK of the program: the rsocket never blocks, so that calls wait here
	atomic_int type;                // SOCK_STREAM or SOCK_DGRAM
	atomic_int domain;              // AF_INET or AF_INET6, of which the names of the socket are
	atomic_int receive_ms, send_ms; // SO_RCVTIMEO and SO_SNDTIMEO; 0: none
	atomic_int progress;            // of connect and listen
	atomic_int shut;                // by shutdown
	atomic_int lost;                // a write of a stream came after the peer's end
	atomic_int error;               // for SO_ERROR, before that of the rsocket
	atomic_ullong cookie;           // SO_COOKIE; 0: not asked for yet
	atomic_ullong received, sent;   // bytes of a stream
	atomic_int linger, linger_s;    // SO_LINGER
	atomic_int kept[KEPT];          // options without effect
	struct names *names;         // NULL: those of the rsocket
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

// adopt makes the slot of a new rsocket, whose descriptor is its number. type has the flags of socket.
RS_HIDDEN int adopt(int rs, int domain, int type);

// release ends one use of an rsocket, and closes it after the last one.
RS_HIDDEN int release(int rs);

// options_begin gives an rsocket the options of the one that has accepted it; -1: those of a new socket.
RS_HIDDEN void options_begin(int rs, int from);

// options_of_tcp gives an rsocket the options without effect of a TCP socket.
RS_HIDDEN void options_of_tcp(int rs, int tcp);

// milliseconds reads a time-out option; -1 for a wrong one.
RS_HIDDEN int milliseconds(const void *timeval, socklen_t n);

// listens reports whether an rsocket listens.
RS_HIDDEN int listens(int rs);

// own_events returns the events of a stream that neither connects nor listens, for which the engine has none; 0 for
// another rsocket.
RS_HIDDEN int own_events(int rs);

// as_tcp returns the events that a stream of TCP would have, of those that an rsocket has when it is asked for some.
RS_HIDDEN int as_tcp(int rs, int found, int asked);

// has_now returns which events an rsocket has now.
RS_HIDDEN int has_now(int rs, int events);

// made reports whether a stream is or was connected.
RS_HIDDEN int made(int rs);

// tcp_state returns the state of a stream as in TCP_INFO.
RS_HIDDEN int tcp_state(int rs);

// tell_info writes what TCP_INFO has, and returns its length.
RS_HIDDEN socklen_t tell_info(int rs, void *to, socklen_t room);

// toward returns a socket of the kernel for questions about the route to a peer, to which it is connected; -1 without a
// route. The caller closes it.
RS_HIDDEN int toward(const struct sockaddr_storage *peer);

// end_stream is shutdown of an rsocket.
RS_HIDDEN int end_stream(int rs, int how);

// after_end reports whether a write that has failed with ECONNRESET is the first one after the peer's end. TCP accepts
// that one: it cannot know that the peer reads no more.
RS_HIDDEN int after_end(int rs);

// kept_option returns the value of an option that is only kept; -1 for another one.
RS_HIDDEN int kept_option(int rs, int level, int name);

// pktinfo_wanted reports whether a program wants to know to which address datagrams were sent. pktinfo_tell writes it as
// ancillary data and returns its length. pktinfo_only reports whether a message has no other ancillary data.
RS_HIDDEN int pktinfo_wanted(int rs);
RS_HIDDEN socklen_t pktinfo_tell(int rs, const struct sockaddr_storage *from, void *control, socklen_t room, int *flags);
RS_HIDDEN int pktinfo_only(const struct msghdr *);

// pipe_signal sends SIGPIPE to the thread.
RS_HIDDEN void pipe_signal(void);

// readable reports whether the program can read memory of its own.
RS_HIDDEN int readable(const void *at, size_t n);

// put copies to memory of the program. It returns -1 with EFAULT if that cannot be written to.
RS_HIDDEN int put(void *to, const void *from, size_t n);

// intercepted reports whether preload_config lets a socket become an rsocket. type has no flags.
RS_HIDDEN int intercepted(int domain, int type, int protocol);

// set_sizes gives a new rsocket the sizes of RS_SQ_SIZE, RS_RQ_SIZE and RS_INLINE.
RS_HIDDEN void set_sizes(int rs);

// raise_fd moves a descriptor of this library to a number that is not low, if one is free.
RS_HIDDEN int raise_fd(int fd);

// engine_runs notes that this process has the engine. last_to_close returns where to end a range of descriptors that the
// program closes: one of all numbers up to the limit leaves those that are not low to the engine.
RS_HIDDEN void engine_runs(void);
RS_HIDDEN unsigned int last_to_close(unsigned int first, unsigned int last);

// Fork mode: a stream is a TCP socket at first. See link.c.

// links reports whether the fork mode is on.
RS_HIDDEN int links(void);

// link_new makes a new TCP socket one that may become an rsocket. -1 with errno set closes it.
RS_HIDDEN int link_new(int fd);

// link_listens tells that a TCP socket listens, link_connects that it connects or has connected.
RS_HIDDEN void link_listens(int fd);
RS_HIDDEN void link_connects(int fd);

// link_listens_at reports whether a descriptor is a TCP socket that listens.
RS_HIDDEN int link_listens_at(int fd);

// link_accepted makes a TCP socket that fd has accepted one that may become an rsocket, if fd is such a one.
RS_HIDDEN int link_accepted(int fd, int new);

// link_share makes a duplicate stand for the same connection.
RS_HIDDEN int link_share(int old, int new);

// link_leave forgets that a descriptor, which is being closed, is a TCP socket.
RS_HIDDEN void link_leave(struct slot *);

// link_shutdown is shutdown of a connection that is not an rsocket yet. 1: fd is something else.
RS_HIDDEN int link_shutdown(int fd, int how);

// link_ignores reports whether an option of a TCP socket that may become an rsocket must have no effect, since the
// handshake would not work: the server waits until the client has spoken (TCP_DEFER_ACCEPT), the client does not connect
// before it speaks (TCP_FASTOPEN_CONNECT), or urgent data, by which plain.c tells something, is data of the stream.
RS_HIDDEN int link_ignores(int fd, int level, int name);

// link_settle makes the connection of a descriptor what it will be. It returns the rsocket, -1 for TCP and other
// descriptors, or -2 with errno set: EAGAIN if the caller may not wait, EINTR, or EIO in a child whose parent does it.
RS_HIDDEN int link_settle(int fd, int flags);

// link_now returns the rsocket of a descriptor; -1 if it is none, or none yet.
RS_HIDDEN int link_now(int fd);

enum { AS_IS, INSTEAD, TOLD_NOW, DEAD };

// link_poll writes what to poll for events of a descriptor. It returns AS_IS; INSTEAD if an event of that is only a
// reason to ask again; TOLD_NOW if the connection of a client is made, which the program does not use yet; DEAD for a
// connection that the parent makes.
RS_HIDDEN int link_poll(int fd, short events, struct pollfd *out);

// io_of returns the rsocket of a descriptor on which the program wants to receive or send, as link_settle.
static inline int io_of(int fd, int flags)
{
	struct slot *s = slot_of(fd);

	return !s ? -1 : atomic_load(&s->link) ? link_settle(fd, flags) : atomic_load(&s->rs) - 1;
}

// now_of returns the rsocket of a descriptor; -1 if it is none, or none yet.
static inline int now_of(int fd)
{
	struct slot *s = slot_of(fd);

	return !s ? -1 : atomic_load(&s->link) ? link_now(fd) : atomic_load(&s->rs) - 1;
}

// ours reports whether a descriptor is an rsocket, or may become one.
static inline int ours(int fd)
{
	struct slot *s = slot_of(fd);

	return s && (atomic_load(&s->rs) || atomic_load(&s->link));
}

// GUARD holds back the cancellation of the thread until the end of the block. If point is set, the block is a
// cancellation point. See cancel.c.
#define GUARD(point) __attribute__((cleanup(guard_end), unused)) int guard_ = guard_begin(point)
RS_HIDDEN int guard_begin(int point);
RS_HIDDEN void guard_end(int *unused);

// cancels_wait reports whether a cancellation ends the wait of the thread: the guard does the rest.
RS_HIDDEN int cancels_wait(void);

// event_of_thread returns an eventfd that ends a wait of the thread; -1 with errno set on failure.
RS_HIDDEN int event_of_thread(void);

// stack_new gives the thread a large alternate stack, if it has none, and returns its memory, which stack_end frees.
RS_HIDDEN void *stack_new(void);
RS_HIDDEN void stack_end(void *);

// SERVE is plain for a descriptor of the kernel and mine, in which rs is the rsocket, for another one.
#define SERVE(fd, flags, plain, mine) \
	({ \
		int rs = io_of(fd, flags); \
		rs == -1 ? (plain) : rs < 0 ? -1 : ({ \
			GUARD(1); \
			(mine); \
		}); \
	})

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

// parent_forks is how many forks are between the first process and this one.
RS_HIDDEN unsigned int parent_forks(void);

// of_vfork reports whether this is a child of vfork, which has the memory of its parent: what it does to its descriptors
// must change nothing there.
RS_HIDDEN int of_vfork(void);

// parent_tell prints once that this process cannot use an rsocket, if that is one of its parent.
RS_HIDDEN void parent_tell(int rs);

enum { SECOND = 1000000000 }; // nanoseconds

// now_ms is a clock in milliseconds, now_ns the same in nanoseconds.
RS_HIDDEN int64_t now_ms(void);
RS_HIDDEN int64_t now_ns(void);

// left_of returns what is left of a time-out that has begun at a time of now_ns.
RS_HIDDEN struct timespec left_of(const struct timespec *whole, int64_t begun);

// to_ms rounds a time-out up; -1 for none.
RS_HIDDEN int to_ms(const struct timespec *t);

// wait_for waits for events of descriptors, rsockets among them, as poll does: a signal handler ends it with EINTR.
RS_HIDDEN int wait_for(struct pollfd *fds, nfds_t n, int timeout_ms);

// interrupted returns -1 with EINTR if a handler or a cancellation has ended the last wait_for of the thread, beside an
// event. A caller for which the event is only a reason to wait again does not wait then.
RS_HIDDEN int interrupted(void);

// restarted reports whether a failed wait_for was ended by handlers with SA_RESTART only. As in the kernel, calls that
// have no time-out, other than poll and its kin, wait again then.
RS_HIDDEN int restarted(void);

// CANCELS is what pthread_cancel adds to the event of a thread; a handler adds 1.
#define CANCELS ((uint64_t)1 << 32)

// masked is what mask_begin has replaced.
struct masked {
	sigset_t before;
	int event, interrupt; // event: -1 without a mask
};

// mask_begin gives the thread the signal mask of a wait, if that is not NULL, until mask_end. A handler that runs
// before the wait begins ends it too. It returns -1 with errno set on failure.
RS_HIDDEN int mask_begin(const sigset_t *mask, struct masked *m);
RS_HIDDEN void mask_end(const struct masked *m);

// with_plain adds the events that rsockets have for those that mean the same. as_asked returns the events that a program
// has asked for, of those that were found.
static inline uint32_t with_plain(uint32_t events)
{
	return events | (events & POLLRDNORM ? POLLIN : 0) | (events & POLLWRNORM ? POLLOUT : 0);
}

static inline uint32_t as_asked(uint32_t found, uint32_t events)
{
	found |= (found & POLLIN ? POLLRDNORM : 0) | (found & POLLOUT ? POLLWRNORM : 0);
	return found & (events | POLLERR | POLLHUP | POLLNVAL);
}

// ready waits for an event of an rsocket that blocks. It returns -1 with errno set: EINTR, or EAGAIN after ms if these
// are not 0.
RS_HIDDEN int ready(int rs, short event, int ms);

// used_up tells epoll that the program has used up an event.
RS_HIDDEN void used_up(int rs, short event);

// forget removes a descriptor that is being closed from the epoll instances, and the instance that it is.
RS_HIDDEN void forget(int fd);

// may_be_instance reports whether a descriptor is an instance of epoll, unless another file has its number.
static inline int may_be_instance(int fd)
{
	struct slot *s = slot_of(fd);

	return s && (atomic_load(&s->created) || atomic_load(&s->ep));
}

// poll_now polls descriptors, rsockets among them, without waiting. A signal handler does not end it.
RS_HIDDEN int poll_now(struct pollfd *fds, nfds_t n);

// wait_inside is wait_for with instances of epoll among the descriptors: what is in these may be rsockets.
RS_HIDDEN int wait_inside(struct pollfd *fds, nfds_t n, int timeout_ms);

// epoll_share makes a duplicate stand for the same instance of epoll, if old is one.
RS_HIDDEN void epoll_share(int old, int new);

// take is data's way in: flags are those of recv. name and length may be NULL.
RS_HIDDEN ssize_t take(int rs, struct msghdr *m, int flags);

// give is data's way out.
RS_HIDDEN ssize_t give(int rs, const struct msghdr *m, int flags);

#endif
