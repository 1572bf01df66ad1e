package soft

import (
	"bufio"
	"net"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/verbena-rdma/verbena/internal/control"
	"github.com/verbena-rdma/verbena/internal/link/pcap"
)

// envControl set to 0 keeps the process silent.
const envControl = "VERBENA_CONTROL"

// controlled answers the tools' questions while a device of this machine is open.
var controlled controller

// controller is a control.Program.
type controller struct {
	mu       sync.Mutex
	server   *control.Server // nil while no device is open
	open     int             // devices, with those that are being closed
	devices  []*device
	captures []*liveCapture
}

// liveCapture is what a tool has asked for.
type liveCapture struct {
	device    string
	announced string // where the tool is called, empty if nowhere
	sink      *pcap.Sink
}

// add makes a device known, to the captures that wait for it before it sends anything.
func (c *controller) add(d *device) {
	if os.Getenv(envControl) == "0" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.server == nil {
		s, err := control.Serve(c)
		if err != nil {
			return // nobody asks a process in a sandbox without unix sockets
		}
		c.server = s
	}
	c.open++
	c.devices = append(c.devices, d)
	waiting := make(map[string]bool)
	for _, l := range c.captures {
		if l.device == d.spec.name {
			waiting[l.announced] = true
			d.capture.add(l.sink)
		}
	}
	calls := control.CallCaptures(c.server.Name, d.spec.name, func(announced string) bool { return waiting[announced] })
	for announced, conn := range calls {
		l := c.begin(conn, d.spec.name, announced)
		c.server.Go(conn, func() { c.follow(conn, bufio.NewReaderSize(conn, 64), l) })
	}
}

// remove forgets a device, whose engine still runs. ended is to be called when that has ended: with the last device everything
// ends, and captures get what it has sent.
func (c *controller) remove(d *device) (ended func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.devices, d)
	if i < 0 {
		return func() {}
	}
	c.devices = slices.Delete(c.devices, i, i+1)
	return c.removed
}

func (c *controller) removed() {
	c.mu.Lock()
	var s *control.Server
	if c.open--; c.open == 0 {
		s, c.server = c.server, nil
	}
	c.mu.Unlock()
	if s != nil {
		s.Close()
	}
}

// Capture sends the packets of a device until the asker has enough, unless it was called.
func (c *controller) Capture(conn net.Conn, r *bufio.Reader, device, announced string) {
	c.mu.Lock()
	if announced != "" && slices.ContainsFunc(c.captures, func(l *liveCapture) bool { return l.announced == announced && l.device == device }) {
		c.mu.Unlock()
		return
	}
	l := c.begin(conn, device, announced)
	c.mu.Unlock()
	c.follow(conn, r, l)
}

// begin has the packets of a device sent to a connection. c.mu is held.
func (c *controller) begin(conn net.Conn, device, announced string) *liveCapture {
	l := &liveCapture{device: device, announced: announced, sink: pcap.NewSink(conn, 0)}
	c.captures = append(c.captures, l)
	for _, d := range c.devices {
		if d.spec.name == device {
			d.capture.add(l.sink)
		}
	}
	return l
}

// follow returns when the asker has enough, or the server ends.
func (c *controller) follow(conn net.Conn, r *bufio.Reader, l *liveCapture) {
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			break
		}
		n, ok := control.SnapOf(line)
		if !ok || n < pcap.MinSnap || n > pcap.MaxSnap {
			break
		}
		l.sink.SetSnap(n)
	}
	control.Part(conn)
	c.mu.Lock()
	c.captures = slices.DeleteFunc(c.captures, func(o *liveCapture) bool { return o == l })
	for _, d := range c.devices {
		d.capture.remove(l.sink)
	}
	c.mu.Unlock()
	_ = l.sink.Close()
}

// Report describes the process.
func (c *controller) Report(objects bool) control.Report {
	comm, _ := os.ReadFile("/proc/self/comm")
	r := control.Report{PID: os.Getpid(), Comm: strings.TrimSpace(string(comm)), Devices: []control.Device{}}
	c.mu.Lock()
	devices := slices.Clone(c.devices)
	c.mu.Unlock()
	for _, d := range devices {
		r.Devices = append(r.Devices, d.describe(objects))
	}
	control.Complete(&r)
	return r
}
