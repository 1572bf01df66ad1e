// Long WRITEs between two processes out of memory of malloc and mmap, which the receiver may read in place, while the
// program does with the memory what programs do: it forks, unmaps a part, moves it, registers it twice, ends its
// registration, writes to it, and is killed.
#include <infiniband/verbs.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "check.h"
#include "device.h"

enum { SIZE = 1 << 20, PAGE = 4096, KILLS = 8 };

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static int peer; // the socket to the other process

struct target {
	uint32_t qpn, rkey;
	uint64_t addr;
};
static struct target theirs;

static void setup(void)
{
	ctx = open_device("vrb_lo");
	CHECK(ctx && (pd = ibv_alloc_pd(ctx)) && (cq = ibv_create_cq(ctx, 64, NULL, NULL, 0)));
}

// join_peer makes a QP and connects it with that of the other process. The other one may write to mr.
static void join_peer(struct ibv_mr *mr)
{
	struct ibv_qp_init_attr in = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {16, 16, 1, 1, 0}};
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
	struct target mine = {0};
	union ibv_gid gid;

	if (qp)
		CHECK(!ibv_destroy_qp(qp));
	CHECK(qp = ibv_create_qp(pd, &in));
	mine.qpn = qp->qp_num;
	if (mr) {
		mine.rkey = mr->rkey;
		mine.addr = (uintptr_t)mr->addr;
	}
	CHECK(write(peer, &mine, sizeof mine) == sizeof mine && read(peer, &theirs, sizeof theirs) == sizeof theirs);
	CHECK(!ibv_query_gid(ctx, 1, 1, &gid));
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = theirs.qpn,
				 .min_rnr_timer = 1, .ah_attr = {.is_global = 1, .port_num = 1,
					     .grh = {.dgid = gid, .sgid_index = 1, .hop_limit = 1}}};
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 20, .retry_cnt = 7, .rnr_retry = 7};
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					     IBV_QP_MAX_QP_RD_ATOMIC));
	char c = 'r';
	CHECK(write(peer, &c, 1) == 1 && read(peer, &c, 1) == 1);
}

static void post(struct ibv_mr *mr, char *from, size_t n, size_t to)
{
	struct ibv_sge sge = {(uintptr_t)from, n, mr->lkey};
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1,
				 .wr.rdma = {.remote_addr = theirs.addr + to, .rkey = theirs.rkey}}, *bad;

	CHECK(!ibv_post_send(qp, &wr, &bad));
}

static enum ibv_wc_status next(void)
{
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(cq, 1, &wc)))
		;
	CHECK(n == 1);
	return wc.status;
}

static char pattern(size_t i, int seed) { return (i >> 8) + i + seed; }

static void paint(char *p, size_t n, int seed)
{
	for (size_t i = 0; i < n; i++)
		p[i] = pattern(i, seed);
}

// told lets the receiver check what it has: a byte for the seed and the length.
static void told(int seed, uint32_t n)
{
	uint32_t m[2] = {seed, n};
	char c;

	CHECK(write(peer, m, sizeof m) == sizeof m && read(peer, &c, 1) == 1);
}

static struct ibv_mr *reg(void *p, size_t n)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, p, n, IBV_ACCESS_LOCAL_WRITE);

	CHECK(mr);
	return mr;
}

static atomic_int stop;

static void *scribble(void *p)
{
	for (volatile char *c = p; !stop; c[PAGE / 2]++)
		;
	return NULL;
}

