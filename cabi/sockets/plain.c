// How an end of a TCP connection tells the other end that the connection stays TCP: by a byte of urgent data. It is out
// of band, so it is no data of the stream. librspreload and programs without a library do not see it.
#include "link.h"

static const char stays = 'T';

void tell_plain(int tcp) { NEXT(send)(tcp, &stays, 1, MSG_OOB | MSG_NOSIGNAL | MSG_DONTWAIT); }

int told_plain(int tcp)
{
	char got;

	if (NEXT(recv)(tcp, &got, 1, MSG_OOB | MSG_PEEK | MSG_DONTWAIT) != 1 || got != stays)
		return 0;
	NEXT(recv)(tcp, &got, 1, MSG_OOB | MSG_DONTWAIT); // the program gets no POLLPRI then
	return 1;
}
