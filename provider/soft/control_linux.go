package soft

import (
	"bufio"
	"net"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/verbena-rdma/verbena/internal/control"
	"github.com/verbena-rdma/verbena/internal/fdset"
	"github.com/verbena-rdma/verbena/internal/link/pcap"
)

// envControl is the environment variable that disables the control socket if its value is 0.
const envControl = "VERBENA_CONTROL"

// controlled serves the tools' requests while a device of this machine is open.
var controlled controller

// controller is a control.Program.
type controller struct {
	mu sync.Mutex // guards all fields
	// +checklocks:mu
	server *control.Server // nil while no device is open
	// +checklocks:mu
	open int // devices, including those that are being closed
	// +checklocks:mu
	devices []*device
	// +checklocks:mu
	captures []*liveCapture
}

// liveCapture is a capture that a tool asked for.
type liveCapture struct {
	device    string
	announced string // the name of the tool's announcement that this process called; empty if the tool called
	sink      *pcap.Sink
}

// add adds a device, and its sink to the waiting captures before it sends any packet.
func (c *controller) add(d *device) {
	if os.Getenv(envControl) == "0" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.server == nil {
		s, err := control.Serve(c)
		if err != nil {
			return // a sandbox without unix sockets; no tool can connect
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

// remove removes a device, whose engine still runs. The caller calls ended after closing the engine: with the last
// device that closes the server, when the captures have received all packets.
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

// removed closes the server after the last device was closed.
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

// Capture sends the packets of a device until the tool ends the connection. It does nothing if this process already
// called the tool's announcement.
func (c *controller) Capture(conn net.Conn, r *bufio.Reader, device, announced string) {
	c.mu.Lock()
	if announced != "" && slices.ContainsFunc(c.captures,
		func(l *liveCapture) bool { return l.announced == announced && l.device == device }) {
		c.mu.Unlock()
		return
	}
	l := c.begin(conn, device, announced)
	c.mu.Unlock()
	c.follow(conn, r, l)
}

// begin starts a capture of a device to a connection.
//
// +checklocks:c.mu
func (c *controller) begin(conn net.Conn, device, announced string) *liveCapture {
	l := &liveCapture{device: device, announced: announced, sink: pcap.NewSink(fdset.Writer(conn.(*net.UnixConn)), 0)}
	c.captures = append(c.captures, l)
	for _, d := range c.devices {
		if d.spec.name == device {
			d.capture.add(l.sink)
		}
	}
	return l
}

// follow handles a capture's requests until the tool ends the connection or the server is closed.
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

// Counters returns the counters of a device under the names of their files in sysfs.
func (c *controller) Counters(name string) []control.Counter {
	c.mu.Lock()
	devices := slices.Clone(c.devices)
	c.mu.Unlock()
	for _, d := range devices {
		if d.spec.name != name {
			continue
		}
		if c := d.count(); c != nil {
			return controlCounters(c.Files())
		}
	}
	return nil
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
