// librdmacm in one process: descriptors of channels, endpoints with the program's PD, bad input, migration, groups,
// sockets beside other descriptors, and what a forked child may do.
#include <arpa/inet.h>
#include <netdb.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <infiniband/ib.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <rdma/rsocket.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

// FAILS requires -1 and an errno.
#define FAILS(call, want) MUST((errno = 0, (call)) == -1 && errno == (want))

static struct sockaddr_in local(int port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};

	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return a;
}

// want takes an event of a type, and returns its ID.
static struct rdma_cm_id *want(struct rdma_event_channel *ch, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *ev;

	MUST(!rdma_get_cm_event(ch, &ev));
	if (ev->event != type || ev->status) {
		printf("%s, status %d: must be %s\n", rdma_event_str(ev->event), ev->status, rdma_event_str(type));
		exit(1);
	}
	struct rdma_cm_id *id = ev->id;
	MUST(!rdma_ack_cm_event(ev));
	return id;
}

static void channels(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel(), *other = rdma_create_event_channel();
	struct epoll_event got, in = {.events = EPOLLIN};
	struct sockaddr_in to = local(7);
	struct rdma_cm_event *ev;
	struct rdma_cm_id *id;
	int e = epoll_create1(0);

	MUST(ch && other && e >= 0 && !epoll_ctl(e, EPOLL_CTL_ADD, ch->fd, &in));
	MUST(epoll_wait(e, &got, 1, 0) == 0);
	MUST(!fcntl(ch->fd, F_SETFL, O_NONBLOCK));
	FAILS(rdma_get_cm_event(ch, &ev), EAGAIN);
	MUST(!rdma_create_id(ch, &id, &e, RDMA_PS_TCP) && id->context == &e && !id->verbs);
	FAILS(rdma_create_id(ch, &id, NULL, 77), EINVAL);
	FAILS(rdma_listen(id, 1) || rdma_listen(id, 1) ? -1 : 0, EINVAL);
	MUST(!rdma_destroy_id(id) && !rdma_create_id(ch, &id, NULL, RDMA_PS_TCP));
	MUST(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 1000));
	MUST(epoll_wait(e, &got, 1, 5000) == 1);
	MUST(!rdma_migrate_id(id, other)); // with its event
	MUST(epoll_wait(e, &got, 1, 0) == 0 && id->channel == other);
	MUST(want(other, RDMA_CM_EVENT_ADDR_RESOLVED) == id && id->verbs && id->pd && id->port_num == 1);
	MUST(id->route.addr.dst_sin.sin_port == htons(7) && rdma_get_dst_port(id) == htons(7) && rdma_get_src_port(id));
	MUST(!rdma_resolve_route(id, 1000) && want(other, RDMA_CM_EVENT_ROUTE_RESOLVED) == id && id->route.num_paths == 1);
	FAILS(rdma_connect(id, NULL), EINVAL); // neither QP nor parameters
	FAILS(rdma_disconnect(id), EINVAL);
	FAILS(rdma_establish(id), EINVAL);
	FAILS(rdma_leave_multicast(id, (struct sockaddr *)&to), EADDRNOTAVAIL);
	int yes = 1;
	MUST(!rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &yes, 1));
	FAILS(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &yes, 3), EINVAL);
	FAILS(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, NULL, 1), EFAULT);
	FAILS(rdma_set_option(id, RDMA_OPTION_ID, 99, &yes, 1), ENOSYS);
	FAILS(rdma_set_option(id, 99, RDMA_OPTION_ID_TOS, &yes, 1), ENOSYS);
	MUST(!rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
	rdma_destroy_event_channel(other);
	close(e);
}

static void devices(void)
{
	int n = 0;
	struct ibv_context **a = rdma_get_devices(&n), **b = rdma_get_devices(NULL);

	MUST(a && b && n > 0 && a[0] == b[0] && !a[n]);
	rdma_free_devices(a);
	rdma_free_devices(b);
}

