// Package capture is "verbena capture": it writes the packets that the programs of this host send and
// receive on a device as pcapng. It asks the running programs over internal/control. So it needs no
// privilege, includes shared memory, and has the programs' comments. It imports verbs, internal/{control,printable},
// internal/link/pcap and internal/tools/{nearest,tool}.
package capture

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/control"
	"github.com/verbena-rdma/verbena/internal/link/pcap"
	"github.com/verbena-rdma/verbena/internal/printable"
	"github.com/verbena-rdma/verbena/internal/tools/nearest"
	"github.com/verbena-rdma/verbena/internal/tools/tool"
	"github.com/verbena-rdma/verbena/verbs"
)

// Tool returns the program.
func Tool() tool.Tool {
	return tool.Tool{Name: "capture", Short: "write what running programs send and receive, as pcapng for Wireshark",
		Run: run}
}

// mostSeconds is the longest autostop, 100 years, in seconds.
const mostSeconds = 100 * 365 * 24 * 3600

// lookEvery is the interval between searches for new programs.
const lookEvery = 200 * time.Millisecond

func run(env *tool.Env, args []string) int {
	f := tool.NewFlags(env, "-i DEVICE [-w FILE] [-c PACKETS] [-a SECONDS] [-s BYTES]")
	device := f.StringP("interface", "i", "", "the device, as ibv_devices names it")
	file := f.StringP("write", "w", "capture.pcapng", "the file to write, - for standard output")
	count := f.IntP("count", "c", 0, "end after this many packets")
	limit := f.Float64P("autostop", "a", 0, "end after this many seconds; without it at Ctrl-C")
	snap := f.IntP("snaplen", "s", 0, "bytes to write of each packet, from the IP header; 0 for all")
	if status, ok := f.Parse(args); !ok {
		return status
	}
	switch {
	case *snap != 0 && (*snap < pcap.MinSnap || *snap > pcap.MaxSnap):
		return f.Misused(fmt.Sprintf("snaplen %d: must be 0 (whole packets) or %d to %d bytes",
			*snap, pcap.MinSnap, pcap.MaxSnap))
	case f.NArg() > 0:
		return f.Misused(fmt.Sprintf("unexpected arguments %q: -i names the device, -w the file", f.Args()))
	case *device == "":
		return f.Misused("no device: name one with -i DEVICE; verbena rdma resource show qp lists those in use")
	case *count < 0:
		return f.Misused(fmt.Sprintf("count %d: must be at least 0 (0: no limit)", *count))
	case !(*limit >= 0 && *limit <= mostSeconds):
		return f.Misused(fmt.Sprintf("autostop %v: must be 0 to %d seconds", *limit, int64(mostSeconds)))
	}
	if err := Check(*device); err != nil {
		return env.Failf("%s: %v", env.Argv0, err)
	}
	out, into := env.Stdout, ""
	if *file != "-" {
		into = ", into " + *file
		// not readable by others: it has the programs' data
		o, err := os.OpenFile(*file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return env.Failf("%s: %v; name another file with -w, or - for standard output", env.Argv0, err)
		}
		defer o.Close()
		out = o
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(*limit*float64(time.Second)))
		defer cancel()
	}
	n, err := Follow(ctx, *device, out, Limits{Packets: *count, Snap: *snap}, func() {
		fmt.Fprintf(env.Stderr, "capturing on %s, from the programs that use it%s; end with Ctrl-C\n", *device, into)
	})
	fmt.Fprintf(env.Stderr, "%d packets captured\n", n)
	if n == 0 && err == nil {
		fmt.Fprintln(env.Stderr, Nothing(*device))
	}
	if err != nil {
		return env.Failf("%s: %v", env.Argv0, err)
	}
	return 0
}

// Nothing says why a capture of a device may have no packets.
func Nothing(device string) string {
	return "no program that this user may capture sent or received on " + device +
		"; verbena rdma resource show qp lists the devices in use"
}

// Check returns an error if neither this host nor a running program has the device.
func Check(device string) error {
	list, err := verbs.Devices()
	if len(list) == 0 && err != nil {
		return err
	}
	names := nearest.Names(list)
	reports, _, err := control.Reports(false)
	if err != nil {
		return err
	}
	for _, r := range reports {
		for _, d := range r.Devices {
			if !slices.Contains(names, d.Name) {
				names = append(names, d.Name)
			}
		}
	}
	if slices.Contains(names, device) {
		return nil
	}
	return fmt.Errorf(
		"no device %q; there are %s; for the device of a future program, set VERBENA_DEVICES as that program does", device,
		printable.List(names))
}

// merger writes the packets of several programs into one capture.
type merger struct {
	readers sync.WaitGroup
	ready   func() // called once programs that start are captured from their first packet; may be nil

	mu     sync.Mutex // guards the following
	out    io.Writer
	over   bool        // no more readers are accepted
	of     map[int]int // readers, by the user whose limits count for the program
	ifaces uint32
	n, max int
	snap   int
	err    error // of out
	bad    error // of a program; the capture of others goes on
	full   context.CancelFunc
}

// Limits bounds a capture; 0 is no limit.
type Limits struct {
	Packets int
	Snap    int // bytes of each packet, pcap.MinSnap to pcap.MaxSnap
}

// Follow writes a capture of a device until c is done or most.Packets packets are written, and returns
// their number. It calls ready, unless that is nil, once the capture has all packets of programs that start from then
// on.
func Follow(c context.Context, device string, out io.Writer, most Limits, ready func()) (int, error) {
	c, cancel := context.WithCancel(c)
	defer cancel()
	return (&merger{out: out, max: most.Packets, snap: most.Snap, full: cancel, ready: ready}).run(c, device)
}

