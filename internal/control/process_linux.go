package control

import (
	"fmt"
	"os"
	"strings"

	"github.com/verbena-rdma/verbena/internal/peeruser"
)

// Process names the process at the other end: "ibv_rc_pingpong (1234)"; empty if it is not known.
func (s *Stream) Process() string {
	cred, err := peeruser.Of(s.conn)
	if err != nil || cred.Pid <= 0 {
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
	cred, err := peeruser.Of(s.conn)
	if err != nil {
		return 0, err
	}
	return int(cred.Uid), nil
}
