// Messages between two processes through shared memory: what the least code takes that keeps the promises of an RC
// queue pair. Each process writes its own memory and reads the other's. Both poll.
//
//	line   a cache line there and back
//	copy   an 8-byte message each way, copied to a buffer and back into the answer, without any protocol
//	queue  SENDs of 8 bytes of a queue pair: work requests, a receive queue, a look-up of the queue pair by its number,
//	       PSNs, a check of key, bounds and rights of the receive, acknowledgements, a list of the queue pairs that
//	       wait for them, the longest first, and a completion at both ends, which the program polls
//
// The time is that of a round trip. rate is SENDs per second with 64 outstanding, posted and polled one by one, of so
// many queue pairs in turn. The receiver acknowledges what it has taken out of the ring at once: in one record up to
// PAIRS queue pairs, each with the PSN of its last request.
// Left out: sending again, other operations, lengths and types, several peers, doorbells of several threads, checks of
// what a hostile peer could write, sleeping.
//
// Build and run: cc -O2 -o shm-floor shm-floor.c && ./shm-floor
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 300000, WARMUP = 30000, LINES = 4096, DEPTH = 64, RECEIVES = 2 * DEPTH, CQES = 256, KEYS = 256 };
enum { QPS = 1 << 14, MOST = 10000, FIRST = 17 };
enum { DATA = 1, ACKS = 2 };
enum { BATCH = 16, PAIRS = 6 };
enum { LOCAL_WRITE = 1 };

// A record is one line. Its word is 0 until the record is there.
struct record {
	_Alignas(64) _Atomic uint64_t word;
	uint8_t bytes[56];
};

// shared is written by one process.
struct shared {
	_Alignas(64) _Atomic uint64_t turn; // of line
	_Alignas(64) _Atomic uint64_t ready;
	_Alignas(64) _Atomic uint64_t read; // records of the other process that were taken
	struct record ring[LINES];
};

struct header {
	uint8_t opcode, flags;
	uint16_t pkey;
	uint32_t qpn, psn, msn;
};

struct region {
	uint8_t *base;
	uint64_t length;
	uint32_t key, rights;
};

struct request {
	uint64_t id, address;
	uint32_t length, key, psn;
	uint8_t inlined[8];
};

struct completion {
	uint64_t id;
	uint32_t status, opcode, length, qpn;
};

// An acknowledgement is of a request and of all before it.
struct ack {
	uint32_t qpn, psn;
};

struct qp {
	uint32_t number, peer, state, acked; // acked: 1 + index in acks
	uint32_t next, unacked, expected, msn;
	uint32_t posted, done, filled, taken;
	uint64_t sent;
	struct qp *before, *after; // in waiting
	struct request sends[DEPTH], receives[RECEIVES];
};

static struct shared *own, *peer;
static uint64_t placed, taken, room;
static struct qp *table[QPS];
static struct region regions[KEYS];
static struct completion completions[CQES];
static uint32_t put, got;
static struct ack acks[PAIRS];
static uint32_t nacks;
static struct qp waiting; // those whose requests are not acknowledged, the longest first
static int qps;
static uint8_t buffer[4096];