static void sender(void)
{
	setup();
	join_peer(NULL);
	char *p = malloc(SIZE + 100);

	// At first the receiver may not read yet; long before the 64th it does.
	struct ibv_mr *mr = reg(p + 33, SIZE);
	for (int i = 0; i < 64; i++) {
		paint(p + 33, SIZE, i);
		post(mr, p + 33, SIZE, 0);
		CHECK(next() == IBV_WC_SUCCESS);
		told(i, SIZE);
	}

	// A child has a copy of its own: the receiver gets the parent's.
	paint(p + 33, SIZE, 70);
	int gate[2];
	CHECK(!pipe(gate));
	pid_t child = fork();
	if (!child) {
		memset(p + 33, 0, SIZE);
		char c = 'c';
		_exit(write(gate[1], &c, 1) != 1);
	}
	char c;
	CHECK(read(gate[0], &c, 1) == 1);
	post(mr, p + 33, SIZE, 0);
	CHECK(next() == IBV_WC_SUCCESS);
	told(70, SIZE);
	CHECK(waitpid(child, NULL, 0) == child);

	// Two regions with a page in common, one of which ends; a thread writes elsewhere on their pages.
	pthread_t thread;
	char *q = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(q != MAP_FAILED);
	paint(q, SIZE, 0);
	CHECK(!pthread_create(&thread, NULL, scribble, q + SIZE - PAGE));
	struct ibv_mr *one = reg(q, SIZE / 2 + 10), *two = reg(q + SIZE / 2 + 10, SIZE / 2 - PAGE);
	post(one, q, SIZE / 2 + 10, 0);
	post(two, q + SIZE / 2 + 10, SIZE / 4, SIZE / 2 + 10);
	CHECK(next() == IBV_WC_SUCCESS && next() == IBV_WC_SUCCESS);
	told(0, SIZE / 2 + 10 + SIZE / 4);
	CHECK(!ibv_dereg_mr(one));
	paint(q, SIZE - PAGE, 80);
	post(two, q + SIZE / 2 + 10, SIZE / 4, SIZE / 2 + 10);
	CHECK(next() == IBV_WC_SUCCESS);
	stop = 1;
	pthread_join(thread, NULL);
	CHECK(!ibv_dereg_mr(two));

	// The memory moves when its region has ended.
	CHECK(!ibv_dereg_mr(mr));
	CHECK(p = realloc(p, 3 * SIZE));
	mr = reg(p, 3 * SIZE);
	paint(p + SIZE, SIZE, 90);
	post(mr, p + SIZE, SIZE, 0);
	CHECK(next() == IBV_WC_SUCCESS);
	told(90, SIZE);

	// What was sent is flushed by RESET. Once the region has ended, nothing more is read.
	for (int i = 0; i < 16; i++)
		post(mr, p + SIZE, SIZE, 0);
	struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
	CHECK(!ibv_modify_qp(qp, &reset, IBV_QP_STATE));
	CHECK(!ibv_dereg_mr(mr));
	free(p);

	// A part of a region is unmapped.
	join_peer(NULL);
	mr = reg(q, SIZE);
	CHECK(!munmap(q + SIZE / 2, PAGE));
	post(mr, q, SIZE, 0);
	CHECK(next() == IBV_WC_LOC_PROT_ERR);
	join_peer(NULL);
	paint(q, SIZE / 2, 100);
	post(mr, q, SIZE / 2, 0);
	CHECK(next() == IBV_WC_SUCCESS);
	told(100, SIZE / 2);
	CHECK(!ibv_dereg_mr(mr));

	// The receiver unmaps a part of its own.
	join_peer(NULL);
	mr = reg(q, SIZE / 2);
	told(-1, 0);
	post(mr, q, SIZE / 2, 0);
	CHECK(next() == IBV_WC_REM_ACCESS_ERR);
	told(-2, 0);
	exit(0);
}

// victim writes until it is killed.
static void victim(void)
{
	setup();
	join_peer(NULL);
	char *p = malloc(SIZE);
	struct ibv_mr *mr = reg(p, SIZE);

	for (int i = 0;; i++) {
		if (i >= 4)
			CHECK(next() == IBV_WC_SUCCESS);
		post(mr, p, SIZE, 0);
		if (i == 20)
			told(0, 0);
	}
}

static void spawn(void (*f)(void), pid_t *pid)
{
	int s[2];

	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, s));
	if (!(*pid = fork())) {
		close(s[0]);
		peer = s[1];
		f();
	}
	close(s[1]);
	peer = s[0];
}

int main(void)
{
	char *p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), c = 'c';
	pid_t pid[KILLS + 1];
	int sockets[KILLS + 1], status;

	CHECK(p != MAP_FAILED);
	for (int i = 0; i <= KILLS; i++) { // before this process has a device
		spawn(i == KILLS ? sender : victim, &pid[i]);
		sockets[i] = peer;
	}
	setup();
	struct ibv_mr *mr = ibv_reg_mr(pd, p, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(mr);
	for (int i = 0; i < KILLS; i++) {
		uint32_t m[2];

		peer = sockets[i];
		join_peer(mr);
		CHECK(read(peer, m, sizeof m) == sizeof m && write(peer, &c, 1) == 1);
		usleep(i * 500);
		kill(pid[i], SIGKILL);
		CHECK(waitpid(pid[i], &status, 0) == pid[i] && WIFSIGNALED(status));
		close(peer);
	}
	peer = sockets[KILLS];
	join_peer(mr);
	for (;;) {
		int32_t m[2];

		// The sender joins anew without a word: then what it sends is a target.
		CHECK(recv(peer, m, sizeof m, MSG_PEEK | MSG_WAITALL) == sizeof m);
		if (m[0] > 255) {
			join_peer(mr);
			continue;
		}
		CHECK(read(peer, m, sizeof m) == sizeof m);
		if (m[0] == -1)
			CHECK(!munmap(p + SIZE / 4, PAGE));
		for (int i = 0; m[0] >= 0 && i < m[1]; i++)
			CHECK(p[i] == pattern(i, m[0]));
		CHECK(write(peer, &c, 1) == 1);
		if (m[0] == -2)
			break;
	}
	CHECK(waitpid(pid[KILLS], &status, 0) == pid[KILLS]);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
