// epoll with rsockets. The instance of the kernel keeps the ordinary descriptors. The rsockets are in a list beside it,
// and a wait polls both. What wakes a wait when the list changes is an eventfd in the instance of the kernel.
//
// Duplicates of an instance share what is beside it.
//
// An instance in another one is in the list too. The kernel's has it without events, so that it refuses circles.
//
// A TCP socket that may become an rsocket is in the list too, until it is known to stay TCP: the instance of the kernel
// gets it then.
//
// EPOLLET: an event is not told again before the program has used it up, which it does by a call on the socket.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "sockets.h"

struct item {
	int fd, rs;                 // rs: -1 for a TCP socket that may become an rsocket, and for an instance
	int nested;                 // it is an instance
	int polled, kind;           // without rs: the descriptor in the list of the last wait, and the kind of link_poll
	struct epoll_event wanted;
	uint32_t told;              // EPOLLET: what the program knows
	unsigned int in_edge, out_edge; // of the rsocket when it was told
	int asleep;                 // EPOLLONESHOT: until it is modified
};

// HEARD_MS is long enough for a call that waits in the kernel to hear of the first rsocket. A thread that has left it
// by longjmp or was cancelled there counts for so long.
enum { HEARD_MS = 1000 };

// wait is a call that waits with a list of the items.
struct wait {
	struct wait *next; // in waits
	unsigned int seen; // changes when the list was made
};

struct epoll {
	int fd, wake;          // fd: a duplicate of its own, since the program may close the first one
	atomic_int uses;       // the table's, and one for each call that runs
	int names;             // descriptors of the program; instances guards it
	atomic_int *outside;   // of the first one
	pthread_mutex_t mu;
	int closed;
	struct item *items;
	size_t n, room;
	size_t first; // the item that is told first, so that all have a turn
	atomic_int waiting;   // calls that wait
	struct wait *waits;   // these
	atomic_uint changes;  // of what the lists are made of: each writes wake
	atomic_uint turn;     // of the rsockets and of the kernel's instance
	int64_t known;        // in ms: when all calls outside have heard of it, or are no more
	struct epoll *next;  // in all
};

// instances is the lock of all, and of the slots' ep. It is taken before the lock of an instance.
static pthread_mutex_t instances = PTHREAD_MUTEX_INITIALIZER;
static struct epoll *all;

// after_fork runs in the child, in which no other thread has the locks.
static void after_fork(void)
{
	pthread_mutex_init(&instances, NULL);
	for (struct epoll *ep = all; ep; ep = ep->next) {
		pthread_mutex_init(&ep->mu, NULL);
		ep->waits = NULL; // of threads that are not here
	}
}

__attribute__((constructor)) static void watch(void) { pthread_atfork(NULL, NULL, after_fork); }

static void close_both(struct epoll *ep)
{
	if (ep->wake >= 0)
		NEXT(close)(ep->wake);
	if (ep->fd >= 0)
		NEXT(close)(ep->fd);
}

static void drop(struct epoll *ep)
{
	if (ep && atomic_fetch_sub(&ep->uses, 1) == 1) {
		close_both(ep);
		free(ep->items);
		free(ep);
	}
}

// has_instance reports whether a descriptor is an instance that has rsockets.
static int has_instance(int epfd)
{
	struct slot *s = slot_of(epfd);

	return s && atomic_load(&s->ep);
}

// borrow returns the instance of a descriptor; the caller drops it. NULL: it has no rsockets.
static struct epoll *borrow(int fd)
{
	struct epoll *ep;

	if (!has_instance(fd))
		return NULL;
	pthread_mutex_lock(&instances);
	if ((ep = atomic_load(&slot_of(fd)->ep)))
		atomic_fetch_add(&ep->uses, 1);
	pthread_mutex_unlock(&instances);
	return ep;
}

static struct epoll *new_instance(int fd)
{
	struct epoll *ep = calloc(1, sizeof *ep);

