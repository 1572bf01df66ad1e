// Round trips over loopback UDP between two processes that poll non-blocking sockets: what the kernel takes for the
// packets of an 8-byte RC SEND and its answer, without any protocol.
//
//	plain  one packet of 24 bytes each way, connected sockets, send and recv
//	bulk   the same with the calls and options of Verbena's sockets: sendmmsg, recvmmsg, UDP_GRO, TOS and TTL
//	acked  as bulk, with an acknowledgement of 20 bytes behind each packet, both in one GSO run
//
// Build and run: cc -O2 -o udp-floor udp-floor.c && ./udp-floor
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

enum { ROUNDS = 30000, WARMUP = 1000, SLOTS = 16, SLOT = 65536, MESSAGE = 24, ACK = 20 };
enum mode { PLAIN, BULK, ACKED };

static struct mmsghdr headers[SLOTS];
static struct iovec pieces[SLOTS];
static struct sockaddr_in names[SLOTS];
static char controls[SLOTS][128];
static char slots[SLOTS][SLOT];

static double microseconds(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static void check(int result, const char *what) {
	if (result < 0) {
		perror(what);
		exit(1);
	}
}

static void transmit(int fd, enum mode mode, struct sockaddr_in *to) {
	static char data[MESSAGE + ACK];
	if (mode == PLAIN) {
		check(send(fd, data, MESSAGE, 0), "send");
		return;
	}
	union {
		char bytes[CMSG_SPACE(2)];
		struct cmsghdr align;
	} control = {0};
	struct iovec piece = {data, mode == ACKED ? MESSAGE + ACK : MESSAGE};
	struct mmsghdr m = {.msg_hdr = {.msg_name = to, .msg_namelen = sizeof *to, .msg_iov = &piece, .msg_iovlen = 1}};
	if (mode == ACKED) {
		m.msg_hdr.msg_control = control.bytes;
		m.msg_hdr.msg_controllen = sizeof control.bytes;
		struct cmsghdr *c = CMSG_FIRSTHDR(&m.msg_hdr);
		*c = (struct cmsghdr){.cmsg_len = CMSG_LEN(2), .cmsg_level = IPPROTO_UDP, .cmsg_type = UDP_SEGMENT};
		unsigned short segment = MESSAGE;
		memcpy(CMSG_DATA(c), &segment, sizeof segment);
	}
	check(sendmmsg(fd, &m, 1, 0), "sendmmsg");
}

static void receive(int fd, enum mode mode) {
	if (mode == PLAIN) {
		while (recv(fd, slots[0], SLOT, MSG_DONTWAIT) < 0) {
		}
		return;
	}
	for (;;) {
		int n = recvmmsg(fd, headers, 1, MSG_DONTWAIT, NULL); /* as Verbena, if it expects one */
		for (int i = 0; i < n; i++) {
			headers[i].msg_hdr.msg_namelen = sizeof names[i];
			headers[i].msg_hdr.msg_controllen = sizeof controls[i];
		}
		if (n > 0)
			return;
	}
}

static void run(const char *name, enum mode mode) {
	struct sockaddr_in at[2];
	int fd[2], one = 1;
	for (int i = 0; i < 2; i++) {
		socklen_t len = sizeof at[i];
		at[i] = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
		check(fd[i] = socket(AF_INET, SOCK_DGRAM, 0), "socket");
		check(bind(fd[i], (void *)&at[i], len), "bind");
		check(getsockname(fd[i], (void *)&at[i], &len), "getsockname");
		if (mode != PLAIN) {
			check(setsockopt(fd[i], IPPROTO_UDP, UDP_GRO, &one, sizeof one), "UDP_GRO");
			check(setsockopt(fd[i], IPPROTO_IP, IP_RECVTOS, &one, sizeof one), "IP_RECVTOS");
			check(setsockopt(fd[i], IPPROTO_IP, IP_RECVTTL, &one, sizeof one), "IP_RECVTTL");
		}
	}
	for (int i = 0; i < 2 && mode == PLAIN; i++)
		check(connect(fd[i], (void *)&at[1 - i], sizeof at[0]), "connect");
	for (int i = 0; i < SLOTS; i++) {
		pieces[i] = (struct iovec){slots[i], SLOT};
		headers[i].msg_hdr = (struct msghdr){&names[i], sizeof names[i], &pieces[i], 1, controls[i], sizeof controls[i], 0};
	}
	pid_t child = fork();
	check(child, "fork");
	if (child == 0) {
		for (int i = 0; i < WARMUP + ROUNDS; i++) {
			receive(fd[1], mode);
			transmit(fd[1], mode, &at[0]);
		}
		_exit(0);
	}
	double begin = 0;
	for (int i = 0; i < WARMUP + ROUNDS; i++) {
		if (i == WARMUP)
			begin = microseconds();
		transmit(fd[0], mode, &at[1]);
		receive(fd[0], mode);
	}
	printf("%s\t%.1f us\n", name, (microseconds() - begin) / ROUNDS);
	waitpid(child, NULL, 0);
	close(fd[0]);
	close(fd[1]);
}

int main(void) {
	run("plain", PLAIN);
	run("bulk", BULK);
	run("acked", ACKED);
	return 0;
}