static struct rdma_addrinfo *look(const char *port, int flags, int family)
{
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP, .ai_family = family,
				      .ai_flags = flags | RAI_FAMILY | RAI_NUMERICHOST}, *res;

	MUST(!rdma_getaddrinfo("127.0.0.1", (char *)port, &hints, &res));
	return res;
}

// The functions and values that release 65 has added, which the installed headers may lack.
enum { ADDRINFO_RESOLVED = 16, USER = 18, SA = 16, DNS = 32, FAMILY_IB = 27 };
int rdma_resolve_addrinfo(struct rdma_cm_id *, const char *, const char *, const struct rdma_addrinfo *);
int rdma_query_addrinfo(struct rdma_cm_id *, struct rdma_addrinfo **);
int rdma_write_cm_event(struct rdma_cm_id *, enum rdma_cm_event_type, int status, uint64_t arg);
int repoll_create(int flags);
int repoll_ctl(int epfd, int op, int fd, struct epoll_event *);
int repoll_wait(int epfd, struct epoll_event *, int most, int timeout_ms);

// gids are addresses of the family AF_IB.
static void gids(void)
{
	struct rdma_addrinfo hints = {.ai_family = FAMILY_IB, .ai_flags = RAI_FAMILY | RAI_NUMERICHOST}, *res;

	MUST(!rdma_getaddrinfo("2001:db8::1", "7471", &hints, &res) && res->ai_family == FAMILY_IB && !res->ai_src_len);
	struct sockaddr_ib *ib = (struct sockaddr_ib *)res->ai_dst_addr;
	MUST(res->ai_dst_len == sizeof *ib && ib->sib_family == FAMILY_IB && ib->sib_pkey == 0xFFFF);
	MUST(ib->sib_addr.sib_raw[0] == 0x20 && ib->sib_addr.sib_raw[15] == 1);
	MUST(ib->sib_sid == htobe64(0x01061D2F) && ib->sib_sid_mask == ~(uint64_t)0);
	rdma_freeaddrinfo(res);
	hints.ai_flags = RAI_FAMILY; // a name has no GID
	MUST(!rdma_getaddrinfo("127.0.0.1", "7", &hints, &res) && res->ai_family == AF_INET);
	rdma_freeaddrinfo(res);
	hints = (struct rdma_addrinfo){.ai_family = AF_INET6}; // counts without RAI_FAMILY
	MUST(rdma_getaddrinfo("127.0.0.1", "7", &hints, &res));
	hints = (struct rdma_addrinfo){.ai_flags = SA};
	FAILS(rdma_getaddrinfo(NULL, "7", &hints, &res), ENOENT);
	FAILS(rdma_getaddrinfo("127.0.0.1", "7", &hints, &res), EOPNOTSUPP);
	hints.ai_flags = DNS;
	MUST(!rdma_getaddrinfo("127.0.0.1", "7", &hints, &res) && res->ai_family == AF_INET);
	rdma_freeaddrinfo(res);
}

// later are the calls of release 65.
static void later(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_addrinfo *res;
	struct rdma_cm_event *ev;
	struct rdma_cm_id *id, *sync;
	uint64_t arg = 1ull << 40 | 7, got;

	MUST(ch && !rdma_create_id(ch, &id, NULL, RDMA_PS_TCP) && !rdma_create_id(NULL, &sync, NULL, RDMA_PS_TCP));
	FAILS(rdma_query_addrinfo(id, &res), ENOENT);
	FAILS(rdma_resolve_addrinfo(id, "not an address", "7", NULL), ENOENT);
	MUST(!rdma_resolve_addrinfo(id, "127.0.0.1", "7", NULL));
	FAILS(rdma_resolve_addrinfo(id, "127.0.0.1", "7", NULL), EBUSY);
	MUST(want(ch, ADDRINFO_RESOLVED) == id && !rdma_query_addrinfo(id, &res) && res->ai_dst_len == sizeof(struct sockaddr_in));
	rdma_freeaddrinfo(res);
	FAILS(rdma_query_addrinfo(id, &res), ENOENT);
	MUST(!rdma_resolve_addrinfo(id, "127.0.0.1", "7", NULL) && want(ch, ADDRINFO_RESOLVED) == id); // freed with the ID
	MUST(!rdma_resolve_addrinfo(sync, "127.0.0.1", "7", NULL) && sync->event->event == (int)ADDRINFO_RESOLVED);
	MUST(!rdma_query_addrinfo(sync, &res));
	rdma_freeaddrinfo(res);
	FAILS(rdma_write_cm_event(id, RDMA_CM_EVENT_ESTABLISHED, 0, 0), EINVAL);
	MUST(!rdma_write_cm_event(id, USER, -3, arg) && !rdma_get_cm_event(ch, &ev));
	memcpy(&got, &ev->param, sizeof got);
	MUST(ev->id == id && ev->event == (int)USER && ev->status == -3 && got == arg);
	MUST(!strcmp(rdma_event_str(ev->event), "RDMA_CM_EVENT_USER") && !rdma_ack_cm_event(ev));
	MUST(!rdma_destroy_id(id) && !rdma_destroy_id(sync));
	rdma_destroy_event_channel(ch);
}

