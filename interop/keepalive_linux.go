package main

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/interop/internal/proc"
)

// Limits of the case keep-alive.
const (
	// quietTime is longer than the interval of rping's keep-alive, 5 s: a peer whose program is stopped, but whose
	// kernel answers, keeps its connection.
	quietTime = 8 * time.Second
	// learnTime bounds the interval and the retries after it, which take 10 s at most, whatever ACK timeout the kernel's
	// request has named. The rest is for a busy machine.
	learnTime = 20 * time.Second
)

// keepAlive: our end waits for a message, and the kernel's host goes down. Nothing is in flight, so only the keep-alive
// tells our end.
func keepAlive(family int) func(env *caseEnv, active, passive *place) error {
	return func(env *caseEnv, active, passive *place) error {
		env.ends.stopOurs()
		k := &killing{env: env, family: family, active: active, passive: passive}
		if err := k.toEstablished(); err != nil {
			return err
		}
		ours, theirs, kernel := k.client, k.server, passive
		if passive.ours() {
			ours, theirs, kernel = k.server, k.client, active
		}
		defer func() {
			k.signal(theirs, syscall.SIGCONT)
			theirs.Stop()
			ours.Stop()
		}()
		k.signal(theirs, syscall.SIGSTOP)
		select {
		case <-ours.Done:
			return fmt.Errorf("%s ended while the kernel's host was up:\n%s", ours.Name, proc.Tail(ours.Out.String(), 8))
		case <-time.After(quietTime):
		}
		const off = "tc qdisc del dev eth0 root; tc qdisc del dev eth0 ingress; tc qdisc del dev ifb0 root; true"
		const on = "ip link set ifb0 up && tc qdisc add dev eth0 root netem loss 100% && tc qdisc add dev eth0 ingress && " +
			"tc filter add dev eth0 ingress matchall action mirred egress redirect dev ifb0 && " +
			"tc qdisc add dev ifb0 root netem loss 100%"
		defer kernel.lab.guest(kernel.id, off)
		if _, err := kernel.lab.guest(kernel.id, on); err != nil {
			return err
		}
		begin := time.Now()
		var err error
		select {
		case <-ours.Done:
			env.note = fmt.Sprintf("noticed after %.0f s, ", time.Since(begin).Seconds())
		case <-time.After(learnTime):
			err = errors.New("did not learn that the kernel's host is down")
		}
		env.log("ours", ours.Out.String())
		if err != nil {
			return fmt.Errorf("%s: %w in %v:\n%s", ours.Name, err, learnTime, proc.Tail(ours.Out.String(), 8))
		}
		return nil
	}
}
