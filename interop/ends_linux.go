package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/verbena-rdma/verbena/interop/agent"
	"github.com/verbena-rdma/verbena/interop/internal/proc"
)

// ends are the two programs that perform verbs calls. Each starts when a case needs it and runs until it
// fails, because starting one takes a second in an emulated machine.
type ends struct {
	suite *suite
	live  map[*place]*end
}

// of returns the end at a place, and starts it if necessary.
func (e *ends) of(p *place) (*end, error) {
	if x := e.live[p]; x != nil && !x.broken {
		return x, nil
	}
	x, err := newEnd(p)
	if err != nil {
		return nil, err
	}
	if e.live == nil {
		e.live = map[*place]*end{}
	}
	e.live[p] = x
	return x, nil
}

// stop stops all ends.
func (e *ends) stop() {
	for p, x := range e.live {
		x.stop()
		delete(e.live, p)
	}
}

// stopOurs stops our end, which may occupy UDP port 4791 that another program of ours needs.
func (e *ends) stopOurs() {
	for p, x := range e.live {
		if p.ours() {
			x.stop()
			delete(e.live, p)
		}
	}
}

// end is a program that performs verbs calls on request.
type end struct {
	place  *place
	proc   *proc.Proc
	in     io.WriteCloser
	lines  chan []byte
	broken bool // it did not answer in time, or ended
}

func newEnd(p *place) (*end, error) {
	cmd := p.peer()
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	r, w := io.Pipe()
	cmd.Stdout = w
	x := &end{place: p, in: in, lines: make(chan []byte, 1)}
	if x.proc, err = start(p.name+"'s end", cmd); err != nil {
		return nil, err
	}
	go func() {
		<-x.proc.Done
		_ = w.Close()
	}()
	go func() {
		defer close(x.lines)
		sc := bufio.NewScanner(r)
		sc.Buffer(nil, 64<<20)
		for sc.Scan() {
			x.lines <- append([]byte(nil), sc.Bytes()...)
		}
	}()
	return x, nil
}

func (x *end) stop() {
	x.broken = true
	_ = x.in.Close()
	select {
	case <-x.proc.Done:
	case <-time.After(3 * time.Second):
		x.proc.Stop()
	}
}

// do executes a request at the end. A failed verbs call is an error of type refusal.
func (x *end) do(req agent.Request) (agent.Response, error) {
	var resp agent.Response
	b, err := json.Marshal(req)
	if err != nil {
		return resp, err
	}
	fail := func(format string, args ...any) (agent.Response, error) {
		x.stop()
		return resp, fmt.Errorf("%s's end: %s: %s; its output: %s", x.place.name, req.Op, fmt.Sprintf(format, args...),
			proc.Tail(x.proc.Out.String(), 20))
	}
	if x.broken {
		return fail("has ended")
	}
	if _, err := x.in.Write(append(b, '\n')); err != nil {
		return fail("%v", err)
	}
	select {
	case line, ok := <-x.lines:
		if !ok {
			return fail("ended")
		}
		if err := json.Unmarshal(line, &resp); err != nil {
			return fail("invalid answer: %v: %s", err, line)
		}
	case <-time.After(time.Duration(req.MS)*time.Millisecond + 20*time.Second):
		return fail("no answer")
	}
	if resp.Error != "" {
		return resp, refusal{place: x.place.name, op: req.Op, text: resp.Error, errno: resp.Errno}
	}
	return resp, nil
}

// refusal is a failed verbs call.
type refusal struct {
	place, op, text string
	errno           int
}

func (r refusal) Error() string { return fmt.Sprintf("%s: %s: %s", r.place, r.op, r.text) }