	if (!ep)
		return NULL;
	ep->fd = raise_fd(NEXT(fcntl)(fd, F_DUPFD_CLOEXEC, 0));
	ep->names = 1;
	ep->outside = &slot_of(fd)->outside;
	ep->known = now_ms() + HEARD_MS;
	ep->uses = 2; // the table's and the caller's
	pthread_mutex_init(&ep->mu, NULL);
	ep->wake = raise_fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	struct epoll_event e = {.events = EPOLLIN, .data.ptr = ep};
	if (ep->wake >= 0 && !NEXT(epoll_ctl)(ep->fd, EPOLL_CTL_ADD, ep->wake, &e))
		return ep;
	int error = errno;
	close_both(ep);
	free(ep);
	errno = error;
	return NULL;
}

static struct epoll *borrow_or_make(int fd)
{
	struct slot *s = make_slot(fd);
	struct epoll *ep = borrow(fd);

	if (!s)
		errno = fd < 0 ? EBADF : ENOMEM;
	if (ep || !s)
		return ep;
	pthread_mutex_lock(&instances);
	if ((ep = atomic_load(&s->ep)))
		atomic_fetch_add(&ep->uses, 1);
	else if ((ep = new_instance(fd))) {
		atomic_store(&s->ep, ep);
		ep->next = all;
		all = ep;
	}
	pthread_mutex_unlock(&instances);
	return ep;
}

// created notes that a descriptor is an instance, until it is found to be none.
static int created(int fd)
{
	struct slot *s = make_slot(fd);

	if (s)
		atomic_store(&s->created, 1);
	return fd;
}

int epoll_create(int size) { return created(NEXT(epoll_create)(size)); }
int epoll_create1(int flags) { return created(NEXT(epoll_create1)(flags)); }

// borrow_made borrows the instance of a descriptor that may be one. It leaves errno.
static struct epoll *borrow_made(int fd)
{
	int e = errno;
	struct epoll *ep = may_be_instance(fd) ? borrow_or_make(fd) : NULL;

	if (!ep && may_be_instance(fd) && errno == EINVAL)
		atomic_store(&slot_of(fd)->created, 0); // another file has the number
	errno = e;
	return ep;
}

void epoll_share(int old, int new)
{
	struct epoll *ep = borrow_made(old);
	struct slot *to = ep ? make_slot(new) : NULL;

	pthread_mutex_lock(&instances);
	if (to && !ep->closed) {
		atomic_store(&to->ep, ep);
		ep->names++;
	}
	pthread_mutex_unlock(&instances);
	drop(ep);
}

// changed ends the waits whose lists are older.
static void changed(struct epoll *ep)
{
	atomic_fetch_add(&ep->changes, 1);
	eventfd_write(ep->wake, 1);
}

static struct item *find(struct epoll *ep, int fd)
{
	for (size_t i = 0; i < ep->n; i++)
		if (ep->items[i].fd == fd)
			return &ep->items[i];
	return NULL;
}

static int add(struct epoll *ep, int fd, int nested)
{
	if (ep->n == ep->room) {
		size_t room = ep->room ? 2 * ep->room : 16;
		struct item *more = realloc(ep->items, room * sizeof *more);
		if (!more)
			return ENOMEM;
		ep->items = more;
		ep->room = room;
	}
	ep->items[ep->n++] = (struct item){.fd = fd, .rs = -1, .polled = -1, .nested = nested};
	return 0;
}

// settled notes the rsocket of an item, if it has become one, and returns whether it has.
static int settled(struct epoll *ep, struct item *item)
{
	if (item->rs < 0 && (item->rs = rs_of(item->fd)) >= 0)
		item->told = 0;
	if (item->rs >= 0 && (item->wanted.events & EPOLLET))
		atomic_store(&own(item->rs)->watcher, ep);
	return item->rs >= 0;
}

// to_kernel gives an item that stays TCP to the instance of the kernel.
static void to_kernel(struct epoll *ep, struct item *item)
{
	struct epoll_event e = {.events = item->asleep ? EPOLLONESHOT : item->wanted.events, .data = item->wanted.data};

	NEXT(epoll_ctl)(ep->fd, EPOLL_CTL_ADD, item->fd, &e);
	*item = ep->items[--ep->n];
}

// stays_tcp gives a descriptor to the kernel that an instance has as one that might become an rsocket.
static void stays_tcp(int epfd, int fd)
{
	struct slot *s = slot_of(fd);
	struct epoll *ep = s && atomic_load(&s->was_link) ? borrow(epfd) : NULL;

	if (!ep)
		return;
	pthread_mutex_lock(&ep->mu);
	struct item *item = find(ep, fd);
	if (item)
		to_kernel(ep, item);
	pthread_mutex_unlock(&ep->mu);
	drop(ep);
}

