package iwtcp

import "golang.org/x/sys/unix"

// setAnyPort makes a bind to port 0 choose no port. Connect chooses one then, which only has to be free for its
// destination; bind takes a port that no other socket has, including connections in TIME_WAIT. Without the option, as
// in some sandboxes, bind chooses the port.
func setAnyPort(fd uintptr) {
	_ = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
}
