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

// Account returns the user whose limits count for the process at the other end.
func (s *Stream) Account() (int, error) {
	cred, err := peeruser.Of(s.conn)
	if err != nil {
		return 0, err
	}
	return int(accountOf(cred.Uid)), nil
}