static int change(struct epoll *ep, int op, int fd, const struct epoll_event *e, int nested)
{
	struct item *item = find(ep, fd);
	int error;

	switch (op) {
	case EPOLL_CTL_ADD:
		if (item)
			return EEXIST;
		if ((error = add(ep, fd, nested)))
			return error;
		item = &ep->items[ep->n - 1];
		break;
	case EPOLL_CTL_MOD:
		if (!item)
			return ENOENT;
		break;
	case EPOLL_CTL_DEL:
		if (!item)
			return ENOENT;
		*item = ep->items[--ep->n];
		return 0;
	default:
		return EINVAL;
	}
	item->wanted = *e;
	if (item->nested)
		item->wanted.events &= ~(uint32_t)EPOLLET; // nothing tells when its events are used up
	item->told = 0;
	item->asleep = 0;
	settled(ep, item);
	return 0;
}

// lists reports whether the list of an instance has a descriptor.
static int lists(int epfd, int fd)
{
	struct epoll *ep = borrow(epfd);

	if (!ep)
		return 0;
	pthread_mutex_lock(&ep->mu);
	int yes = find(ep, fd) != NULL;
	pthread_mutex_unlock(&ep->mu);
	drop(ep);
	return yes;
}

// nests reports whether epoll_ctl is about an instance that is or comes into the list of another one.
static int nests(int epfd, int op, int fd)
{
	if (!may_be_instance(fd))
		return 0;
	GUARD(0);
	if (op != EPOLL_CTL_ADD)
		return lists(epfd, fd);
	struct epoll *ep = borrow_made(fd);
	drop(ep);
	return ep != NULL;
}

// tell_kernel has the instance of the kernel refuse what it refuses of a nested one. It leaves errno.
static int tell_kernel(struct epoll *ep, int op, int fd, const struct epoll_event *e)
{
	struct epoll_event none = {.events = e ? e->events & EPOLLEXCLUSIVE : 0};
	int before = errno, error = NEXT(epoll_ctl)(ep->fd, op, fd, &none) ? errno : 0;

	errno = before;
	return error;
}

int epoll_ctl(int epfd, int op, int fd, struct epoll_event *e)
{
	int nested = nests(epfd, op, fd);

	if (!nested && ((now_of(fd) < 0 && !ours(fd)) || link_listens_at(fd))) {
		stays_tcp(epfd, fd);
		return NEXT(epoll_ctl)(epfd, op, fd, e);
	}
	if (!e && op != EPOLL_CTL_DEL)
		return fail(EFAULT);
	GUARD(0);
	struct epoll *ep = borrow_or_make(epfd);
	if (!ep)
		return -1;
	pthread_mutex_lock(&ep->mu);
	int error = ep->closed ? EBADF : nested ? tell_kernel(ep, op, fd, e) : 0;
	if (!error)
		error = change(ep, op, fd, e, nested);
	pthread_mutex_unlock(&ep->mu);
	if (!error)
		changed(ep);
	drop(ep);
	return error ? fail(error) : 0;
}

void used_up(int rs, short event)
{
	struct slot *s = own(rs);
	int e = errno;

	if (!atomic_load(&s->watcher))
		return;
	atomic_fetch_add(event == POLLIN ? &s->in_edge : &s->out_edge, 1);
	pthread_mutex_lock(&instances); // the instance may be closed at the same time
	struct epoll *ep = atomic_load(&s->watcher);
	if (ep && atomic_load(&ep->waiting))
		changed(ep);
	pthread_mutex_unlock(&instances);
	errno = e;
}

// leave removes a descriptor from an instance.
static void leave(struct epoll *ep, int fd)
{
	pthread_mutex_lock(&ep->mu);
	struct item *item = find(ep, fd);
	if (item)
		*item = ep->items[--ep->n];
	pthread_mutex_unlock(&ep->mu);
}

static void unwatch_slot(int fd, struct slot *s, void *ep)
{
	struct epoll *mine = ep;

	atomic_compare_exchange_strong(&s->watcher, &mine, NULL);
}

