// TCP_INFO of a stream, for programs that read the state, the sizes of segments and the counters. The times of an
// rsocket are not known: they are those of a new connection.
#define _GNU_SOURCE
#include <linux/tcp.h>
#include <netinet/in.h>
#include <string.h>

#include "sockets.h"

enum { WINDOW = 10, NO_LIMIT = 0x7fffffff, RTO_US = 200000, RTT_US = 50 };

static int number(int rs, int level, int name)
{
	int value = 0;
	socklen_t n = sizeof value;

	return rgetsockopt(rs, level, name, &value, &n) ? 0 : value;
}

socklen_t tell_info(int rs, void *to, socklen_t room)
{
	struct slot *s = own(rs);
	struct tcp_info i = {.tcpi_state = tcp_state(rs), .tcpi_rto = RTO_US, .tcpi_snd_cwnd = WINDOW, .tcpi_reordering = 3,
		.tcpi_snd_ssthresh = NO_LIMIT};
	socklen_t n = room < sizeof i ? room : sizeof i;
	int e = errno;

	if (made(rs)) {
		i.tcpi_snd_mss = i.tcpi_rcv_mss = i.tcpi_advmss = i.tcpi_pmtu = number(rs, IPPROTO_TCP, TCP_MAXSEG);
		i.tcpi_rcv_space = i.tcpi_rcv_ssthresh = number(rs, SOL_SOCKET, SO_RCVBUF);
		i.tcpi_rtt = RTT_US;
		i.tcpi_rttvar = i.tcpi_min_rtt = RTT_US / 2;
		i.tcpi_bytes_received = atomic_load(&s->received);
		i.tcpi_bytes_sent = atomic_load(&s->sent);
		i.tcpi_bytes_acked = i.tcpi_bytes_sent - number(rs, SOL_RDMA, RDMA_UNACKED);
	}
	memcpy(to, &i, n);
	errno = e;
	return n;
}
