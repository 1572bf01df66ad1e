package main

import (
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/interop/internal/proc"
)

// killed is a case in which the program of one end is killed while a connection is in a certain state. The
// other end must not be affected: a new connection between both succeeds immediately, and finally the
// kernel has no resources left.
type killed struct {
	family int
	state  string // of the killed side; the programs are brought there by stopping and continuing them
	victim string // active or passive
	bring  func(k *killing) error
	tells  bool // the end of the victim's socket tells the survivor
}

// killing is a running killed case.
type killing struct {
	env             *caseEnv
	family          int
	active, passive *place
	client, server  *proc.Proc
}

func killedCases() (all []testCase) {
	states := []struct {
		state, victim string
		bring         func(k *killing) error
	}{
		{"REQ_SENT", "active", (*killing).toRequest}, {"REQ_RCVD", "passive", (*killing).toRequest},
		{"MRA_REQ_RCVD", "active", (*killing).toDelayedRequest},
		{"MRA_REQ_SENT", "passive", (*killing).toDelayedRequest},
		{"REP_RCVD", "active", (*killing).toReply}, {"REP_SENT", "passive", (*killing).toReply},
		{"MRA_REP_SENT", "active", (*killing).toDelayedReply}, {"MRA_REP_RCVD", "passive", (*killing).toDelayedReply},
		{"ESTABLISHED", "active", (*killing).toEstablished}, {"ESTABLISHED", "passive", (*killing).toEstablished},
		{"DREQ_SENT", "active", (*killing).toDisconnect}, {"DREQ_RCVD", "passive", (*killing).toDisconnect},
		{"TIMEWAIT", "active", (*killing).toTimewait}, {"TIMEWAIT", "passive", (*killing).toTimewait},
		{"SIDR_REQ_SENT", "active", (*killing).toLookup}, {"SIDR_REQ_RCVD", "passive", (*killing).toLookup},
	}
	for _, family := range []int{4, 6} {
		for _, s := range states {
			k := killed{family: family, state: s.state, victim: s.victim, bring: s.bring}
			name := fmt.Sprintf("cm/killed in %s/%s/%s", k.state, k.victim, familyName(family))
			all = append(all, testCase{name: name, timeout: 4 * time.Minute, run: k.run})
		}
	}
	return all
}

func (s killed) run(env *caseEnv, active, passive *place) error {
	env.ends.stopOurs()
	k := &killing{env: env, family: s.family, active: active, passive: passive}
	defer func() {
		for _, p := range []*proc.Proc{k.client, k.server} {
			if p != nil {
				k.signal(p, syscall.SIGCONT)
				p.Stop()
			}
		}
	}()
	if err := s.bring(k); err != nil {
		return fmt.Errorf("bringing the ends to %s: %w", s.state, err)
	}
	victim, survivor := k.client, k.server
	if s.victim == "passive" {
		victim, survivor = survivor, victim
	}
	k.signal(victim, syscall.SIGKILL)
	<-victim.Done
	k.signal(survivor, syscall.SIGCONT)
	told := !s.tells || s.isTold(survivor)
	// The survivor's connection is useless now. Without a socket nothing informs it.
	select {
	case <-survivor.Done:
	case <-time.After(time.Second):
		survivor.Stop()
	}
	env.log("client", k.client.Out.String())
	env.log("server", k.server.Out.String())
	if !told {
		return fmt.Errorf("the other end has not learned of it within %v", noticeTime)
	}
	again := cmRun{server: "rping -s -a ADDR -V", client: "rping -c -a ADDR -C 10 -V -v", clientSays: "rdma-ping-9",
		family: s.family}
	if err := again.run(env, active, passive); err != nil {
		return fmt.Errorf("the next connection: %w", err)
	}
	return nil
}

// signal sends a signal to a program; in the guest it selects the program by name.
func (k *killing) signal(p *proc.Proc, sig syscall.Signal) {
	at := k.active
	if p == k.server {
		at = k.passive
	}
	if at.ours() {
		_ = syscall.Kill(-p.Cmd.Process.Pid, sig)
		return
	}
	name := strings.Fields(strings.TrimPrefix(p.Name, "kernel's "))[0]
	_, _ = k.env.lab.guest(at.id, fmt.Sprintf("pkill -%d -x %s; true", sig, name))
}

