// The sockets of librdmacm.so.1: numbers of descriptors, and the engine's sockets behind them.
#ifndef VERBENA_RDMACM_SOCKET_H
#define VERBENA_RDMACM_SOCKET_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include "../engine/rs.h"

#define RS_HIDDEN __attribute__((visibility("hidden")))

extern RS_HIDDEN const struct vrb_rs *rs_engine;

// rs_load loads the engine if this process has none. It returns 0 or an errno.
RS_HIDDEN int rs_load(void);

// rs_handle returns the engine's socket of a number; NULL for an ordinary descriptor, and for a socket of the parent.
RS_HIDDEN void *rs_handle(int fd);

// rs_of_parent reports whether a number is a socket of the parent, which this process cannot use.
RS_HIDDEN int rs_of_parent(int fd);

// rs_missing returns the errno of a call on a number that has no handle: EIO for a socket of the parent, or EBADF.
RS_HIDDEN int rs_missing(int fd);

int rsocket(int domain, int type, int protocol);
int rbind(int fd, const struct sockaddr *, socklen_t);
int rlisten(int fd, int backlog);
int raccept(int fd, struct sockaddr *, socklen_t *);
int rconnect(int fd, const struct sockaddr *, socklen_t);
int rshutdown(int fd, int how);
int rclose(int fd);
ssize_t rrecv(int fd, void *, size_t, int flags);
ssize_t rrecvfrom(int fd, void *, size_t, int flags, struct sockaddr *, socklen_t *);
ssize_t rrecvmsg(int fd, struct msghdr *, int flags);
ssize_t rsend(int fd, const void *, size_t, int flags);
ssize_t rsendto(int fd, const void *, size_t, int flags, const struct sockaddr *, socklen_t);
ssize_t rsendmsg(int fd, const struct msghdr *, int flags);
ssize_t rread(int fd, void *, size_t);
ssize_t rreadv(int fd, const struct iovec *, int n);
ssize_t rwrite(int fd, const void *, size_t);
ssize_t rwritev(int fd, const struct iovec *, int n);
int rpoll(struct pollfd *, nfds_t, int timeout_ms);
int rselect(int n, fd_set *read, fd_set *write, fd_set *except, struct timeval *);
int rgetpeername(int fd, struct sockaddr *, socklen_t *);
int rgetsockname(int fd, struct sockaddr *, socklen_t *);
int rsetsockopt(int fd, int level, int name, const void *, socklen_t);
int rgetsockopt(int fd, int level, int name, void *, socklen_t *);
int rfcntl(int fd, int cmd, ...);
off_t riomap(int fd, void *, size_t, int prot, int flags, off_t offset);
int riounmap(int fd, void *, size_t);
size_t riowrite(int fd, const void *, size_t, off_t offset, int flags);
int repoll_create(int flags);
int repoll_ctl(int epfd, int op, int fd, struct epoll_event *);
int repoll_wait(int epfd, struct epoll_event *, int most, int timeout_ms);

// repoll_close is rclose of an instance of repoll. It returns 0, or EBADF for another number.
RS_HIDDEN int repoll_close(int fd);

// repoll_forget removes a socket that is closed from all instances, while it has its number.
RS_HIDDEN void repoll_forget(int fd);

#endif
