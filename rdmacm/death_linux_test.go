package rdmacm_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/apart"
	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// victimRole is the task of a process that a test starts and kills: the name of a victim, and the addresses of its
// device and of its peer.
const victimRole = "VERBENA_TEST_VICTIM"

// deathBound is the time limit for an event that comes at once, on a busy machine. Without a death notice it takes
// over a minute.
const deathBound = 30 * time.Second

// victims are the tasks of processes that will be killed. They print their progress.
var victims = map[string]func(h *rdmacm.Host, peer string){
	"client": func(h *rdmacm.Host, peer string) {
		id, err := rdmacm.Dial(bg, peer, &rdmacm.Options{Host: h})
		victimSays(err, "established")
		defer id.Close()
		select {}
	},
	"asking": func(h *rdmacm.Host, peer string) {
		ch, err := h.CreateEventChannel()
		victimSays(err, "")
		id, err := h.CreateID(ch, rdmacm.PSTCP, nil)
		victimSays(err, "")
		victimSays(id.ResolveAddr(bg, netip.AddrPort{}, netip.MustParseAddrPort(peer), timeout), "")
		<-ch.Ready()
		ev, err := ch.TryGetEvent()
		victimSays(errors.Join(err, ev.Ack()), "")
		victimSays(id.ResolveRoute(bg, timeout), "")
		<-ch.Ready()
		ev, err = ch.TryGetEvent()
		victimSays(errors.Join(err, ev.Ack()), "")
		victimSays(id.CreateQP(nil, qpInit()), "")
		victimSays(id.Connect(bg, nil), "")
		select {}
	},
	"listener": func(h *rdmacm.Host, _ string) {
		l, err := rdmacm.Listen(bg, ":0", &rdmacm.Options{Host: h})
		victimSays(err, "")
		victimSays(nil, fmt.Sprint("port ", l.Addr().Port()))
		id, err := l.Request(bg)
		victimSays(err, "asked")
		defer id.Close()
		select {}
	},
	"server": func(h *rdmacm.Host, _ string) {
		l, err := rdmacm.Listen(bg, ":0", &rdmacm.Options{Host: h})
		victimSays(err, "")
		victimSays(nil, fmt.Sprint("port ", l.Addr().Port()))
		id, err := l.Accept(bg)
		victimSays(err, "established")
		defer id.Close()
		select {}
	},
}

func victimSays(err error, text string) {
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
	if text != "" {
		fmt.Println("says:", text)
	}
}

// victim is a process that will be killed.
type victim struct {
	*world
	cmd  *exec.Cmd
	said *bufio.Scanner
}

// newVictim starts a victim: this binary's test of that name.
func newVictim(w *world, test, role string, addr netip.Addr, peer string) *victim {
	w.Helper()
	ctx, cancel := context.WithTimeout(bg, 4*deathBound) // should it hang
	w.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^"+test+"$")
	cmd.Env = append(os.Environ(), victimRole+"="+strings.Join([]string{role, addr.String(), peer}, " "))
	cmd.Stderr = os.Stderr
	out := must(cmd.StdoutPipe())(w)
	w.ok(cmd.Start())
	v := &victim{w, cmd, bufio.NewScanner(out)}
	w.Cleanup(v.kill)
	return v
}

// beVictim runs the task of a victim.
func beVictim(t *testing.T) bool {
	f := strings.Split(os.Getenv(victimRole), " ")
	if len(f) != 3 {
		return false
	}
	cfg := soft.Config{Name: "victim", Addrs: []netip.Addr{netip.MustParseAddr(f[1])}}
	if k, err := strconv.ParseUint(os.Getenv(victimPKey), 0, 16); err == nil {
		cfg.PKeys = []uint16{uint16(k)}
	}
	dev, err := soft.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	victims[f[0]](rdmacm.NewHost(dev.Device), f[2])
	return true
}

func (v *victim) says(prefix string) string {
	v.Helper()
	for v.said.Scan() {
		if rest, ok := strings.CutPrefix(v.said.Text(), "says: "+prefix); ok {
			return strings.TrimSpace(rest)
		}
		if strings.HasPrefix(v.said.Text(), "failed:") {
			break
		}
	}
	v.Fatalf("the other process did not get to %q: %q", prefix, v.said.Text())
	return ""
}

func (v *victim) kill() {
	_ = v.cmd.Process.Kill()
	_ = v.cmd.Wait()
}

// soon expects the next event of a death, other than TIMEWAIT_EXIT.
func (e *end) soon(want rdmacm.EventType, status ...int) {
	e.w.Helper()
	ev := e.next(want)
	if ev.Type != want || !slices.Contains(status, ev.Status) || ev.ID != e.ID {
		e.w.Fatalf("%v came with status %d, not %v with %v", ev.Type, ev.Status, want, status)
	}
}

