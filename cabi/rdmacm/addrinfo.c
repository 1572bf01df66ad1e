// rdma_getaddrinfo: the C library's getaddrinfo with the terms of RDMA.
#include <arpa/inet.h>
#include <endian.h>
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

// Of the family AF_IB, as programs see it: bits of sib_sid that count.
static const uint64_t PORT_SPACE_BITS = 0xFFFFFFFFFFFF0000, PORT_BITS = 0xFFFF;

// to_ib makes an address of the family AF_IB of an IP address: the GID of a RoCE port is an IP address in another form.
static int to_ib(struct sockaddr **to, socklen_t *length, const struct sockaddr *from, int ps)
{
	struct sockaddr_ib *ib = calloc(1, sizeof *ib);
	uint16_t port;

	if (!ib)
		return ENOMEM;
	if (from->sa_family == AF_INET6) {
		const struct sockaddr_in6 *a = (const struct sockaddr_in6 *)from;
		memcpy(ib->sib_addr.raw, &a->sin6_addr, sizeof ib->sib_addr.raw);
		ib->sib_flowinfo = a->sin6_flowinfo;
		ib->sib_scope_id = a->sin6_scope_id;
		port = ntohs(a->sin6_port);
	} else {
		const struct sockaddr_in *a = (const struct sockaddr_in *)from;
		if (a->sin_addr.s_addr) { // else the wildcard, which is the zero GID
			memset(ib->sib_addr.raw + 10, 0xFF, 2);
			memcpy(ib->sib_addr.raw + 12, &a->sin_addr, 4);
		}
		port = ntohs(a->sin_port);
	}
	ib->sib_family = FAMILY_IB;
	ib->sib_pkey = htons(0xFFFF);
	ib->sib_sid = htobe64((uint64_t)ps << 16 | port);
	ib->sib_sid_mask = htobe64(PORT_SPACE_BITS | (port ? PORT_BITS : 0));
	*to = (struct sockaddr *)ib;
	*length = sizeof *ib;
	return 0;
}

// passive reports whether the result is an address to listen on.
static int passive(const struct rdma_addrinfo *ai) { return ai->ai_flags & RAI_PASSIVE; }

// numeric reports whether a node is an address, which has no canonical name.
static int numeric(const char *node)
{
	struct addrinfo hints = {.ai_flags = AI_NUMERICHOST}, *list;

	if (getaddrinfo(node, NULL, &hints, &list))
		return 0;
	freeaddrinfo(list);
	return 1;
}

// look takes the address from the C library. It returns 0, or an error of getaddrinfo.
static int look(struct rdma_addrinfo *ai, const char *node, const char *service, int family)
{
	struct addrinfo hints = {.ai_family = family == FAMILY_IB ? AF_UNSPEC : family,
				 .ai_flags = passive(ai) ? AI_PASSIVE : 0}, *list;

	if (ai->ai_flags & RAI_NUMERICHOST)
		hints.ai_flags |= AI_NUMERICHOST;
	if (node && !numeric(node))
		hints.ai_flags |= AI_CANONNAME;
	// The C library wants a type, or returns each address once for each.
	hints.ai_socktype = ai->ai_port_space == RDMA_PS_UDP ? SOCK_DGRAM : SOCK_STREAM;
	int e = getaddrinfo(node, service, &hints, &list);
	if (e)
		return e;
	struct sockaddr **addr = passive(ai) ? &ai->ai_src_addr : &ai->ai_dst_addr;
	socklen_t *length = passive(ai) ? &ai->ai_src_len : &ai->ai_dst_len;
	// A name has no GID: without RAI_NUMERICHOST the result is an IP address, as with librdmacm.
	int ib = family == FAMILY_IB && (ai->ai_flags & RAI_FAMILY) && (ai->ai_flags & RAI_NUMERICHOST);
	ai->ai_family = ib ? FAMILY_IB : list->ai_family;
	e = ib ? to_ib(addr, length, list->ai_addr, ai->ai_port_space)
	       : copy_addr(addr, length, list->ai_addr, list->ai_addrlen);
	if (!e && list->ai_canonname) {
		char **name = passive(ai) ? &ai->ai_src_canonname : &ai->ai_dst_canonname;
		*name = strdup(list->ai_canonname);
	}
	freeaddrinfo(list);
	return e ? EAI_MEMORY : 0;
}

