// rdma_getaddrinfo: the C library's getaddrinfo with the terms of RDMA.
#include <netdb.h>

#include "lib.h"

// terms completes QP type and port space from each other. It returns 0 or an errno.
static int terms(struct rdma_addrinfo *ai)
{
	if (!ai->ai_qp_type)
		ai->ai_qp_type =
			ai->ai_port_space == RDMA_PS_UDP || ai->ai_port_space == RDMA_PS_IPOIB ? IBV_QPT_UD : IBV_QPT_RC;
	if (!ai->ai_port_space)
		ai->ai_port_space = ai->ai_qp_type == IBV_QPT_UD   ? RDMA_PS_UDP
				    : ai->ai_qp_type == IBV_QPT_RC ? RDMA_PS_TCP
								   : RDMA_PS_IB;
	if (ai->ai_port_space == RDMA_PS_IB)
		return 0;
	int ud = ai->ai_port_space == RDMA_PS_UDP || ai->ai_port_space == RDMA_PS_IPOIB;
	return ai->ai_qp_type == (ud ? IBV_QPT_UD : IBV_QPT_RC) ? 0 : EINVAL;
}

static int copy_addr(struct sockaddr **to, socklen_t *length, const struct sockaddr *from, socklen_t n)
{
	if (!from || !n)
		return 0;
	*to = calloc(1, n);
	if (!*to)
		return ENOMEM;
	memcpy(*to, from, n);
	*length = n;
	return 0;
}

// passive reports whether the result is an address to listen on.
static int passive(const struct rdma_addrinfo *ai) { return ai->ai_flags & RAI_PASSIVE; }

// look takes the address from the C library. It returns 0, or an error of getaddrinfo.
static int look(struct rdma_addrinfo *ai, const char *node, const char *service, int family)
{
	struct addrinfo hints = {.ai_family = family, .ai_flags = passive(ai) ? AI_PASSIVE : 0}, *list;

	if (ai->ai_flags & RAI_NUMERICHOST)
		hints.ai_flags |= AI_NUMERICHOST;
	// The C library wants a type, or returns each address once for each.
	hints.ai_socktype = ai->ai_port_space == RDMA_PS_UDP ? SOCK_DGRAM : SOCK_STREAM;
	int e = getaddrinfo(node, service, &hints, &list);
	if (e)
		return e;
	ai->ai_family = list->ai_family;
	e = passive(ai) ? copy_addr(&ai->ai_src_addr, &ai->ai_src_len, list->ai_addr, list->ai_addrlen)
			: copy_addr(&ai->ai_dst_addr, &ai->ai_dst_len, list->ai_addr, list->ai_addrlen);
	if (!e && list->ai_canonname) {
		char **name = passive(ai) ? &ai->ai_src_canonname : &ai->ai_dst_canonname;
		*name = strdup(list->ai_canonname);
	}
	freeaddrinfo(list);
	return e ? EAI_MEMORY : 0;
}

// complete takes the addresses, and what else the hints have. It returns 0, an error of getaddrinfo or -1 with errno.
static int complete(struct rdma_addrinfo *ai, const char *node, const char *service, const struct rdma_addrinfo *hints)
{
	int e = 0;

	if (node || service) {
		e = look(ai, node, service, hints && hints->ai_flags & RAI_FAMILY ? hints->ai_family : AF_UNSPEC);
		if (e)
			return e;
	} else if (passive(ai)) {
		ai->ai_family = hints->ai_family ? hints->ai_family : AF_INET;
	} else {
		ai->ai_family = hints->ai_dst_addr ? hints->ai_dst_addr->sa_family : hints->ai_family;
	}
	if (!ai->ai_dst_len && hints && !passive(ai))
		e = copy_addr(&ai->ai_dst_addr, &ai->ai_dst_len, hints->ai_dst_addr, hints->ai_dst_len);
	if (!e && !ai->ai_src_len && hints)
		e = copy_addr(&ai->ai_src_addr, &ai->ai_src_len, hints->ai_src_addr, hints->ai_src_len);
	if (!e && hints && hints->ai_route_len) {
		ai->ai_route = malloc(hints->ai_route_len);
		if (ai->ai_route) {
			memcpy(ai->ai_route, hints->ai_route, hints->ai_route_len);
			ai->ai_route_len = hints->ai_route_len;
		} else {
			e = ENOMEM;
		}
	}
	return cm_result(e);
}

int rdma_getaddrinfo(const char *node, const char *service, const struct rdma_addrinfo *hints,
		     struct rdma_addrinfo **out)
{
	const int known = RAI_PASSIVE | RAI_NUMERICHOST | RAI_NOROUTE | RAI_FAMILY;

	if (!node && !service && !hints)
		return cm_result(EINVAL);
	if (hints && hints->ai_flags & ~known)
		return cm_result(EOPNOTSUPP);
	struct rdma_addrinfo *ai = calloc(1, sizeof *ai);
	if (!ai)
		return cm_result(ENOMEM);
	if (hints) {
		ai->ai_flags = hints->ai_flags;
		ai->ai_qp_type = hints->ai_qp_type;
		ai->ai_port_space = hints->ai_port_space;
	}
	int e = terms(ai);
	if (e) {
		free(ai);
		return cm_result(e);
	}
	e = complete(ai, node, service, hints);
	if (e) {
		int why = errno;
		rdma_freeaddrinfo(ai);
		errno = why;
		return e;
	}
	*out = ai;
	return 0;
}

void rdma_freeaddrinfo(struct rdma_addrinfo *ai)
{
	while (ai) {
		struct rdma_addrinfo *next = ai->ai_next;
		free(ai->ai_src_addr);
		free(ai->ai_dst_addr);
		free(ai->ai_src_canonname);
		free(ai->ai_dst_canonname);
		free(ai->ai_route);
		free(ai->ai_connect);
		free(ai);
		ai = next;
	}
}
