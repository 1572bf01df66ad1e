// Open ports. The number of a port is a descriptor, a semaphore with one token for each datagram.
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "../engine/mad.h"
#include "lib.h"

struct port {
	int fd;
	void *h;
	unsigned int gen;
	struct port *next;
};

static const struct vrb_mads *engine;
static const unsigned int *generation;
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER; // guards the list of ports
static struct port *ports;

static void after_fork(void) { pthread_mutex_init(&mu, NULL); }

// load loads the engine. It returns 0 or an errno. mu is held.
static int load(void)
{
	static int hooked;

	if (!hooked) {
		hooked = 1;
		pthread_atfork(NULL, NULL, after_fork);
	}
	const struct vrb_mads *table = verbena_table("verbena_mad", VERBENA_MAD_ABI, &generation);
	if (!table)
		return errno;
	engine = table;
	return 0;
}

// handle returns the engine's port; NULL for a number that is none, and for a port of the parent.
static void *handle(int fd)
{
	void *h = NULL;

	pthread_mutex_lock(&mu);
	for (struct port *p = ports; p; p = p->next)
		if (p->fd == fd && p->gen == *generation)
			h = p->h;
	pthread_mutex_unlock(&mu);
	return h;
}

int umad_open_port(const char *name, int portnum)
{
	char room[UMAD_CA_NAME_LEN];
	struct port *p = calloc(1, sizeof *p);

	if (!p)
		return -ENOMEM;
	name = um_name(name, room);
	p->fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE | EFD_NONBLOCK); // as the kernel's file is opened
	pthread_mutex_lock(&mu);
	int e = !name ? ENODEV : portnum < 0 ? EINVAL : p->fd < 0 ? errno : load();
	if (!e)
		e = engine->open(name, portnum, p->fd, &p->h);
	if (!e) {
		p->gen = *generation;
		p->next = ports;
		ports = p;
	}
	pthread_mutex_unlock(&mu);
	if (!e)
		return p->fd;
	if (p->fd >= 0)
		close(p->fd);
	free(p);
	return -e;
}

int umad_close_port(int fd)
{
	struct port **at, *p;

	pthread_mutex_lock(&mu);
	for (at = &ports; *at && (*at)->fd != fd; at = &(*at)->next)
		;
	p = *at;
	if (p)
		*at = p->next;
	pthread_mutex_unlock(&mu);
	if (!p)
		return -EINVAL;
	int e = p->gen == *generation ? engine->close(p->h) : 0;
	close(fd);
	free(p);
	return -e;
}

int umad_get_fd(int fd) { return handle(fd) ? fd : -EINVAL; }

// subnet reports whether a class is that of subnet management, whose QP 0 RoCE does not have.
static int subnet(int mgmt_class) { return mgmt_class == 0x01 || mgmt_class == 0x81; }

enum { FIRST_OUI = 0x30, LAST_OUI = 0x4f }; // the classes of vendors that have an OUI; the kernel has none above

static int has_oui(int mgmt_class) { return mgmt_class >= FIRST_OUI && mgmt_class <= LAST_OUI; }

static int add(int fd, uint8_t mgmt_class, uint8_t version, const uint64_t mask[2], uint32_t oui, uint32_t *agent)
{
	void *h = handle(fd);

	if (!h || subnet(mgmt_class) || mgmt_class > LAST_OUI)
		return EINVAL;
	return engine->add_agent(h, mgmt_class, version, mask, has_oui(mgmt_class) ? oui : 0, agent);
}

// add_named registers an agent that has the number that it returns.
static int add_named(int fd, int mgmt_class, int version, const long methods[16 / sizeof(long)], uint32_t oui)
{
	uint64_t mask[2] = {0};
	uint32_t agent;

	if (methods)
		memcpy(mask, methods, sizeof mask);
	if (!handle(fd))
		return -EINVAL;
	return add(fd, mgmt_class, version, mask, oui, &agent) ? -EPERM : (int)agent;
}

// Messages have one datagram each: an agent with RMPP gets and sends the segments as they are.
int umad_register(int fd, int mgmt_class, int version, uint8_t rmpp, long methods[16 / sizeof(long)])
{
	const uint32_t openib = 0x001405; // the vendor that libibumad names

	return add_named(fd, mgmt_class, version, methods, openib);
}

int umad_register_oui(int fd, int mgmt_class, uint8_t rmpp, uint8_t oui[3], long methods[16 / sizeof(long)])
{
	if (!has_oui(mgmt_class))
		return -EINVAL;
	if (handle(fd) && !(oui[0] | oui[1] | oui[2]))
		return -EPERM;
	return add_named(fd, mgmt_class, 1, methods, (uint32_t)oui[0] << 16 | oui[1] << 8 | oui[2]);
}

