// Package capture is "verbena capture": what the programs of this host send and receive on a device, as pcapng. It asks
// the running programs (internal/control), so that it needs no right, sees shared memory too, and has their comments.
package capture

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/verbena-rdma/verbena/internal/control"
	"github.com/verbena-rdma/verbena/internal/link/pcap"
	"github.com/verbena-rdma/verbena/internal/tools/nearest"
	"github.com/verbena-rdma/verbena/internal/tools/tool"
	"github.com/verbena-rdma/verbena/verbs"
)

// Tool is the program.
func Tool() tool.Tool {
	return tool.Tool{Name: "capture", Short: "write what running programs send and receive, as pcapng for Wireshark", Run: run}
}

// mostSeconds is the longest autostop: 100 years.
const mostSeconds = 100 * 365 * 24 * 3600

// lookEvery is how often new programs are looked for.
const lookEvery = 200 * time.Millisecond

func run(env *tool.Env, args []string) int {
	f := tool.NewFlags(env, "-i DEVICE [-w FILE] [-c PACKETS] [-a SECONDS] [-s BYTES]")
	device := f.StringP("interface", "i", "", "the device, as ibv_devices names it")
	file := f.StringP("write", "w", "capture.pcapng", "the file to write, - for the output")
	count := f.IntP("count", "c", 0, "end after so many packets")
	limit := f.Float64P("autostop", "a", 0, "end after so many seconds; else Ctrl-C does")
	snap := f.IntP("snaplen", "s", 0, "bytes of each packet to write, IP header first; 0 for all")
	if status, ok := f.Parse(args); !ok {
		return status
	}
	switch {
	case *snap != 0 && (*snap < pcap.MinSnap || *snap > pcap.MaxSnap):
		return f.Misused(fmt.Sprintf("snaplen %d: 0 for whole packets, or %d to %d", *snap, pcap.MinSnap, pcap.MaxSnap))
	case f.NArg() > 0:
		return f.Misused(fmt.Sprintf("superfluous arguments %q", f.Args()))
	case *device == "":
		return f.Misused("which device? -i DEVICE; verbena rdma resource show qp names those in use")
	case *count < 0:
		return f.Misused(fmt.Sprintf("%d packets: 1 or more, or 0 for no end", *count))
	case !(*limit >= 0 && *limit <= mostSeconds):
		return f.Misused(fmt.Sprintf("autostop %v: 0 to %d seconds", *limit, int64(mostSeconds)))
	}
	if err := Check(*device); err != nil {
		return env.Failf("%s: %v", env.Argv0, err)
	}
	out := env.Stdout
	if *file != "-" {
		o, err := os.OpenFile(*file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600) // with what programs send
		if err != nil {
			return env.Failf("%s: %v; -w names another file, or - for the output", env.Argv0, err)
		}
		defer o.Close()
		out = o
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if *limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(*limit*float64(time.Second)))
		defer cancel()
	}
	fmt.Fprintf(env.Stderr, "capturing on %s, as the programs that use it say; Ctrl-C ends\n", *device)
	n, err := Follow(ctx, *device, out, Limits{Packets: *count, Snap: *snap})
	fmt.Fprintf(env.Stderr, "%d packets captured\n", n)
	if err != nil {
		return env.Failf("%s: %v", env.Argv0, err)
	}
	return 0
}

// Check is an error if neither this machine nor a running program has a device.
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
	return fmt.Errorf("no device %q; there are %s; for one that a program will make set VERBENA_DEVICES here as it has it", device, strings.Join(names, ", "))
}

// merger writes what several programs say into one capture.
type merger struct {
	readers   sync.WaitGroup
	announced atomic.Pointer[string] // where programs call; nil if nowhere

	mu     sync.Mutex
	out    io.Writer
	over   bool // nobody joins any more
	ifaces uint32
	n, max int
	snap   int
	err    error
	full   context.CancelFunc
}

// Limits are how much a capture writes; 0 is no limit.
type Limits struct {
	Packets int
	Snap    int // bytes of each packet, pcap.MinSnap to pcap.MaxSnap
}

// Follow writes a capture of a device until c is done, or as many packets as there may be are written, and returns how many they were.
func Follow(c context.Context, device string, out io.Writer, most Limits) (int, error) {
	c, cancel := context.WithCancel(c)
	defer cancel()
	return (&merger{out: out, max: most.Packets, snap: most.Snap, full: cancel}).run(c, device)
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
	return m.n, errors.Join(err, m.err)
}

// follow has the packets of all programs read, of those that start meanwhile too, until c is done.
func (m *merger) follow(c context.Context, device string) error {
	announced := ""
	a, err := control.Announce(func(call *control.Call) {
		if call.Device == device {
			m.take(c, call.Stream, device)
		} else {
			_ = call.Close()
		}
	})
	if err == nil { // else programs are found by looking for them
		defer a.Close()
		announced = a.Name
		m.announced.Store(&announced)
	}
	known := make(map[string]bool)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		names, err := control.Processes()
		if err != nil {
			return err
		}
		maps.DeleteFunc(known, func(name string, _ bool) bool { return !slices.Contains(names, name) })
		for _, name := range names {
			if known[name] {
				continue
			}
			known[name] = true
			if stream, err := control.Capture(name, device, announced); err == nil { // else it has ended, or belongs to somebody else
				m.take(c, stream, device)
			}
		}
		select {
		case <-c.Done():
			return nil
		case <-tick.C:
		}
	}
}

// take reads a program's packets until c is done, and what it has not sent yet then, in a goroutine.
func (m *merger) take(c context.Context, stream *control.Stream, device string) {
	if !m.join() {
		_ = stream.Close()
		return
	}
	if m.snap > 0 {
		stream.Snap(m.snap)
	}
	go func() {
		defer m.readers.Done()
		defer stream.Close()
		defer context.AfterFunc(c, stream.Finish)()
		m.read(stream, device)
	}()
}

// read passes the blocks of one program on. Its interface is described when its first packet comes.
func (m *merger) read(stream io.Reader, device string) {
	r := bufio.NewReaderSize(stream, 1<<18)
	iface := uint32(0)
	for first := true; ; first = false {
		head, err := r.Peek(8)
		if err != nil {
			return
		}
		n, ok := pcap.BlockLen(head)
		if !ok {
			m.fail(errors.New("a program has sent something that is no packet; is it of another version?"))
			return
		}
		block := make([]byte, n)
		if _, err := io.ReadFull(r, block); err != nil {
			return
		}
		if first {
			iface = m.describe(device)
		}
		pcap.SetInterface(block, iface)
		if !m.write(block) {
			return
		}
	}
}

// join counts one more reader, unless it is over.
func (m *merger) join() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.over {
		m.readers.Add(1)
	}
	return !m.over
}

func (m *merger) describe(device string) uint32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.out.Write(pcap.AppendInterface(nil, device)); err != nil && m.err == nil {
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

func (m *merger) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil {
		m.err = err
	}
}
