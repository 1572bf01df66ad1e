// librdmacm in one process: descriptors of channels, endpoints with the program's PD, bad input, migration, groups,
// sockets beside other descriptors, and what a forked child may do.
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <rdma/rsocket.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
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

static struct rdma_addrinfo *look(const char *port, int flags)
{
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP, .ai_flags = flags}, *res;

	MUST(!rdma_getaddrinfo("127.0.0.1", (char *)port, &hints, &res));
	return res;
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
	MUST(rdma_get_recv_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS && wc.byte_len == sizeof sent);
	MUST(!rdma_disconnect(id) && !rdma_dereg_mr(mr));
	rdma_destroy_ep(id);
	return NULL;
}

static void endpoints(void)
{
	struct ibv_qp_init_attr a = {.cap = {4, 4, 1, 1, 16}, .sq_sig_all = 1}, b = a;
	struct rdma_addrinfo *passive = look("0", RAI_PASSIVE), *active;
	struct rdma_cm_id *listener, *id, *bare;
	struct ibv_wc wc;
	pthread_t thread;

	MUST(!rdma_create_ep(&listener, passive, NULL, &a) && !rdma_listen(listener, 0));
	snprintf(port, sizeof port, "%d", ntohs(rdma_get_src_port(listener)));
	active = look(port, 0);
	MUST(!pthread_create(&thread, NULL, serve, listener));
	MUST(!rdma_create_ep(&bare, active, NULL, NULL)); // for its device
	struct ibv_pd *pd = ibv_alloc_pd(bare->verbs);
	MUST(pd && !rdma_create_ep(&id, active, pd, &b) && id->pd == pd && id->qp->pd == pd && id->verbs == bare->verbs);
	MUST(id->send_cq && id->send_cq_channel && b.send_cq == id->send_cq);
	FAILS(rdma_create_qp(id, pd, &b), EINVAL); // it has one
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
	MUST(rrecv(s, buf, 2, 0) == 2 && rread(s, buf + 2, 6) == 2 && !strcmp(buf, "1234"));
	MUST(!rfcntl(s, F_SETFL, O_NONBLOCK));
	FAILS(rread(s, buf, 1), EAGAIN);
	MUST(!rclose(c) && rpoll(p, 1, 5000) == 1 && !rclose(s) && !rclose(l));
	FAILS(rclose(l), EBADF);
}

// forked is what a child sees: the objects of the parent are gone, its own work.
static void forked(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_event *ev;
	struct rdma_cm_id *id;
	int status, s = rsocket(AF_INET, SOCK_STREAM, 0);

	MUST(ch && !rdma_create_id(ch, &id, NULL, RDMA_PS_TCP));
	pid_t child = fork();
	if (!child) {
		FAILS(rdma_get_cm_event(ch, &ev), EIO);
		FAILS(rdma_resolve_route(id, 1), EIO);
		FAILS(rlisten(s, 1), EBADF);
		channels();
		endpoints();
		exit(0);
	}
	MUST(waitpid(child, &status, 0) == child && !status);
	MUST(!rdma_destroy_id(id) && !rclose(s));
	rdma_destroy_event_channel(ch);
}

int main(void)
{
	channels();
	devices();
	endpoints();
	sockets();
	forked();
	return 0;
}