static char port[8];
static char sent[16] = "over an endpoint", got[16];

// serve accepts one connection on an endpoint, receives and ends.
static void *serve(void *listener)
{
	struct rdma_cm_id *id;
	struct ibv_wc wc;

	MUST(!rdma_get_request(listener, &id) && id->qp && id->channel != ((struct rdma_cm_id *)listener)->channel);
	struct ibv_mr *mr = rdma_reg_msgs(id, got, sizeof got);
	MUST(mr && !rdma_post_recv(id, NULL, got, sizeof got, mr) && !rdma_accept(id, NULL));
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr init;
	FAILS(rdma_accept(id, NULL), EINVAL); // and changes nothing
	MUST(!ibv_query_qp(id->qp, &a, IBV_QP_STATE, &init) && a.qp_state == IBV_QPS_RTS);
	FAILS(rdma_reject(id, NULL, 0), EINVAL);
	MUST(rdma_get_recv_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS && wc.byte_len == sizeof sent);
	MUST(!rdma_disconnect(id) && !rdma_dereg_mr(mr));
	rdma_destroy_ep(id);
	return NULL;
}

// record fills a struct ibv_path_record of the way from 127.0.0.1 to 127.0.0.1 with an MTU of 1024 and a traffic class.
static void record(uint8_t *b)
{
	static const uint8_t gid[16] = {[10] = 0xFF, 0xFF, 127, 0, 0, 1};

	memset(b, 0, 64);
	memcpy(b + 8, gid, 16);
	memcpy(b + 24, gid, 16);
	b[47] = 9, b[48] = 0x44, b[49] = 0x81, b[50] = b[51] = 0xFF, b[54] = 0x80 | 3, b[56] = 0x80 | 16;
}

// routed checks the route and the destination of a result, and the endpoint that is made of it.
static void routed(const char *node, struct rdma_addrinfo *hints, size_t length)
{
	struct rdma_addrinfo *res;
	struct rdma_cm_id *id;

	MUST(!rdma_getaddrinfo((char *)node, "7471", hints, &res) && res->ai_route_len == length);
	struct sockaddr_in *dst = (struct sockaddr_in *)res->ai_dst_addr;
	MUST(res->ai_dst_len == sizeof *dst && dst->sin_port == htons(7471) && dst->sin_addr.s_addr == htonl(0x7F000001));
	MUST(res->ai_family == AF_INET && !res->ai_src_canonname && !res->ai_dst_canonname);
	MUST(!length || (*(uint32_t *)res->ai_route == 0x2B && !memcmp((char *)res->ai_route + 8, hints->ai_route, 64)));
	MUST(!rdma_create_ep(&id, res, NULL, NULL) && id->route.num_paths == 1);
	MUST(id->route.path_rec->traffic_class == (length ? 0x44 : 0) && (!length || id->route.path_rec->mtu == 3));
	rdma_destroy_ep(id);
	rdma_freeaddrinfo(res);
}

