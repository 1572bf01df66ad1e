package control

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Process names the process at the other end: "ibv_rc_pingpong (1234)"; empty if it is not known.
func (s *Stream) Process() string {
	raw, err := s.conn.SyscallConn()
	if err != nil {
		return ""
	}
	var cred *unix.Ucred
	cerr := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if cerr != nil || err != nil || cred.Pid <= 0 {
		return ""
	}
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", cred.Pid))
	if err != nil {
		comm = []byte("process")
	}
	return fmt.Sprintf("%s (%d)", strings.TrimSpace(string(comm)), cred.Pid)
}

// User returns the user of the process at the other end.
func (s *Stream) User() (int, error) {
	cred, err := peer(s.conn)
	if err != nil {
		return 0, err
	}
	return int(cred.Uid), nil
}