// next waits for an event; the test waits for want.
func (e *end) next(want rdmacm.EventType) *rdmacm.Event {
	e.w.Helper()
	ctx, cancel := context.WithTimeout(bg, deathBound)
	defer cancel()
	for {
		ev, err := e.ch.GetEvent(ctx)
		if err != nil {
			e.w.Fatalf("waiting for %v: %v", want, err)
		}
		e.w.ok(ev.Ack())
		if ev.Type != rdmacm.EventTimewaitExit || ev.Type == want {
			return ev
		}
	}
}

// over closes an ID whose peer has died: there are no more events but TIMEWAIT_EXIT, and nothing waits.
func (e *end) over() {
	e.w.Helper()
	e.w.ok(e.Disconnect(bg))
	e.soon(rdmacm.EventTimewaitExit, 0)
	if ev, err := e.ch.TryGetEvent(); err == nil {
		e.w.Errorf("%v came after the end", ev.Type)
		_ = ev.Ack()
	}
	e.close()
}

// places are the addresses of the survivor and of the victim: of one device that both have open, and of two; with
// shared memory, and without. Over UDP the processes that share the victim's device report its death: the survivor,
// or a bystander, which has no connection.
func places(t *testing.T, f func(w *world, victimAt netip.Addr)) {
	for _, shared := range []bool{true, false} {
		for _, two := range []bool{false, true} {
			t.Run(fmt.Sprintf("shm=%v,devices=%v", shared, two), func(t *testing.T) {
				t.Setenv("VERBENA_SHM", map[bool]string{true: "1", false: "0"}[shared])
				h, addr := udpHost(t, 11)
				w := &world{T: t, a: h, b: h}
				at := addr
				if two {
					at = addr.Next()
				}
				if two && !shared {
					bystander(w, at)
				}
				f(w, at)
				w.ok(h.Close())
			})
		}
	}
}

// bystander is a process that has the device open and no connection.
func bystander(w *world, at netip.Addr) *victim {
	w.Helper()
	test, _, _ := strings.Cut(w.Name(), "/")
	v := newVictim(w, test, "listener", at, "-")
	v.says("port ")
	return v
}

// listenHere makes a listener on the survivor's device.
func (w *world) listenHere() (l *end, at string) {
	w.Helper()
	_, addr := udpHost(w.T, 11)
	l = w.listen(netip.AddrPortFrom(addr, 0), 0)
	return l, l.LocalAddr().String()
}

// request retrieves a victim's request.
func (e *end) request() *end {
	e.w.Helper()
	ctx, cancel := context.WithTimeout(bg, deathBound)
	defer cancel()
	ev, err := e.ch.GetEvent(ctx)
	e.w.ok(err)
	s := &end{ev.ID, e.w, must(e.w.a.CreateEventChannel())(e.w)}
	e.w.ok(ev.Ack())
	e.w.ok(s.Migrate(s.ch))
	e.w.ok(s.CreateQP(nil, qpInit()))
	return s
}

// A client is killed: the server gets the event of a client that has disconnected, once.
func TestDeathOfAClient(t *testing.T) {
	if beVictim(t) {
		return
	}
	places(t, func(w *world, victimAt netip.Addr) {
		l, at := w.listenHere()
		var clients []*victim
		var ends []*end
		for range 3 {
			c := newVictim(w, "TestDeathOfAClient", "client", victimAt, at)
			s := l.request()
			w.ok(s.Accept(bg, nil))
			c.says("established")
			clients, ends = append(clients, c), append(ends, s)
		}
		ends[0].soon(rdmacm.EventEstablished, 0)
		ends[1].soon(rdmacm.EventEstablished, 0)
		// The RTU of the last client may not have been read when it dies, and may arrive after the death
		// notice; then there is no ESTABLISHED, as in Linux.
		clients[2].kill()
		if ev := ends[2].next(rdmacm.EventEstablished); ev.Type == rdmacm.EventEstablished {
			ends[2].soon(rdmacm.EventDisconnected, 0)
		} else if ev.Type != rdmacm.EventDisconnected {
			t.Errorf("%v came", ev.Type)
		}
		ends[2].over()
		// A client that dies instead of answering a DREQ.
		apart.Stop(clients[0], clients[0].cmd.Process)
		w.ok(ends[0].Disconnect(bg))
		clients[0].kill()
		ends[0].soon(rdmacm.EventDisconnected, 0)
		ends[0].over()
		// A server that closes the ID at once.
		clients[1].kill()
		ends[1].soon(rdmacm.EventDisconnected, 0)
		if st := ends[1].QP().State(); st != verbs.QPSErr {
			t.Errorf("the QP is in %v", st)
		}
		ends[1].close()
		l.close()
	})
}

