// rdma_disconnect moves the QP to ERR before the peer hears of it. The acknowledgements of messages that the program has
// received leave first then, so that the peer's sends do not complete as flushed.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>

#include "check.h"

static struct rdma_cm_id *passive, *active;
static char port[8];
static int moved;
static sem_t looked;

// ibv_modify_qp is called by librdmacm too.
int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask)
{
	int (*real)(struct ibv_qp *, struct ibv_qp_attr *, int) = dlsym(RTLD_NEXT, "ibv_modify_qp");

	if (active && qp == active->qp && a->qp_state == IBV_QPS_ERR && !moved++) {
		struct pollfd p = {.fd = passive->channel->fd, .events = POLLIN};
		MUST(poll(&p, 1, 200) == 0);
		sem_post(&looked);
	}
	return real(qp, a, mask);
}

static void *serve(void *listener)
{
	MUST(!rdma_get_request(listener, &passive) && !rdma_accept(passive, NULL));
	return NULL;
}

static struct rdma_addrinfo *look(int flags)
{
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP, .ai_flags = flags}, *list;

	MUST(!rdma_getaddrinfo("127.0.0.1", port, &hints, &list));
	return list;
}

int main(void)
{
	struct ibv_qp_init_attr a = {.cap = {4, 4, 1, 1, 16}, .sq_sig_all = 1};
	struct rdma_cm_id *listener;
	struct rdma_cm_event *ev;
	pthread_t thread;

	sem_init(&looked, 0, 0);
	strcpy(port, "0");
	MUST(!rdma_create_ep(&listener, look(RAI_PASSIVE), NULL, &a) && !rdma_listen(listener, 0));
	snprintf(port, sizeof port, "%d", ntohs(rdma_get_src_port(listener)));
	MUST(!pthread_create(&thread, NULL, serve, listener));
	MUST(!rdma_create_ep(&active, look(0), NULL, &a) && !rdma_connect(active, NULL) && !pthread_join(thread, NULL));
	MUST(!pthread_create(&thread, NULL, (void *(*)(void *))rdma_disconnect, active));
	sem_wait(&looked);
	MUST(!rdma_get_cm_event(passive->channel, &ev) && ev->event == RDMA_CM_EVENT_DISCONNECTED);
	MUST(!rdma_ack_cm_event(ev) && !rdma_disconnect(passive) && !pthread_join(thread, NULL));
	rdma_destroy_ep(active);
	rdma_destroy_ep(passive);
	rdma_destroy_ep(listener);
	printf("done\n");
	return 0;
}