// routes are of the hints of rdma_getaddrinfo.
static void routes(void)
{
	uint8_t path[64];
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(0x7F000001)};
	struct rdma_addrinfo hints = {.ai_route = path, .ai_route_len = sizeof path}, *res;

	record(path);
	routed("127.0.0.1", &hints, 72);
	routed(NULL, &hints, 72); // its GIDs are the addresses
	hints.ai_flags = RAI_NOROUTE;
	routed("127.0.0.1", &hints, 0);
	routed(NULL, &hints, 0);
	hints.ai_route_len = 63;
	FAILS(rdma_getaddrinfo("127.0.0.1", "7471", &hints, &res), EINVAL);
	hints = (struct rdma_addrinfo){.ai_dst_addr = (struct sockaddr *)&to, .ai_dst_len = sizeof to};
	routed(NULL, &hints, 0); // the service at the address of the hints
	MUST(!rdma_getaddrinfo(NULL, NULL, &hints, &res) && ((struct sockaddr_in *)res->ai_dst_addr)->sin_port == htons(9));
	rdma_freeaddrinfo(res);
	MUST(!rdma_getaddrinfo("localhost", "7471", NULL, &res) && res->ai_dst_canonname && !res->ai_src_canonname);
	rdma_freeaddrinfo(res);
	hints = (struct rdma_addrinfo){.ai_flags = RAI_PASSIVE};
	MUST(!rdma_getaddrinfo("localhost", "7471", &hints, &res) && res->ai_src_canonname && !res->ai_dst_canonname);
	MUST(!res->ai_dst_len);
	rdma_freeaddrinfo(res);
	struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	hints.ai_src_addr = (struct sockaddr *)&at;
	hints.ai_src_len = sizeof at;
	MUST(!rdma_getaddrinfo(NULL, NULL, &hints, &res) && res->ai_src_len == sizeof at && res->ai_family == AF_INET6);
	rdma_freeaddrinfo(res);
}

// again makes a QP with attributes of which the first call has refused one, as programs look for the largest value.
static void again(struct rdma_cm_id *id, struct ibv_pd *pd)
{
	struct ibv_qp_init_attr a = {.qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 1 << 30}};

	FAILS(rdma_create_qp(id, pd, &a), EINVAL);
	MUST(!a.send_cq && !a.recv_cq && !id->send_cq && !id->recv_cq); // those of the call are destroyed
	a.cap.max_inline_data = 16;
	MUST(!rdma_create_qp(id, pd, &a) && a.send_cq == id->send_cq && a.recv_cq == id->recv_cq);
}

// kept requires that an endpoint that listens has the program's PD, also without attributes of a QP.
static void kept(struct rdma_addrinfo *passive, struct ibv_pd *pd)
{
	struct ibv_qp_init_attr a = {.cap = {4, 4, 1, 1, 16}};
	struct rdma_cm_id *id;

	MUST(!rdma_create_ep(&id, passive, pd, NULL) && id->pd == pd);
	rdma_destroy_ep(id);
	MUST(!rdma_create_ep(&id, passive, pd, &a) && id->pd == pd);
	rdma_destroy_ep(id);
}