func (m *merger) run(c context.Context, device string) (int, error) {
	if _, err := m.out.Write(pcap.AppendSection(nil)); err != nil {
		return 0, err
	}
	err := m.follow(c, device)
	m.mu.Lock()
	m.over = true
	m.mu.Unlock()
	m.readers.Wait()
	return m.n, errors.Join(err, m.err, m.bad)
}

// follow reads the packets of all programs, including those that start later, until c is done.
func (m *merger) follow(c context.Context, device string) error {
	announced := ""
	a, err := control.Announce(func(call *control.Call) {
		if call.Device == device {
			m.take(c, call.Stream, device, func(bool) {})
		} else {
			_ = call.Close()
		}
	})
	if err == nil { // otherwise only the periodic search finds programs
		defer a.Close()
		announced = a.Name
	}
	if m.ready != nil {
		m.ready()
	}
	known := make(map[string]*target)
	own := ownAccount()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		names, err := control.Processes()
		if err != nil {
			return err
		}
		maps.DeleteFunc(known, func(name string, _ *target) bool { // names are in order
			_, there := slices.BinarySearch(names, name)
			return !there
		})
		spent := make(map[int]time.Duration) // by user
		for _, name := range names {
			if c.Err() != nil {
				return nil
			}
			t := known[name]
			if t == nil {
				t = &target{}
				known[name] = t
			}
			if t.captured.Load() || t.tries == mostTries {
				continue
			}
			of := control.Account(name)
			if of != own && spent[of] > mostTime {
				continue
			}
			begin := time.Now()
			t.tries++
			if stream, err := control.Capture(name, device, announced); err == nil {
				t.captured.Store(true)
				m.take(c, stream, device, func(packets bool) { t.captured.Store(packets) })
			}
			spent[of] += time.Since(begin)
		}
		select {
		case <-c.Done():
			return nil
		case <-tick.C:
		}
	}
}

// A target is a program that follow has found.
type target struct {
	tries    int
	captured atomic.Bool // a reader runs, or has read packets
}

// mostTries limits the attempts to capture a program. One that answers too many questions at the moment refuses a
// capture. So do one that has called the announcement, one that has ended, and one of another user.
const mostTries = 20

// mostTime limits the time of one search for the programs of another user, who can make any number of sockets with
// names of programs. The rest has its turn in the next search.
var mostTime = 20 * time.Millisecond // a test changes it

// mostOfUser limits the readers of programs of another user. Each has buffers, and the user can make any number.
const mostOfUser = 256

// take starts a goroutine that reads a program's packets until c is done, and then those that it had not sent yet. The
// goroutine calls ended at last, with packets set if there were any. Without a goroutine, since the user has too many,
// take calls ended itself: the program is tried again.
func (m *merger) take(c context.Context, stream *control.Stream, device string, ended func(packets bool)) {
	user, err := stream.Account()
	if err != nil || !m.join(user) {
		_ = stream.Close()
		ended(false)
		return
	}
	if m.snap > 0 {
		stream.Snap(m.snap)
	}
	go func() {
		defer m.leave(user)
		defer stream.Close()
		defer context.AfterFunc(c, stream.Finish)()
		ended(m.read(stream, device, stream.Process()))
	}()
}

// read copies the blocks of one program, and reports whether there were any, valid or not. Its interface block is
// written with its first packet.
func (m *merger) read(stream io.Reader, device, process string) (packets bool) {
	r := bufio.NewReaderSize(stream, 1<<18)
	iface := uint32(0)
	for ; ; packets = true {
		head, err := r.Peek(8)
		if err != nil {
			return packets
		}
		n, ok := pcap.BlockLen(head)
		if !ok {
			m.refuse(process)
			return true
		}
		block := make([]byte, n)
		if _, err := io.ReadFull(r, block); err != nil {
			return packets
		}
		if !pcap.Valid(block) {
			m.refuse(process)
			return true
		}
		if !packets {
			iface = m.describe(device, process)
		}
		pcap.SetInterface(block, iface)
		if !m.write(block) {
			return true
		}
	}
}

// ownAccount returns the user whose limits count for this process.
func ownAccount() int { return control.Account(control.Name(os.Geteuid(), os.Getpid())) }

// join counts one more reader of a program of a user, and reports whether the capture still accepts it.
func (m *merger) join(user int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.over:
		return false
	case m.of[user] >= mostOfUser && user != ownAccount():
		if m.bad == nil {
			m.bad = fmt.Errorf("user %d has more than %d programs; not all are captured", user, mostOfUser)
		}
		return false
	}
	if m.of == nil {
		m.of = make(map[int]int)
	}
	m.of[user]++
	m.readers.Add(1)
	return true
}

// leave ends what join began.
func (m *merger) leave(user int) {
	m.mu.Lock()
	if m.of[user]--; m.of[user] == 0 {
		delete(m.of, user)
	}
	m.mu.Unlock()
	m.readers.Done()
}

func (m *merger) describe(device, process string) uint32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.out.Write(pcap.AppendInterface(nil, device, process)); err != nil && m.err == nil {
		m.err = err
	}
	m.ifaces++
	return m.ifaces - 1
}

func (m *merger) write(block []byte) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil || m.max > 0 && m.n == m.max {
		m.full()
		return false
	}
	if _, err := m.out.Write(block); err != nil {
		m.err = err
		m.full()
		return false
	}
	m.n++
	if m.n == m.max {
		m.full()
	}
	return true
}

// refuse notes that a program has sent something else than packets.
func (m *merger) refuse(process string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.bad == nil {
		m.bad = fmt.Errorf("%s sent an invalid packet block; does it use another version of Verbena?",
			printable.Text(cmp.Or(process, "a program")))
	}
}