// A client is killed between its request and the answer.
func TestDeathOfAClientThatAsks(t *testing.T) {
	if beVictim(t) {
		return
	}
	// The process that gets the answer for the dead one, if it comes so late, does not know the request.
	const rejTimeout, rejCommID = 4, 6
	places(t, func(w *world, victimAt netip.Addr) {
		l, at := w.listenHere()
		c := newVictim(w, "TestDeathOfAClientThatAsks", "asking", victimAt, at)
		s := l.request()
		apart.Stop(c, c.cmd.Process)
		w.ok(s.Accept(bg, nil))
		c.kill()
		s.soon(rdmacm.EventRejected, rejTimeout, rejCommID)
		s.close()
		l.close()
	})
}

// A server is killed: its client gets the event of a server that has disconnected, also a client that waits for a
// message.
func TestDeathOfAServer(t *testing.T) {
	if beVictim(t) {
		return
	}
	places(t, func(w *world, victimAt netip.Addr) {
		v := newVictim(w, "TestDeathOfAServer", "server", victimAt, "-")
		port := v.says("port ")
		c := w.resolved(rdmacm.PSTCP, netip.MustParseAddrPort(victimAt.String()+":"+port))
		w.ok(c.CreateQP(nil, qpInit()))
		w.ok(c.Connect(bg, nil))
		c.soon(rdmacm.EventEstablished, 0)
		v.says("established") // else it would have refused, as the kernel does
		v.kill()
		c.soon(rdmacm.EventDisconnected, 0)
		c.over()

		v = newVictim(w, "TestDeathOfAServer", "server", victimAt, "-")
		port = v.says("port ")
		id, err := rdmacm.Dial(bg, victimAt.String()+":"+port, &rdmacm.Options{Host: w.a})
		w.ok(err)
		v.says("established")
		v.kill()
		bound, cancel := context.WithTimeout(bg, deathBound)
		defer cancel()
		if _, err := id.GetRecvComp(bound); !errors.Is(err, io.EOF) {
			t.Errorf("a receive of a synchronous ID: %v, want io.EOF", err)
		}
		w.ok(id.Disconnect(bound))
		w.ok(id.Close())
	})
}

// A server is killed before it has answered.
func TestDeathOfAServerThatIsAsked(t *testing.T) {
	if beVictim(t) {
		return
	}
	const rejConsumer = 28
	places(t, func(w *world, victimAt netip.Addr) {
		if strings.Contains(w.Name(), "shm=true,devices=true") {
			bystander(w, victimAt)
		}
		v := newVictim(w, "TestDeathOfAServerThatIsAsked", "listener", victimAt, "-")
		port := v.says("port ")
		c := w.resolved(rdmacm.PSTCP, netip.MustParseAddrPort(victimAt.String()+":"+port))
		w.ok(c.CreateQP(nil, qpInit()))
		w.ok(c.Connect(bg, nil))
		v.says("asked")
		v.kill()
		c.soon(rdmacm.EventRejected, rejConsumer)
		c.close()
	})
}

// The process that dies is the leader of its device, and another one dies with it: the next leader reports both.
func TestDeathOfALeader(t *testing.T) {
	if beVictim(t) {
		return
	}
	t.Setenv("VERBENA_SHM", "0")
	h, addr := udpHost(t, 11)
	w := &world{T: t, a: h, b: h}
	const servers = 2
	var victims []*victim
	var ends []*end
	for range servers {
		v := newVictim(w, t.Name(), "server", addr.Next(), "-")
		port := v.says("port ")
		if len(victims) == servers-1 {
			bystander(w, addr.Next())
		}
		c := w.resolved(rdmacm.PSTCP, netip.MustParseAddrPort(addr.Next().String()+":"+port))
		w.ok(c.CreateQP(nil, qpInit()))
		w.ok(c.Connect(bg, nil))
		c.soon(rdmacm.EventEstablished, 0)
		v.says("established")
		victims, ends = append(victims, v), append(ends, c)
	}
	for _, v := range victims {
		apart.Stop(v, v.cmd.Process)
	}
	for _, v := range victims {
		w.ok(v.cmd.Process.Kill())
	}
	for _, c := range ends {
		c.soon(rdmacm.EventDisconnected, 0)
		c.over()
	}
	w.ok(h.Close())
}