// family is that of the endpoints' addresses.
static void endpoints(int family)
{
	struct ibv_qp_init_attr a = {.cap = {4, 4, 1, 1, 16}, .sq_sig_all = 1}, b = a;
	struct rdma_addrinfo *passive = look("0", RAI_PASSIVE, family), *active;
	struct rdma_cm_id *listener, *id, *bare;
	struct ibv_wc wc;
	pthread_t thread;

	MUST(!rdma_create_ep(&listener, passive, NULL, &a) && !rdma_listen(listener, 0));
	snprintf(port, sizeof port, "%d", ntohs(rdma_get_src_port(listener)));
	active = look(port, 0, family);
	MUST(!pthread_create(&thread, NULL, serve, listener));
	MUST(!rdma_create_ep(&bare, active, NULL, NULL)); // for its device
	struct ibv_pd *pd = ibv_alloc_pd(bare->verbs);
	MUST(pd && !rdma_create_ep(&id, active, pd, &b) && id->pd == pd && id->qp->pd == pd && id->verbs == bare->verbs);
	MUST(id->route.addr.dst_addr.sa_family == (family ? family : AF_INET));
	MUST(id->send_cq && id->send_cq_channel && b.send_cq == id->send_cq);
	FAILS(rdma_create_qp(id, pd, &b), EINVAL); // it has one
	again(bare, pd);
	kept(passive, pd);
	MUST(!rdma_connect(id, NULL) && id->event->event == RDMA_CM_EVENT_ESTABLISHED);
	MUST(!rdma_post_send(id, NULL, sent, sizeof sent, NULL, IBV_SEND_INLINE));
	MUST(rdma_get_send_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	MUST(!rdma_disconnect(id) && !pthread_join(thread, NULL) && !memcmp(sent, got, sizeof sent));
	rdma_destroy_ep(id);
	rdma_destroy_ep(bare);
	rdma_destroy_ep(listener);
	MUST(!ibv_dealloc_pd(pd));
	rdma_freeaddrinfo(passive);
	rdma_freeaddrinfo(active);
}

static void sockets(void)
{
	struct sockaddr_in a = local(0);
	socklen_t n = sizeof a;
	char buf[8] = "", byte = 0;
	int pipes[2], l = rsocket(AF_INET, SOCK_STREAM, 0), c = rsocket(AF_INET, SOCK_STREAM, 0);

	MUST(l >= 0 && c >= 0 && !pipe(pipes));
	MUST(!rbind(l, (struct sockaddr *)&a, n) && !rlisten(l, 5) && !rgetsockname(l, (struct sockaddr *)&a, &n));
	MUST(!rconnect(c, (struct sockaddr *)&a, n));
	int s = raccept(l, (struct sockaddr *)&a, &n);
	MUST(s >= 0 && n == sizeof a);
	FAILS(rread(pipes[0], &byte, 1), EBADF);
	struct pollfd p[] = {{.fd = s, .events = POLLIN}, {.fd = pipes[0], .events = POLLIN}};
	MUST(rpoll(p, 2, 0) == 0);
	MUST(write(pipes[1], "x", 1) == 1 && rpoll(p, 2, 5000) == 1 && p[1].revents == POLLIN && !p[0].revents);
	MUST(rwrite(c, "1234", 4) == 4 && read(pipes[0], &byte, 1) == 1 && rpoll(p, 2, 5000) == 1 && p[0].revents == POLLIN);
	fd_set set;
	FD_ZERO(&set);
	FD_SET(s, &set);
	FD_SET(pipes[0], &set);
	MUST(rselect((s > pipes[0] ? s : pipes[0]) + 1, &set, NULL, NULL, NULL) == 1 && FD_ISSET(s, &set));
	struct timeval negative = {.tv_sec = -1};
	FAILS(rselect(s + 1, &set, NULL, NULL, &negative), EINVAL);
	MUST(!close(pipes[0]) && !close(pipes[1]));
	FD_SET(pipes[0], &set);
	MUST(rselect((s > pipes[0] ? s : pipes[0]) + 1, &set, NULL, NULL, NULL) == 1 && FD_ISSET(s, &set));
	FD_ZERO(&set);
	FD_SET(pipes[0], &set);
	FAILS(rselect(pipes[0] + 1, &set, NULL, NULL, NULL), EBADF);
	MUST(rrecv(s, buf, 2, 0) == 2 && rread(s, buf + 2, SIZE_MAX) == 2 && !strcmp(buf, "1234"));
	MUST(!rfcntl(s, F_SETFL, O_NONBLOCK));
	FAILS(rread(s, buf, 1), EAGAIN);
	FAILS(riounmap(s, buf, SIZE_MAX), EINVAL); // no map has it
	MUST(!rclose(c) && rpoll(p, 1, 5000) == 1 && !rclose(s) && !rclose(l));
	FAILS(rclose(l), EBADF);
}

// datagrams sends to addresses that are cut: the message must not go to the peer of rconnect instead.
static void datagrams(void)
{
	struct sockaddr_in a = local(0);
	socklen_t n = sizeof a;
	char buf[8] = "";
	int to = rsocket(AF_INET, SOCK_DGRAM, 0), from = rsocket(AF_INET, SOCK_DGRAM, 0);
	struct iovec part = {"cut", 3};
	struct msghdr cut = {.msg_name = &a, .msg_namelen = sizeof a - 1, .msg_iov = &part, .msg_iovlen = 1};

	MUST(to >= 0 && from >= 0);
	MUST(!rbind(to, (struct sockaddr *)&a, n) && !rgetsockname(to, (struct sockaddr *)&a, &n));
	MUST(!rconnect(from, (struct sockaddr *)&a, n));
	FAILS(rsendto(from, "cut", 3, 0, (struct sockaddr *)&a, sizeof a - 1), EINVAL);
	FAILS(rsendmsg(from, &cut, 0), EINVAL);
	MUST(rsendto(from, "whole", 5, 0, (struct sockaddr *)&a, n) == 5);
	MUST(rrecv(to, buf, sizeof buf, 0) == 5 && !memcmp(buf, "whole", 5));
	MUST(!rsetsockopt(to, SOL_SOCKET, SO_BROADCAST, &(int){1}, sizeof(int))); // of the UDP socket
	FAILS(rsetsockopt(to, SOL_SOCKET, 9999, &(int){1}, sizeof(int)), ENOPROTOOPT);
	MUST(!rclose(to) && !rclose(from));
}

// full accepts a connection while the process may have no more descriptors: the connection waits, as with accept.
static void full(void)
{
	struct sockaddr_in a = local(0);
	socklen_t n = sizeof a;
	struct rlimit before, now;
	char buf[4] = "";
	int l = rsocket(AF_INET, SOCK_STREAM, 0), c = rsocket(AF_INET, SOCK_STREAM, 0), next = dup(0);

	MUST(l >= 0 && c >= 0 && next >= 0 && !close(next) && !getrlimit(RLIMIT_NOFILE, &before));
	MUST(!rbind(l, (struct sockaddr *)&a, n) && !rlisten(l, 5) && !rgetsockname(l, (struct sockaddr *)&a, &n));
	MUST(!rconnect(c, (struct sockaddr *)&a, n) && rwrite(c, "abc", 3) == 3);
	now = before;
	now.rlim_cur = next;
	MUST(!setrlimit(RLIMIT_NOFILE, &now));
	FAILS(raccept(l, NULL, NULL), EMFILE);
	struct pollfd waits = {.fd = l, .events = POLLIN};
	MUST(!setrlimit(RLIMIT_NOFILE, &before) && rpoll(&waits, 1, 5000) == 1);
	int s = raccept(l, NULL, NULL);
	MUST(s >= 0 && rread(s, buf, 3) == 3 && !strcmp(buf, "abc") && !rfcntl(l, F_SETFL, O_NONBLOCK));
	FAILS(raccept(l, NULL, NULL), EAGAIN);
	MUST((next = dup(0)) >= 0 && next < s + 3 && !close(next)); // calls that fail leave no descriptor
	MUST(!rclose(s) && !rclose(c) && !rclose(l));
}

static atomic_int current, over;

// use calls what it can with the number of a socket.
static void *use(void *arg)
{
	while (!atomic_load(&over)) {
		int fd = atomic_load(&current), value;
		socklen_t n = sizeof value;

		rgetsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &n);
		rfcntl(fd, F_GETFL);
		rlisten(fd, 1);
	}
	return NULL;
}