static double seconds(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void fail(const char *what) {
	fprintf(stderr, "shm-floor: %s\n", what);
	exit(1);
}

static struct record *place(void) {
	while (placed + 1 - room >= LINES)
		room = atomic_load_explicit(&peer->read, memory_order_acquire);
	return &own->ring[placed % LINES];
}

// publish clears the word of the next record before the receiver can reach it.
static void publish(uint8_t kind, uint32_t length) {
	struct record *r = &own->ring[placed++ % LINES];
	atomic_store_explicit(&own->ring[placed % LINES].word, 0, memory_order_relaxed);
	atomic_store_explicit(&r->word, (uint64_t)kind << 32 | length, memory_order_release);
}

// take returns the next record, or NULL.
static struct record *take(uint64_t *word) {
	struct record *r = &peer->ring[taken % LINES];
	*word = atomic_load_explicit(&r->word, memory_order_acquire);
	if (*word == 0)
		return NULL;
	if (++taken % (LINES / 8) == 0)
		atomic_store_explicit(&own->read, taken, memory_order_release);
	return r;
}

static void complete(uint64_t id, uint32_t opcode, uint32_t length, uint32_t qpn) {
	if (put - got == CQES)
		fail("the completion queue is full");
	completions[put++ % CQES] = (struct completion){id, 0, opcode, length, qpn};
}

static void post_receive(struct qp *qp, uint64_t id, uint64_t address, uint32_t length, uint32_t key) {
	if (qp->filled - qp->taken == RECEIVES)
		fail("the receive queue is full");
	qp->receives[qp->filled++ % RECEIVES] = (struct request){.id = id, .address = address, .length = length, .key = key};
}

static void transmit(struct qp *qp, uint8_t opcode, uint32_t psn, const void *data, uint32_t length) {
	struct record *r = place();
	struct header h = {opcode, 0, 0xffff, __builtin_bswap32(qp->peer), __builtin_bswap32(psn), __builtin_bswap32(qp->msn)};
	memcpy(r->bytes, &h, sizeof h);
	memcpy(r->bytes + sizeof h, data, length);
	publish(opcode, sizeof h + length);
}

static void send_acks(void) {
	struct record *r = place();
	memcpy(r->bytes, acks, nacks * sizeof *acks);
	publish(ACKS, nacks * sizeof *acks);
	for (uint32_t i = 0; i < nacks; i++)
		table[__builtin_bswap32(acks[i].qpn) % QPS]->acked = 0;
	nacks = 0;
}

// The peer has the same numbers.
static void acknowledge(struct qp *qp, uint32_t psn) {
	if (qp->acked == 0) {
		if (nacks == PAIRS)
			send_acks();
		qp->acked = ++nacks;
	}
	acks[qp->acked - 1] = (struct ack){__builtin_bswap32(qp->peer), __builtin_bswap32(psn)};
}

static void wait_for_ack(struct qp *qp) {
	qp->before = waiting.before;
	qp->after = &waiting;
	waiting.before->after = qp;
	waiting.before = qp;
}

static void stop_waiting(struct qp *qp) {
	qp->before->after = qp->after;
	qp->after->before = qp->before;
}

static int post_send(struct qp *qp, uint64_t id, const void *data, uint32_t length) {
	if (qp->state != 1 || qp->posted - qp->done == DEPTH || length > 8)
		return -1;
	struct request *w = &qp->sends[qp->posted++ % DEPTH];
	w->id = id;
	w->length = length;
	memcpy(w->inlined, data, length);
	w->psn = qp->next;
	if (qp->next == qp->unacked) {
		qp->sent = __builtin_ia32_rdtsc();
		wait_for_ack(qp);
	}
	qp->next = (qp->next + 1) & 0xffffff;
	transmit(qp, DATA, w->psn, w->inlined, length);
	return 0;
}

static void on_data(struct qp *qp, uint32_t psn, const uint8_t *data, uint32_t length) {
	if (psn != qp->expected || qp->filled == qp->taken)
		fail("a message is lost, or has no receive");
	struct request *w = &qp->receives[qp->taken % RECEIVES];
	struct region *m = &regions[w->key % KEYS];
	uint64_t off = w->address - (uint64_t)(uintptr_t)m->base;
	if (m->key != w->key || !(m->rights & LOCAL_WRITE) || length > w->length || off > m->length ||
	    length > m->length - off)
		fail("a receive is not permitted");
	memcpy(m->base + off, data, length);
	qp->taken++;
	qp->expected = (qp->expected + 1) & 0xffffff;
	qp->msn = (qp->msn + 1) & 0xffffff;
	complete(w->id, DATA, length, qp->number);
	acknowledge(qp, psn);
}

static void on_ack(struct qp *qp, uint32_t psn) {
	if (((psn - qp->unacked) & 0xffffff) >= ((qp->next - qp->unacked) & 0xffffff))
		fail("an acknowledgement is invalid");
	stop_waiting(qp);
	while (qp->unacked != ((psn + 1) & 0xffffff)) {
		struct request *w = &qp->sends[qp->done++ % DEPTH];
		qp->unacked = (qp->unacked + 1) & 0xffffff;
		complete(w->id, ACKS, w->length, qp->number);
	}
	if (qp->unacked != qp->next) {
		qp->sent = __builtin_ia32_rdtsc();
		wait_for_ack(qp);
	}
}

static struct qp *find(uint32_t qpn) {
	struct qp *qp = table[__builtin_bswap32(qpn) % QPS];
	if (!qp || qp->number != __builtin_bswap32(qpn) || qp->state != 1)
		fail("a queue pair does not exist");
	return qp;
}

static void on_record(const uint8_t *bytes, uint8_t kind, uint32_t length) {
	struct header h;
	struct ack a;
	if (kind == ACKS) {
		for (uint32_t at = 0; at + sizeof a <= length; at += sizeof a) {
			memcpy(&a, bytes + at, sizeof a);
			on_ack(find(a.qpn), __builtin_bswap32(a.psn));
		}
		return;
	}
	memcpy(&h, bytes, sizeof h);
	if (length < sizeof h || h.pkey != 0xffff || h.opcode != DATA)
		fail("a packet is invalid");
	on_data(find(h.qpn), __builtin_bswap32(h.psn), bytes + sizeof h, length - sizeof h);
}

static int poll(struct completion *c) {
	uint64_t word;
	struct record *r;
	for (int i = got == put ? 0 : BATCH; i < BATCH && (r = take(&word)); i++) {
		uint8_t copied[56];
		uint32_t length = (uint32_t)word;
		if (length > sizeof copied)
			fail("a record is invalid");
		memcpy(copied, r->bytes, length);
		on_record(copied, word >> 32, length);
	}
	if (nacks > 0)
		send_acks();
	if (got == put)
		return 0;
	*c = completions[got++ % CQES];
	return 1;
}

static void line(int first, int n) {
	for (uint64_t i = 1; i <= (uint64_t)n; i++) {
		if (first)
			atomic_store_explicit(&own->turn, i, memory_order_release);
		while (atomic_load_explicit(&peer->turn, memory_order_acquire) != i) {
		}
		if (!first)
			atomic_store_explicit(&own->turn, i, memory_order_release);
	}
}

static void send_copy(void) {
	memcpy(place()->bytes, buffer, 8);
	publish(DATA, 8);
}

static void receive_copy(void) {
	uint64_t word;
	struct record *r;
	while (!(r = take(&word))) {
	}
	memcpy(buffer, r->bytes, 8);
}

static void copy(int first, int n) {
	for (int i = 0; i < n; i++) {
		if (first)
			send_copy();
		receive_copy();
		if (!first)
			send_copy();
	}
}

static void open_qp(uint32_t number) {
	struct qp *qp = calloc(1, sizeof *qp);
	if (!qp)
		fail("calloc");
	qp->number = qp->peer = number;
	qp->state = 1;
	table[number] = qp;
	regions[5] = (struct region){buffer, sizeof buffer, 5, LOCAL_WRITE};
	for (int i = 0; i < RECEIVES; i++)
		post_receive(qp, i, (uint64_t)(uintptr_t)buffer, 64, 5);
}

// queue exchanges messages. The sent one's completion is polled before the next is sent, as ib_send_lat does.
static void queue(int first, int n) {
	struct qp *qp = table[FIRST];
	for (int i = 0; i < n; i++) {
		int wait_data = 1, wait_ack = 1;
		if (first && post_send(qp, i, buffer, 8))
			fail("post_send");
		while (wait_data || wait_ack) {
			struct completion c;
			if (!poll(&c))
				continue;
			if (c.opcode == ACKS) {
				wait_ack = 0;
				continue;
			}
			wait_data = 0;
			post_receive(qp, c.id, (uint64_t)(uintptr_t)buffer, 64, 5);
			if (!first && post_send(qp, i, buffer, 8))
				fail("post_send");
		}
	}
}

static void rate(int first, int n) {
	struct completion c;
	int posted = 0;
	for (int done = 0; done < n;) {
		while (first && posted < n && posted - done < DEPTH &&
		       post_send(table[FIRST + posted % qps], posted, buffer, 8) == 0)
			posted++;
		if (poll(&c)) {
			if (c.opcode == DATA)
				post_receive(table[c.qpn], c.id, (uint64_t)(uintptr_t)buffer, 64, 5);
			done++;
		}
	}
}

static double run(void (*f)(int, int), int n, int with) {
	size_t size = 2 * sizeof(struct shared);
	struct shared *both = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (both == MAP_FAILED)
		fail("mmap");
	pid_t child = fork();
	if (child < 0)
		fail("fork");
	own = &both[child == 0];
	peer = &both[child != 0];
	placed = taken = room = 0;
	put = got = nacks = 0;
	waiting.before = waiting.after = &waiting;
	qps = with;
	for (int i = 0; i < qps; i++)
		open_qp(FIRST + i);
	atomic_store(&own->ready, 1);
	while (!atomic_load(&peer->ready)) {
	}
	double begin = seconds();
	f(child != 0, n);
	if (child == 0)
		_exit(0);
	double took = seconds() - begin;
	waitpid(child, NULL, 0);
	for (int i = 0; i < qps; i++)
		free(table[FIRST + i]);
	munmap(both, size);
	return took / n;
}

int main(void) {
	static const struct {
		const char *name;
		void (*f)(int, int);
	} modes[] = {{"line", line}, {"copy", copy}, {"queue", queue}};
	for (unsigned i = 0; i < sizeof modes / sizeof *modes; i++) {
		run(modes[i].f, WARMUP, 1);
		printf("%s\t%.2f us\n", modes[i].name, run(modes[i].f, ROUNDS, 1) * 1e6);
	}
	for (int n = 1; n <= MOST; n *= 10)
		printf("rate %d\t%.1f million/s\n", n, 1e-6 / run(rate, 10 * ROUNDS, n));
	return 0;
}
