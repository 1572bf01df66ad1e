// Command peer is Verbena's end of a verbs case of the interop suite: it performs the verbs calls that the
// runner requests (package agent) through the public package verbs. peer.py is the kernel's end.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/verbena-rdma/verbena/interop/agent"
	_ "github.com/verbena-rdma/verbena/provider/soft"
)

func main() {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 64<<20)
	out := json.NewEncoder(os.Stdout)
	var s *session
	for in.Scan() {
		var req agent.Request
		var resp agent.Response
		err := json.Unmarshal(in.Bytes(), &req)
		if err == nil {
			s, resp, err = handle(s, &req)
		}
		if err != nil {
			resp.Error = err.Error()
			var errno syscall.Errno
			if errors.As(err, &errno) {
				resp.Errno = int(errno)
			}
		}
		if err := out.Encode(resp); err != nil {
			break
		}
	}
	if err := s.close(); err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(1)
	}
}

// handle executes one request and returns the session after it.
func handle(s *session, req *agent.Request) (*session, agent.Response, error) {
	switch req.Op {
	case agent.Open:
		if err := s.close(); err != nil {
			return nil, agent.Response{}, err
		}
		n := &session{}
		resp, err := n.open(req)
		if err != nil {
			return nil, resp, errors.Join(err, n.close())
		}
		return n, resp, nil
	case agent.Close:
		return nil, agent.Response{}, s.close()
	}
	if s == nil {
		return nil, agent.Response{}, fmt.Errorf("%s before open", req.Op)
	}
	resp, err := s.handle(req)
	return s, resp, err
}