// A thread closes sockets that another one uses.
static void shared(void)
{
	pthread_t thread;

	atomic_store(&current, -1);
	MUST(!pthread_create(&thread, NULL, use, NULL));
	for (int i = 0; i < 5000; i++) {
		int s = rsocket(AF_INET, SOCK_STREAM, 0);

		MUST(s >= 0);
		atomic_store(&current, s);
		for (volatile int wait = 0; wait < i % 50 * 20; wait++)
			;
		MUST(!rclose(s));
	}
	atomic_store(&over, 1);
	MUST(!pthread_join(thread, NULL));
}

// a call of repoll_wait in a thread
static void *watch(void *fd)
{
	struct epoll_event got;

	return (void *)(intptr_t)repoll_wait((int)(intptr_t)fd, &got, 1, -1);
}

// watched are a socket and a pipe in an instance of repoll.
static void watched(void)
{
	struct sockaddr_in a = local(0);
	socklen_t n = sizeof a;
	struct epoll_event got[4], e = {.events = EPOLLIN, .data.u64 = 1ull << 40};
	char buf[8];
	int pipes[2], l = rsocket(AF_INET, SOCK_STREAM, 0), c = rsocket(AF_INET, SOCK_STREAM, 0), r = repoll_create(0);
	pthread_t thread;
	void *result;

	MUST(l >= 0 && c >= 0 && r >= 0 && !pipe(pipes));
	MUST(!rbind(l, (struct sockaddr *)&a, n) && !rlisten(l, 5) && !rgetsockname(l, (struct sockaddr *)&a, &n));
	MUST(!rconnect(c, (struct sockaddr *)&a, n));
	int s = raccept(l, NULL, NULL);
	MUST(s >= 0 && !repoll_ctl(r, EPOLL_CTL_ADD, s, &e) && repoll_ctl(r, EPOLL_CTL_ADD, s, &e) == EEXIST);
	MUST(repoll_ctl(r, EPOLL_CTL_MOD, c, &e) == ENOENT && repoll_ctl(r, EPOLL_CTL_ADD, -1, &e) == EBADF);
	MUST(repoll_ctl(s, EPOLL_CTL_ADD, c, &e) == EINVAL && repoll_ctl(r, 99, c, &e) == EINVAL);
	MUST(repoll_wait(r, got, 4, 0) == 0);
	MUST(!pthread_create(&thread, NULL, watch, (void *)(intptr_t)r));
	e.data.u64 = 2;
	MUST(!repoll_ctl(r, EPOLL_CTL_ADD, pipes[0], &e) && write(pipes[1], "x", 1) == 1);
	MUST(!pthread_join(thread, &result) && (intptr_t)result == 1); // it has heard of the pipe
	MUST(rwrite(c, "1234", 4) == 4 && read(pipes[0], buf, 1) == 1);
	MUST(repoll_wait(r, got, 4, 5000) == 1 && got[0].events == EPOLLIN && got[0].data.u64 == 1ull << 40);
	MUST(repoll_wait(r, got, 4, 5000) == 1); // it is a level
	MUST(rread(s, buf, 8) == 4 && repoll_wait(r, got, 4, 0) == 0);
	e.events = EPOLLOUT;
	MUST(!repoll_ctl(r, EPOLL_CTL_MOD, s, &e) && repoll_wait(r, got, 4, 5000) == 1 && got[0].events == EPOLLOUT);
	MUST(!repoll_ctl(r, EPOLL_CTL_DEL, s, NULL) && repoll_ctl(r, EPOLL_CTL_DEL, s, NULL) == ENOENT);
	int closed = rsocket(AF_INET, SOCK_STREAM, 0);
	MUST(closed >= 0 && !repoll_ctl(r, EPOLL_CTL_ADD, closed, &e) && !rclose(closed));
	int again = rsocket(AF_INET, SOCK_STREAM, 0); // has the number of the socket that was closed
	MUST(again == closed && !repoll_ctl(r, EPOLL_CTL_ADD, again, &e) && !rclose(again));
	int twice[2];
	MUST(!pipe(twice) && !repoll_ctl(r, EPOLL_CTL_ADD, twice[0], &e) && !close(twice[0]));
	MUST(repoll_wait(r, got, 4, 10) == 0); // it sleeps: the closed descriptor is not in the list any more
	MUST(repoll_ctl(r, EPOLL_CTL_DEL, twice[0], NULL) == ENOENT && !close(twice[1]));
	MUST(!pthread_create(&thread, NULL, watch, (void *)(intptr_t)r) && !rclose(r));
	MUST(!pthread_join(thread, &result)); // closed before or while it waits
	MUST((intptr_t)result == EBADF || (intptr_t)result == EINVAL);
	FAILS(rclose(r), EBADF);
	MUST(repoll_wait(r, got, 4, 0) == EINVAL && !rclose(c) && !rclose(s) && !rclose(l));
	close(pipes[0]);
	close(pipes[1]);
}

