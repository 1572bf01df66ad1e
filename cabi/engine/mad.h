// The part of the engine that libibumad.so.3 uses: QP 1 of a device. engine.h explains the terms.
#ifndef VERBENA_ENGINE_MAD_H
#define VERBENA_ENGINE_MAD_H

#include <stdint.h>

#define VERBENA_MAD_ABI 4

enum { VRB_MAD_LEN = 256 };

// vrb_mad is a datagram with its destination or source, in host order.
struct vrb_mad {
	uint32_t agent;
	uint32_t status; // of a request without answer: an errno
	uint32_t qpn, qkey, flow_label;
	uint16_t pkey_index;
	uint8_t gid_index, hop_limit, traffic_class;
	uint8_t gid[16]; // of the other end
	uint8_t data[VRB_MAD_LEN];
};

#define VERBENA_MAD(X) \
	/* open: portnum 0 is the first active port, or the first one; fd is a semaphore of the caller, which gets one */ \
	/* token for each datagram */ \
	X(int, open, (const char *device, int portnum, int fd, void **port)) \
	X(int, close, (void *port)) \
	/* add_agent: oui is that of a class of vendors that have one, else 0 */ \
	X(int, add_agent, (void *port, uint8_t mgmt_class, uint8_t version, const uint64_t *methods, uint32_t oui, \
			   uint32_t *agent)) \
	X(int, drop_agent, (void *port, uint32_t agent)) \
	/* send: a request with a timeout is repeated until its answer comes, which take returns */ \
	X(int, send, (void *port, const struct vrb_mad *mad, int timeout_ms, int retries)) \
	/* take: EAGAIN if there is no datagram */ \
	X(int, take, (void *port, struct vrb_mad *mad))

#define VERBENA_MAD_MEMBER(result, name, params) result(*name) params;
struct vrb_mads {
	VERBENA_MAD(VERBENA_MAD_MEMBER)
};

// verbena_mad returns the table; NULL for another ABI.
const struct vrb_mads *verbena_mad(uint32_t abi);

#endif