// unwatch forgets an instance that is closed in the rsockets that it has or had.
static void unwatch(struct epoll *ep)
{
	pthread_mutex_lock(&ep->mu);
	each_slot(unwatch_slot, ep);
	ep->n = 0;
	ep->closed = 1;
	pthread_mutex_unlock(&ep->mu);
}

// unlist removes an instance from all.
static void unlist(struct epoll *ep)
{
	struct epoll **at = &all;

	while (*at && *at != ep)
		at = &(*at)->next;
	if (*at)
		*at = ep->next;
}

void forget(int fd)
{
	struct epoll *ep = NULL;
	struct slot *s = slot_of(fd);

	if (s)
		atomic_store(&s->created, 0);
	if (!s || (!atomic_load(&s->rs) && !atomic_load(&s->was_link) && !atomic_load(&s->ep)))
		return;
	pthread_mutex_lock(&instances);
	if (atomic_load(&s->rs) || atomic_load(&s->was_link) || atomic_load(&s->ep))
		for (struct epoll *other = all; other; other = other->next)
			leave(other, fd);
	if ((ep = atomic_exchange(&s->ep, NULL)) && --ep->names)
		ep = NULL; // duplicates are left
	if (ep) {
		unwatch(ep);
		unlist(ep);
	}
	pthread_mutex_unlock(&instances);
	drop(ep);
}

// ASKED are the events that an rsocket is asked for, TOLD those that it may have.
enum { ASKED = EPOLLIN | EPOLLOUT | EPOLLPRI | EPOLLRDHUP, TOLD = ASKED | EPOLLHUP | EPOLLERR };

// asked returns the events to poll an item for; -1 for none.
static int asked(struct item *item)
{
	struct slot *s = item->rs < 0 ? NULL : own(item->rs);
	uint32_t all = (with_plain(item->wanted.events) & ASKED) | EPOLLHUP | EPOLLERR;

	if (item->asleep)
		return -1;
	if (!(item->wanted.events & EPOLLET))
		return all;
	if (s && item->in_edge != atomic_load(&s->in_edge))
		item->told &= ~(uint32_t)(EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR);
	if (s && item->out_edge != atomic_load(&s->out_edge))
		item->told &= ~(uint32_t)EPOLLOUT;
	if (item->told & (EPOLLHUP | EPOLLERR))
		return -1;
	return all & ~item->told;
}

// entry writes the entry of an item for the list to poll, and returns whether there is one. It sets *at_once if the poll
// must not wait, and removes an item that stays TCP.
static int entry(struct epoll *ep, struct item *item, struct pollfd *out, int *at_once)
{
	int events = asked(item);
	short wanted = events & ASKED;

	if (item->nested) {
		*out = (struct pollfd){.fd = item->polled = item->fd, .events = wanted};
		return events >= 0;
	}
	if (item->rs < 0 && !settled(ep, item)) {
		if (events < 0)
			return 0;
		item->kind = link_poll(item->fd, wanted, out);
		item->polled = out->fd;
		if (ours(item->fd) && rs_of(item->fd) < 0 && !link_listens_at(item->fd))
			return 1;
		if (!settled(ep, item)) {
			to_kernel(ep, item);
			return 0;
		}
		events = asked(item);
	}
	if (events < 0)
		return 0;
	*out = (struct pollfd){.fd = item->rs, .events = events & ASKED};
	*at_once |= own_events(item->rs);
	return 1;
}

// list begins a wait and makes the list to poll: the instance of the kernel first, then the rsockets. It returns its
// length, 0 without memory. It sets *at_once if the poll must not wait.
static nfds_t list(struct epoll *ep, struct wait *w, struct pollfd **fds, int *at_once)
{
	nfds_t n = 1;

	pthread_mutex_lock(&ep->mu);
	atomic_fetch_add(&ep->waiting, 1); // before it looks at an item: used_up changes that, and looks here then
	*w = (struct wait){ep->waits, atomic_load(&ep->changes)};
	ep->waits = w;
	*fds = malloc((ep->n + 1) * sizeof **fds);
	if (*fds) {
		(*fds)[0] = (struct pollfd){.fd = ep->fd, .events = POLLIN};
		for (size_t i = ep->n; i-- > 0;)
			n += entry(ep, &ep->items[i], &(*fds)[n], at_once);
	}
	pthread_mutex_unlock(&ep->mu);
	return *fds ? n : 0;
}