static void *wait_for_event(void *ch)
{
	struct rdma_cm_event *ev;

	rdma_get_cm_event(ch, &ev);
	return NULL;
}

// destroyed destroys an ID and a channel that threads of the parent use: the child has no such threads.
static void destroyed(struct rdma_cm_id *id, struct rdma_event_channel *ch)
{
	int fd = ch->fd;

	alarm(20);
	MUST(!rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
	FAILS(fcntl(fd, F_GETFD), EBADF);
}

// forked is what a child sees: the objects of the parent are gone, its own work.
static void forked(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel(), *busy = rdma_create_event_channel();
	struct rdma_cm_event *ev, *held;
	struct rdma_cm_id *id, *of_held;
	struct sockaddr_in to = local(7);
	pthread_t thread;
	int status, s = rsocket(AF_INET, SOCK_STREAM, 0);

	MUST(ch && busy && !rdma_create_id(ch, &id, NULL, RDMA_PS_TCP));
	MUST(!rdma_create_id(ch, &of_held, NULL, RDMA_PS_TCP));
	MUST(!rdma_resolve_addr(of_held, NULL, (struct sockaddr *)&to, 1000) && !rdma_get_cm_event(ch, &held));
	MUST(!pthread_create(&thread, NULL, wait_for_event, busy) && !usleep(100000));
	pid_t child = fork();
	if (!child) {
		FAILS(rdma_get_cm_event(ch, &ev), EIO);
		FAILS(rdma_resolve_route(id, 1), EIO);
		FAILS(rlisten(s, 1), EIO);
		destroyed(of_held, busy);
		channels();
		endpoints(0);
		exit(0);
	}
	MUST(waitpid(child, &status, 0) == child && !status);
	MUST(!rdma_ack_cm_event(held) && !rdma_destroy_id(of_held));
	MUST(!rdma_destroy_id(id) && !rclose(s));
	rdma_destroy_event_channel(ch);
}

// joined joins a group and destroys the QP: the ID is in the group until it leaves.
static void joined(void)
{
	struct ibv_qp_init_attr a = {.cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_UD}, b = a;
	struct sockaddr_in here = local(0), group = local(0), other = local(0);
	struct rdma_cm_id *id;

	group.sin_addr.s_addr = htonl(0xEF010203);
	other.sin_addr.s_addr = htonl(0xEF010204);
	MUST(!rdma_create_id(NULL, &id, NULL, RDMA_PS_UDP) && !rdma_bind_addr(id, (struct sockaddr *)&here));
	MUST(!rdma_create_qp(id, NULL, &a) && !rdma_join_multicast(id, (struct sockaddr *)&group, NULL));
	MUST(!rdma_join_multicast(id, (struct sockaddr *)&other, NULL));
	rdma_destroy_qp(id);
	MUST(!id->qp && !rdma_leave_multicast(id, (struct sockaddr *)&group));
	FAILS(rdma_leave_multicast(id, (struct sockaddr *)&group), EADDRNOTAVAIL);
	MUST(!rdma_create_qp(id, NULL, &b) && !rdma_join_multicast(id, (struct sockaddr *)&group, NULL));
	rdma_destroy_ep(id); // in both groups
}

// An address that is none: the result is for gai_strerror, and errno is set too.
static void unknown(void)
{
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP, .ai_flags = RAI_NUMERICHOST}, *res;

	errno = 0;
	MUST(rdma_getaddrinfo("not an address", "7", &hints, &res) == EAI_NONAME && errno == ENOENT);
}

int main(void)
{
	channels();
	devices();
	unknown();
	gids();
	routes();
	later();
	endpoints(0);
	endpoints(FAMILY_IB);
	sockets();
	datagrams();
	full();
	joined();
	watched();
	shared();
	forked();
	return 0;
}
