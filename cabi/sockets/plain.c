// How an end of a TCP connection tells the other end that the connection stays TCP: by a byte of urgent data. It is out
// of band, so it is no data of the stream. librspreload and programs without a library do not see it.
#include <sys/ioctl.h>

#include "link.h"

static const char stays = 'T';

void tell_plain(int tcp) { NEXT(send)(tcp, &stays, 1, MSG_OOB | MSG_NOSIGNAL | MSG_DONTWAIT); }

int told_plain(int tcp)
{
	int on = 1, off = 0, next = 0;
	char got;

	if (NEXT(recv)(tcp, &got, 1, MSG_OOB | MSG_PEEK | MSG_DONTWAIT) != 1 || got != stays)
		return 0;
	// It is taken out of the queue, so that the program gets no POLLPRI. If it is read out of band it stays there, and
	// close resets the connection.
	NEXT(ioctl)(tcp, SIOCATMARK, &next);
	if (next)
		NEXT(setsockopt)(tcp, SOL_SOCKET, SO_OOBINLINE, &on, sizeof on);
	NEXT(recv)(tcp, &got, 1, next ? MSG_DONTWAIT : MSG_OOB | MSG_DONTWAIT);
	if (next)
		NEXT(setsockopt)(tcp, SOL_SOCKET, SO_OOBINLINE, &off, sizeof off);
	return 1;
}
