// A TCP socket that may become an rsocket: see link.c.
#ifndef VERBENA_SOCKETS_LINK_H
#define VERBENA_SOCKETS_LINK_H

#include "sockets.h"

enum state {
	FRESH,   // neither listens nor connects
	LISTENS, // stays TCP; those that it accepts are PASSIVE
	PASSIVE, // accepted
	RUNNING, // a thread does the handshake
	LOST,    // in a child: the parent does the handshake
	DONE,    // rs is the rsocket, or -1: it stays TCP
};

// link is a TCP socket that may become an rsocket. Its duplicates share it.
struct link {
	struct link *next; // in all
	int uses;          // slots, and the thread
	enum state state;
	int active;    // the handshake is that of a client
	int announced; // the program uses the connection of a client: it knows that it is made
	int shut;      // 1 more than a SHUT_ value that waits for the end of the handshake; 0 for none
	int tcp;       // the thread's duplicate; -1 without thread
	int done;      // an eventfd that is readable when the handshake has ended; -1 before it begins
	struct names *names; // of the TCP connection, until an rsocket has them
	int rs, used;  // used: the rsocket has the options of the TCP socket
};

// handshake_active and handshake_passive make an rsocket for a TCP connection, at the end that connects and at the one
// that accepts. They return -1 if it must stay TCP.
RS_HIDDEN int handshake_active(int tcp);
RS_HIDDEN int handshake_passive(int tcp);

// read_names reads the addresses of a TCP connection. It returns 0 if there is no connection.
RS_HIDDEN int read_names(int tcp, struct names *);

// tell_plain tells the other end of a TCP connection that it stays TCP. told_plain reports whether the other end has told
// that since the last call.
RS_HIDDEN void tell_plain(int tcp);
RS_HIDDEN int told_plain(int tcp);

// inherit takes over the TCP sockets that the program has from before exec.
RS_HIDDEN void inherit(void);

// has_sent reports whether a process has sent something by a TCP connection.
RS_HIDDEN int has_sent(int tcp);

// handshake_forget is for a forked child, in which no thread does a handshake.
RS_HIDDEN void handshake_forget(void);

// is_tcp reports whether a descriptor is a TCP socket: 2 if it is connected, 1 if not.
RS_HIDDEN int is_tcp(int fd);

#endif