static void end_wait(struct epoll *ep, const struct wait *w)
{
	struct wait **at = &ep->waits;

	pthread_mutex_lock(&ep->mu);
	while (*at && *at != w)
		at = &(*at)->next;
	if (*at) // not in a child that a handler has forked
		*at = w->next;
	pthread_mutex_unlock(&ep->mu);
	atomic_fetch_sub(&ep->waiting, 1);
}

// take_wake reads wake, unless a wait must still end for it: the program may be busy with what this one has found.
static void take_wake(struct epoll *ep)
{
	eventfd_t count;
	int old = 0;

	eventfd_read(ep->wake, &count); // first, since a change may follow at any time
	pthread_mutex_lock(&ep->mu);
	for (struct wait *w = ep->waits; w; w = w->next)
		old |= w->seen != atomic_load(&ep->changes);
	old |= now_ms() < ep->known && atomic_load(ep->outside) > 0;
	pthread_mutex_unlock(&ep->mu);
	if (old)
		eventfd_write(ep->wake, 1);
}

// as_told returns the events that a poll has found of an item, as TCP has them. What TCP does not tell counts as told:
// the poll would not wait for it again.
static int as_told(struct item *item, int found)
{
	int own = own_events(item->rs), as = own ? own : as_tcp(item->rs, found, item->wanted.events);

	item->told |= found & ~as & EPOLLHUP;
	return as;
}

// tell writes the event of an item, if it has one, and returns how many.
static int tell(struct item *item, int revents, struct epoll_event *out)
{
	int events = item->rs < 0 && item->kind == INSTEAD ? -1 : asked(item);
	int found = events >= 0 && item->rs >= 0 ? as_told(item, revents) : revents;
	uint32_t got = events < 0 ? 0 : (uint32_t)found & events & TOLD;

	if (!got)
		return 0;
	item->told |= got;
	if (item->rs >= 0) {
		item->in_edge = atomic_load(&own(item->rs)->in_edge);
		item->out_edge = atomic_load(&own(item->rs)->out_edge);
	}
	item->asleep = !!(item->wanted.events & EPOLLONESHOT);
	*out = (struct epoll_event){.events = as_asked(got, item->wanted.events), .data = item->wanted.data};
	return 1;
}

// revents_of returns what a poll has found of an rsocket, of which each duplicate in the instance has an entry.
static short revents_of(const struct pollfd *fds, nfds_t n, int rs)
{
	short found = 0;

	for (nfds_t i = 1; i < n; i++)
		if (fds[i].fd == rs)
			found |= fds[i].revents;
	return found;
}

// collect writes the events that a poll has found.
static int collect(struct epoll *ep, const struct pollfd *fds, nfds_t n, struct epoll_event *out, int most)
{
	int count = 0;

	pthread_mutex_lock(&ep->mu);
	for (size_t i = 0; i < ep->n && count < most; i++) {
		struct item *item = &ep->items[(ep->first + i) % ep->n];
		count += tell(item, revents_of(fds, n, item->rs < 0 ? item->polled : item->rs), &out[count]);
	}
	ep->first++;
	pthread_mutex_unlock(&ep->mu);
	return count;
}

// ordinary writes the events that the kernel's instance has now, without that of wake.
static int ordinary(struct epoll *ep, struct epoll_event *out, int most)
{
	int n = NEXT(epoll_wait)(ep->fd, out, most, 0), kept = 0;

	for (int i = 0; i < n; i++) {
		if (out[i].data.ptr == ep)
			take_wake(ep);
		else
			out[kept++] = out[i];
	}
	return kept;
}

// events_now writes the events of the rsockets and of the kernel's instance, which is first every second time: either
// may have as many as the program takes.
static int events_now(struct epoll *ep, const struct pollfd *fds, nfds_t n, struct epoll_event *out, int most)
{
	int others = !!fds[0].revents, first = others && atomic_fetch_add(&ep->turn, 1) % 2;
	int got = first ? ordinary(ep, out, most) : 0;

	got += collect(ep, fds, n, out + got, most - got);
	if (others && !first && got < most)
		got += ordinary(ep, out + got, most - got);
	return got;
}