// port_of is the port of an IP address, in network byte order; NULL for other families.
static uint16_t *port_of(struct sockaddr *a)
{
	if (a->sa_family == AF_INET)
		return &((struct sockaddr_in *)a)->sin_port;
	return a->sa_family == AF_INET6 ? &((struct sockaddr_in6 *)a)->sin6_port : NULL;
}

// Routes: a struct ibv_path_data is flags and a struct ibv_path_record, which has both GIDs.
enum { PATH_RECORD = 64, PATH_DATA = 72, PATH_DGID = 8, PATH_SGID = 24 };

// PATH_BOTH are the flags of a path for both directions: GMP, PRIMARY, OUTBOUND, INBOUND_REVERSE.
static const uint32_t PATH_BOTH = 0x2B;

// take_route takes the route of the hints: one struct ibv_path_record, which becomes a struct ibv_path_data, or structs
// ibv_path_data. It returns 0 or an errno.
static int take_route(struct rdma_addrinfo *ai, const struct rdma_addrinfo *hints)
{
	size_t n = hints->ai_route ? hints->ai_route_len : 0, head = n == PATH_RECORD ? PATH_DATA - PATH_RECORD : 0;

	if ((n + head) % PATH_DATA)
		return EINVAL;
	if (!n || ai->ai_flags & RAI_NOROUTE)
		return 0;
	char *route = calloc(1, n + head);
	if (!route)
		return ENOMEM;
	if (head)
		memcpy(route, &PATH_BOTH, sizeof PATH_BOTH);
	memcpy(route + head, hints->ai_route, n);
	ai->ai_route = route;
	ai->ai_route_len = n + head;
	return 0;
}

// from_gid makes an IP address of a GID of a path.
static int from_gid(struct sockaddr **to, socklen_t *length, const char *gid)
{
	static const uint8_t mapped[12] = {[10] = 0xFF, [11] = 0xFF};
	struct sockaddr_in in = {.sin_family = AF_INET};
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};

	memcpy(&in.sin_addr, gid + 12, 4);
	memcpy(&in6.sin6_addr, gid, 16);
	if (!memcmp(gid, mapped, sizeof mapped))
		return copy_addr(to, length, (struct sockaddr *)&in, sizeof in);
	return copy_addr(to, length, (struct sockaddr *)&in6, sizeof in6);
}

// from_hints takes the addresses of the hints, or those of their route if they have none. It returns 0 or an errno.
static int from_hints(struct rdma_addrinfo *ai, const struct rdma_addrinfo *hints)
{
	const char *route = hints->ai_route;
	int e = 0;

	if (!passive(ai))
		e = copy_addr(&ai->ai_dst_addr, &ai->ai_dst_len, hints->ai_dst_addr, hints->ai_dst_len);
	if (!e)
		e = copy_addr(&ai->ai_src_addr, &ai->ai_src_len, hints->ai_src_addr, hints->ai_src_len);
	if (e || ai->ai_dst_len || ai->ai_src_len || !route || hints->ai_route_len < PATH_RECORD)
		return e;
	if (hints->ai_route_len > PATH_RECORD)
		route += PATH_DATA - PATH_RECORD;
	if (!passive(ai))
		e = from_gid(&ai->ai_dst_addr, &ai->ai_dst_len, route + PATH_DGID);
	return e ? e : from_gid(&ai->ai_src_addr, &ai->ai_src_len, route + PATH_SGID);
}