func (k *killing) serve(line string) (err error) {
	if k.server, err = k.passive.cm(strings.ReplaceAll(line, "ADDR", k.passive.addr(k.family)), k.env.left()); err != nil {
		return err
	}
	return k.passive.cmReady(k.env.ctx, k.server)
}

func (k *killing) dial(line string) (err error) {
	k.client, err = k.active.cm(strings.ReplaceAll(line, "ADDR", k.passive.addr(k.family)), k.env.left())
	return err
}

// isTold waits until the survivor prints that its connection has ended.
func (s killed) isTold(survivor *proc.Proc) bool {
	for begin := time.Now(); time.Since(begin) < noticeTime; time.Sleep(5 * time.Millisecond) {
		if strings.Contains(survivor.Out.String(), "DISCONNECT EVENT") {
			return true
		}
	}
	return false
}

// noticeTime is long because the guest is slow.
const noticeTime = 10 * time.Second

// answerTime is enough for a message and its answer with a slow guest.
const answerTime = 1500 * time.Millisecond

// toRequest leaves a request unanswered: the server is stopped.
func (k *killing) toRequest() error {
	if err := k.serve("ucmatose -b ADDR"); err != nil {
		return err
	}
	k.signal(k.server, syscall.SIGSTOP)
	if err := k.dial("ucmatose -s ADDR"); err != nil {
		return err
	}
	time.Sleep(answerTime)
	return nil
}

// repeatTime is longer than the interval to the first retransmission, which the kernel answers with an MRA
// while its program is stopped. The CM of our program is stopped as well.
const repeatTime = 6 * time.Second

func (k *killing) toDelayedRequest() error {
	err := k.toRequest()
	time.Sleep(repeatTime)
	return err
}

func (k *killing) toDelayedReply() error {
	err := k.toReply()
	time.Sleep(repeatTime)
	return err
}

// toLookup leaves a SIDR request unanswered: the server is stopped.
func (k *killing) toLookup() error {
	if err := k.serve("udaddy -b ADDR"); err != nil {
		return err
	}
	k.signal(k.server, syscall.SIGSTOP)
	if err := k.dial("udaddy -s ADDR"); err != nil {
		return err
	}
	time.Sleep(answerTime)
	return nil
}

// toReply leaves a REP unanswered: the client is stopped when it arrives.
func (k *killing) toReply() error {
	if err := k.toRequest(); err != nil {
		return err
	}
	k.signal(k.client, syscall.SIGSTOP)
	k.signal(k.server, syscall.SIGCONT)
	time.Sleep(answerTime)
	return nil
}

// toEstablished makes both ends exchange data without end.
func (k *killing) toEstablished() error {
	if err := k.serve("rping -s -a ADDR -v"); err != nil {
		return err
	}
	if err := k.dial("rping -c -a ADDR -v"); err != nil {
		return err
	}
	time.Sleep(answerTime) // the C program writes its output only when it ends
	if k.client.Ended() || k.server.Ended() {
		return fmt.Errorf("no data is exchanged:\n%s\n%s", proc.Tail(k.client.Out.String(), 8),
			proc.Tail(k.server.Out.String(), 8))
	}
	return nil
}

// toDisconnect leaves a DREQ unanswered: the server is stopped, so that the ping is not answered; the
// client is interrupted and disconnects.
func (k *killing) toDisconnect() error {
	if err := k.toEstablished(); err != nil {
		return err
	}
	k.signal(k.server, syscall.SIGSTOP)
	k.signal(k.client, syscall.SIGINT)
	time.Sleep(answerTime)
	return nil
}

// toTimewait ends the connection and kills immediately afterwards.
func (k *killing) toTimewait() error {
	if err := k.serve("rping -s -P -a ADDR -v"); err != nil {
		return err
	}
	if err := k.dial("rping -c -a ADDR -C 3 -v"); err != nil {
		return err
	}
	for begin := time.Now(); !strings.Contains(k.server.Out.String(),
		"DISCONNECT EVENT"); time.Sleep(5 * time.Millisecond) {
		if time.Since(begin) > 20*time.Second {
			return fmt.Errorf("the programs do not end:\n%s", proc.Tail(k.client.Out.String(), 8))
		}
	}
	return nil
}