// has_event reports whether a poll has found an event of an item, and leaves that to be told.
static int has_event(struct item *item, const struct pollfd *fds, nfds_t n)
{
	struct item copy = *item;
	struct epoll_event e;
	int yes = tell(&copy, revents_of(fds, n, item->rs < 0 ? item->polled : item->rs), &e);

	if (!yes)
		item->told = copy.told;
	return yes;
}

static int look_inside(struct pollfd *fds, nfds_t n);

// ready_now reports whether an instance has events now, as poll would tell.
static int ready_now(int fd)
{
	struct epoll *ep = borrow(fd);
	struct pollfd *fds = NULL, kernel = {.fd = ep ? ep->fd : fd, .events = POLLIN};
	struct wait w;
	int at_once = 0, yes = 0, e = errno;

	if (!ep)
		return NEXT(poll)(&kernel, 1, 0) == 1 && (kernel.revents & POLLIN);
	nfds_t n = list(ep, &w, &fds, &at_once);
	if (n)
		poll_now(fds, n);
	end_wait(ep, &w);
	if (n && fds[0].revents) {
		take_wake(ep);
		yes = NEXT(poll)(&kernel, 1, 0) == 1;
	}
	if (n)
		look_inside(&fds[1], n - 1);
	pthread_mutex_lock(&ep->mu);
	for (size_t i = 0; n && !yes && i < ep->n; i++)
		yes = has_event(&ep->items[i], fds, n);
	pthread_mutex_unlock(&ep->mu);
	free(fds);
	drop(ep);
	errno = e;
	return yes;
}

// look_inside writes the events of the instances in a list, and returns how many entries have events.
static int look_inside(struct pollfd *fds, nfds_t n)
{
	int count = 0;

	for (nfds_t i = 0; i < n; i++) {
		if (has_instance(fds[i].fd))
			fds[i].revents = (fds[i].events & (POLLIN | POLLRDNORM)) && ready_now(fds[i].fd)
						 ? fds[i].events & (POLLIN | POLLRDNORM)
						 : 0;
		count += !!fds[i].revents;
	}
	return count;
}

// nest is a list of what is polled of an instance in another one, or in poll.
struct nest {
	struct nest *next;
	struct epoll *ep;
	struct wait w;
	struct pollfd *fds;
	nfds_t n;
};

static void end_nests(struct nest *all)
{
	while (all) {
		struct nest *next = all->next;
		end_wait(all->ep, &all->w);
		free(all->fds);
		drop(all->ep);
		free(all);
		all = next;
	}
}

// nests_of adds what to poll of the instances in a list, and of those in them. It returns how many entries that are; it
// adds nothing more without memory.
static nfds_t nests_of(const struct pollfd *fds, nfds_t n, struct nest **all, int *at_once)
{
	nfds_t count = 0;

	for (nfds_t i = 0; i < n; i++) {
		struct epoll *ep = fds[i].events & (POLLIN | POLLRDNORM) ? borrow(fds[i].fd) : NULL;
		struct nest *nest = ep ? malloc(sizeof *nest) : NULL;
		if (!nest) {
			drop(ep);
			continue;
		}
		*nest = (struct nest){.next = *all, .ep = ep};
		*all = nest;
		nest->n = list(ep, &nest->w, &nest->fds, at_once);
		count += nest->n + nests_of(nest->fds, nest->n, all, at_once);
	}
	return count;
}

// wait_with is wait_for with the entries of nests behind those of a list.
static int wait_with(struct pollfd *fds, nfds_t n, const struct nest *all, nfds_t more, int timeout_ms)
{
	struct pollfd *whole = malloc((n + more) * sizeof *whole);
	nfds_t at = n;

	if (!whole)
		return fail(ENOMEM);
	memcpy(whole, fds, n * sizeof *fds);
	for (; all; at += all->n, all = all->next)
		memcpy(&whole[at], all->fds, all->n * sizeof *whole);
	int got = wait_for(whole, at, timeout_ms), e = errno;
	memcpy(fds, whole, n * sizeof *fds);
	free(whole);
	errno = e;
	return got;
}