// umad_register2 tells the program the flags that it knows if there are others.
int umad_register2(int fd, struct umad_reg_attr *a, uint32_t *agent)
{
	const uint32_t known = 1; // UMAD_USER_RMPP

	if (!a || !agent)
		return EINVAL;
	if (a->flags & ~known) {
		a->flags = known;
		return EINVAL;
	}
	if (has_oui(a->mgmt_class) && (!a->oui || a->oui > 0xffffff))
		return EINVAL;
	return add(fd, a->mgmt_class, a->mgmt_class_version, a->method_mask, a->oui, agent);
}

int umad_unregister(int fd, int agent)
{
	void *h = handle(fd);

	return h ? -engine->drop_agent(h, agent) : -EINVAL;
}

// failed sets errno, as all functions that wait do, and returns the negated value.
static int failed(int e)
{
	errno = e;
	return -e;
}

// not_sent sets errno to the reason.
static int not_sent(int e)
{
	errno = e;
	return -EIO;
}

int umad_send(int fd, int agent, void *umad, int length, int timeout_ms, int retries)
{
	struct ib_user_mad *u = umad;
	struct vrb_mad m = {.agent = agent, .qpn = ntohl(u->addr.qpn), .qkey = ntohl(u->addr.qkey),
			    .flow_label = ntohl(u->addr.flow_label), .pkey_index = u->addr.pkey_index, .gid_index = u->addr.gid_index,
			    .hop_limit = u->addr.hop_limit, .traffic_class = u->addr.traffic_class};
	void *h = handle(fd);

	if (!h || length < 0 || length > VRB_MAD_LEN)
		return not_sent(EINVAL);
	if (!u->addr.grh_present) // a LID names nothing here
		return not_sent(EHOSTUNREACH);
	memcpy(m.gid, u->addr.gid, sizeof m.gid);
	memcpy(m.data, u->data, length);
	int e = engine->send(h, &m, timeout_ms, retries);
	return e ? not_sent(e) : 0;
}

int umad_poll(int fd, int timeout_ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	if (!handle(fd))
		return failed(EINVAL);
	int n = poll(&p, 1, timeout_ms);
	return n == 1 ? 0 : n == 0 ? failed(ETIMEDOUT) : -EIO; // errno has the reason, as EINTR
}

static void fill(struct ib_user_mad *u, const struct vrb_mad *m)
{
	memset(u, 0, sizeof *u);
	u->agent_id = m->agent;
	u->status = m->status;
	u->length = sizeof *u + VRB_MAD_LEN;
	u->addr.qpn = htonl(m->qpn);
	u->addr.qkey = htonl(m->qkey);
	u->addr.flow_label = htonl(m->flow_label);
	u->addr.grh_present = 1;
	u->addr.pkey_index = m->pkey_index;
	u->addr.gid_index = m->gid_index;
	u->addr.hop_limit = m->hop_limit;
	u->addr.traffic_class = m->traffic_class;
	memcpy(u->addr.gid, m->gid, sizeof m->gid);
	memcpy(u->data, m->data, VRB_MAD_LEN);
}

// too_small waits for a datagram for which the program has no room, and leaves it.
static int too_small(int fd, int *length, int timeout_ms)
{
	int blocks = !(fcntl(fd, F_GETFL) & O_NONBLOCK);
	int e = umad_poll(fd, timeout_ms ? timeout_ms : blocks ? -1 : 0);

	if (e)
		return e == -ETIMEDOUT && !timeout_ms ? failed(EAGAIN) : e;
	*length = VRB_MAD_LEN;
	return failed(ENOSPC);
}

// umad_recv returns the number of the agent. With timeout_ms 0 it does not wait, unless the program has changed the
// descriptor's flags.
int umad_recv(int fd, void *umad, int *length, int timeout_ms)
{
	void *h = handle(fd);
	struct vrb_mad m;
	uint64_t one;
	int e;

	if (!h || !umad || !length)
		return failed(EINVAL);
	if (*length < VRB_MAD_LEN)
		return too_small(fd, length, timeout_ms);
	do {
		if (timeout_ms && (e = umad_poll(fd, timeout_ms)))
			return e;
		if (read(fd, &one, sizeof one) != sizeof one)
			return -errno; // another thread may have taken what umad_poll has seen
		e = engine->take(h, &m);
	} while (e == EAGAIN);
	if (e)
		return failed(e);
	fill(umad, &m);
	*length = VRB_MAD_LEN;
	return m.agent;
}