// complete takes the addresses, and what else the hints have. It returns 0, an error of getaddrinfo or -1 with errno.
static int complete(struct rdma_addrinfo *ai, const char *node, const char *service, const struct rdma_addrinfo *hints)
{
	struct rdma_addrinfo given = {.ai_flags = ai->ai_flags};
	int e = hints ? take_route(ai, hints) : 0;

	if (!e && hints)
		e = from_hints(&given, hints);
	struct sockaddr **addr = passive(ai) ? &given.ai_src_addr : &given.ai_dst_addr;
	if (!e && (node || service)) {
		e = look(ai, node, service, hints ? hints->ai_family : AF_UNSPEC);
		if (e)
			goto out;
		// Without node, the service is one at the address of the hints.
		struct sockaddr *found = passive(ai) ? ai->ai_src_addr : ai->ai_dst_addr;
		uint16_t *to = *addr ? port_of(*addr) : NULL, *from = port_of(found);
		if (!node && to && from) {
			*to = *from;
			free(found);
			if (passive(ai))
				ai->ai_src_addr = NULL, ai->ai_src_len = 0;
			else
				ai->ai_dst_addr = NULL, ai->ai_dst_len = 0;
			ai->ai_family = (*addr)->sa_family;
		}
	} else if (!e) {
		int unknown = passive(ai) ? AF_INET : AF_UNSPEC;
		ai->ai_family = *addr ? (*addr)->sa_family : hints->ai_family ? hints->ai_family : unknown;
	}
	if (!e && !ai->ai_dst_len && !node) {
		ai->ai_dst_addr = given.ai_dst_addr;
		ai->ai_dst_len = given.ai_dst_len;
		given.ai_dst_addr = NULL;
	}
	// A route's addresses are those of the result only without node.
	if (!e && !ai->ai_src_len && (!node || (hints && hints->ai_src_len))) {
		ai->ai_src_addr = given.ai_src_addr;
		ai->ai_src_len = given.ai_src_len;
		given.ai_src_addr = NULL;
	}
	e = cm_result(e);
out:
	free(given.ai_dst_addr);
	free(given.ai_src_addr);
	return e;
}

// The errno of a result of rdma_getaddrinfo.
static int errno_of(int result)
{
	switch (result) {
	case -1: // rdma_getaddrinfo's own; getaddrinfo does not return EAI_BADFLAGS for our flags
	case EAI_SYSTEM:
		return errno;
	case EAI_MEMORY:
		return ENOMEM;
	case EAI_AGAIN:
		return EAGAIN;
	case EAI_FAMILY:
		return EAFNOSUPPORT;
	}
	return ENOENT;
}

int rdma_getaddrinfo(const char *node, const char *service, const struct rdma_addrinfo *hints,
		     struct rdma_addrinfo **out)
{
	const int known = RAI_PASSIVE | RAI_NUMERICHOST | RAI_NOROUTE | RAI_FAMILY | RAI_SA | RAI_DNS;

	if (!node && !service && !hints)
		return cm_result(EINVAL);
	if (hints && hints->ai_flags & ~known)
		return cm_result(EOPNOTSUPP);
	if (hints && hints->ai_flags & RAI_SA) // no port has a subnet manager
		return cm_result(node || hints->ai_flags & RAI_DNS ? EOPNOTSUPP : service ? ENOENT : EINVAL);
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
		int why = errno_of(e); // getaddrinfo sets none
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

// The look-up runs in the call, as with librdmacm: what is asynchronous is only its event.
int rdma_resolve_addrinfo(struct rdma_cm_id *o, const char *node, const char *service, const struct rdma_addrinfo *hints)
{
	struct cm_id *id = CM_ID(o);
	struct rdma_addrinfo *found = NULL;

	if (!o)
		return cm_result(EINVAL);
	pthread_mutex_lock(&id->mu);
	int busy = id->resolving;
	id->resolving = 1;
	pthread_mutex_unlock(&id->mu);
	if (busy)
		return cm_result(EBUSY);
	int e = rdma_getaddrinfo(node, service, hints, &found);
	e = e ? errno_of(e) : 0;
	pthread_mutex_lock(&id->mu);
	id->resolving = !e;
	id->resolved = found;
	pthread_mutex_unlock(&id->mu);
	if (!e)
		e = CM_CALL(id, write_event, RDMA_CM_EVENT_ADDRINFO_RESOLVED, 0, 0);
	if (!e)
		return cm_complete(id);
	pthread_mutex_lock(&id->mu);
	id->resolving = 0;
	found = id->resolved;
	id->resolved = NULL;
	pthread_mutex_unlock(&id->mu);
	rdma_freeaddrinfo(found);
	return cm_result(e);
}

int rdma_query_addrinfo(struct rdma_cm_id *o, struct rdma_addrinfo **out)
{
	struct cm_id *id = CM_ID(o);

	if (!o || !out)
		return cm_result(EINVAL);
	pthread_mutex_lock(&id->mu);
	struct rdma_addrinfo *found = id->resolved;
	if (found) {
		id->resolved = NULL;
		id->resolving = 0;
	}
	pthread_mutex_unlock(&id->mu);
	if (!found)
		return cm_result(ENOENT);
	*out = found;
	return 0;
}
