// The part of the engine that librdmacm.so.1 uses for rsockets: engine.h explains the terms. Functions that return
// int64_t return a number, or -errno.
#ifndef VERBENA_ENGINE_RS_H
#define VERBENA_ENGINE_RS_H

#include <stdint.h>

#define VERBENA_RS_ABI 1

struct vrb_rs_iov {
	void *base;
	uint64_t length;
};

struct vrb_rs_poll {
	void *socket; // handle, or NULL for the ordinary descriptor
	int32_t fd;
	int16_t events, revents;
};

// Addresses are struct sockaddr of the families AF_INET and AF_INET6; those that are returned have 128 bytes of room,
// and family 0 if there is none.
#define VERBENA_RS(X) \
	X(int, socket, (int domain, int type, int protocol, void **s)) \
	X(int, close, (void *s)) \
	X(int, bind, (void *s, const void *addr)) \
	X(int, listen, (void *s, int backlog)) \
	X(int, accept, (void *s, void **new, void *addr)) \
	X(int, connect, (void *s, const void *addr)) \
	X(int, shutdown, (void *s, int how)) \
	X(int64_t, recv, (void *s, const struct vrb_rs_iov *iov, int n, int flags, void *addr)) \
	X(int64_t, send, (void *s, const struct vrb_rs_iov *iov, int n, int flags, const void *addr)) \
	X(int64_t, poll, (struct vrb_rs_poll * fds, uint64_t n, int timeout_ms)) \
	X(int, name, (void *s, int peer, void *addr)) \
	X(int, set_option, (void *s, int level, int name, const void *value, uint32_t length)) \
	X(int64_t, option, (void *s, int level, int name, void *value, uint32_t length)) \
	X(int64_t, fcntl, (void *s, int cmd, long arg)) \
	X(int64_t, iomap, (void *s, void *buf, uint64_t length, int prot, int64_t offset)) \
	X(int, iounmap, (void *s, void *buf, uint64_t length)) \
	X(int64_t, iowrite, (void *s, const void *buf, uint64_t length, int64_t offset, int flags))

#define VERBENA_RS_MEMBER(result, name, params) result(*name) params;
struct vrb_rs {
	VERBENA_RS(VERBENA_RS_MEMBER)
};

// verbena_rs returns the table; NULL for another ABI.
const struct vrb_rs *verbena_rs(uint32_t abi);

#endif