int wait_inside(struct pollfd *fds, nfds_t n, int timeout_ms)
{
	int64_t end = now_ms() + timeout_ms;
	int inside = 0;

	for (nfds_t i = 0; i < n; i++)
		inside |= may_be_instance(fds[i].fd);
	if (!inside)
		return wait_for(fds, n, timeout_ms);
	for (;;) {
		struct nest *all = NULL;
		int at_once = 0, left = timeout_ms < 0 ? -1 : end > now_ms() ? (int)(end - now_ms()) : 0;
		nfds_t more = nests_of(fds, n, &all, &at_once);
		int got = !all ? wait_for(fds, n, left) : wait_with(fds, n, all, more, at_once ? 0 : left), e = errno;
		end_nests(all);
		errno = e;
		if (got > 0 || (!got && at_once))
			got = look_inside(fds, n);
		if (got || !left || interrupted())
			return got ? got : interrupted();
	}
}

// wait_once waits in wait_for also without rsockets: what ends that wait, as a cancellation, would not end one of the
// kernel's instance.
static int wait_once(struct epoll *ep, struct epoll_event *out, int most, int timeout_ms)
{
	struct pollfd *fds;
	struct wait w;
	int at_once = 0;
	nfds_t n = list(ep, &w, &fds, &at_once);
	int got = n ? wait_inside(fds, n, at_once ? 0 : timeout_ms) : fail(ENOMEM), e = errno;

	end_wait(ep, &w);
	errno = e;
	if (got > 0 || (!got && at_once))
		got = events_now(ep, fds, n, out, most);
	free(fds);
	return got;
}

static int wait_all(struct epoll *ep, struct epoll_event *out, int most, int timeout_ms)
{
	int64_t end = timeout_ms < 0 ? 0 : now_ms() + timeout_ms;

	for (;;) {
		int64_t left = timeout_ms < 0 ? -1 : end - now_ms();
		int got = wait_once(ep, out, most, timeout_ms < 0 ? -1 : left > 0 ? (int)left : 0);
		if (got || interrupted() || (timeout_ms >= 0 && left <= 0))
			return got ? got : interrupted();
	}
}

// without_wake removes the event of wake, and returns how many are left.
static int without_wake(int epfd, struct epoll_event *out, int n)
{
	int kept = 0;

	GUARD(0);
	struct epoll *ep = n > 0 ? borrow(epfd) : NULL;
	if (!ep)
		return n;
	for (int i = 0; i < n; i++)
		if (out[i].data.ptr != ep)
			out[kept++] = out[i];
	drop(ep);
	return kept;
}

// wait_outside waits in the kernel if an instance has no rsockets, and returns whether it has done so.
static int wait_outside(int epfd, struct epoll_event *out, int most, int timeout_ms, const sigset_t *mask, int *got)
{
	struct slot *s = make_slot(epfd);
	int waits;

	if (s)
		atomic_fetch_add(&s->outside, 1); // before it looks: one that becomes an instance looks here then
	if ((waits = !has_instance(epfd)))
		*got = NEXT(epoll_pwait)(epfd, out, most, timeout_ms, mask);
	if (s)
		atomic_fetch_sub(&s->outside, 1);
	return waits;
}

int epoll_pwait(int epfd, struct epoll_event *out, int most, int timeout_ms, const sigset_t *mask)
{
	int64_t end = now_ms() + timeout_ms;
	struct masked m;
	int got;

	if (most <= 0)
		return fail(EINVAL);
	if (wait_outside(epfd, out, most, timeout_ms, mask, &got)) {
		// The first rsocket may have come meanwhile: its event is ours.
		int kept = without_wake(epfd, out, got);
		if (kept || kept == got)
			return kept;
		timeout_ms = timeout_ms < 0 ? -1 : end > now_ms() ? (int)(end - now_ms()) : 0;
	}
	GUARD(1);
	struct epoll *ep = borrow(epfd);
	if (!ep) // closed meanwhile
		return NEXT(epoll_pwait)(epfd, out, most, timeout_ms, mask);
	got = mask_begin(mask, &m) ? -1 : wait_all(ep, out, most, timeout_ms);
	int e = errno;
	mask_end(&m);
	drop(ep);
	errno = e;
	return got;
}

int epoll_wait(int epfd, struct epoll_event *out, int most, int timeout_ms)
{
	return epoll_pwait(epfd, out, most, timeout_ms, NULL);
}

int epoll_pwait2(int epfd, struct epoll_event *out, int most, const struct timespec *timeout, const sigset_t *mask)
{
	return timeout && timeout->tv_sec < 0 ? fail(EINVAL) : epoll_pwait(epfd, out, most, to_ms(timeout), mask);
}
