package soft

import (
	"bufio"
	"encoding/json"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/control"
	"github.com/verbena-rdma/verbena/internal/link/pcap"
)

// envControl set to 0 keeps the process silent.
const envControl = "VERBENA_CONTROL"

// controlled answers the tools' questions while a device of this machine is open.
var controlled controller

type controller struct {
	mu       sync.Mutex
	devices  []*device
	listener net.Listener
	captures []*liveCapture
	conns    map[net.Conn]bool
	serving  sync.WaitGroup
}

// liveCapture is what a tool has asked for.
type liveCapture struct {
	device string
	sink   *pcap.Sink
}

// add makes a device known.
func (c *controller) add(d *device) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.devices = append(c.devices, d)
	for _, l := range c.captures {
		if l.device == d.spec.name {
			d.capture.add(l.sink)
		}
	}
	if c.listener != nil || os.Getenv(envControl) == "0" {
		return
	}
	l, err := net.Listen("unix", control.Name(os.Geteuid(), os.Getpid()))
	if err != nil {
		return // nobody asks a process in a sandbox without unix sockets
	}
	c.listener = l
	c.conns = make(map[net.Conn]bool)
	c.serving.Add(1)
	go c.serve(l)
}

// remove forgets a device, and with the last one everything ends.
func (c *controller) remove(d *device) {
	c.mu.Lock()
	c.devices = slices.DeleteFunc(c.devices, func(o *device) bool { return o == d })
	last := len(c.devices) == 0 && c.listener != nil
	if last {
		c.listener.Close()
		c.listener = nil
		for conn := range c.conns {
			conn.Close()
		}
	}
	c.mu.Unlock()
	if last {
		c.serving.Wait()
	}
}

func (c *controller) serve(l net.Listener) {
	defer c.serving.Done()
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		c.mu.Lock()
		if c.listener != l {
			c.mu.Unlock()
			conn.Close()
			return
		}
		c.conns[conn] = true
		c.serving.Add(1)
		c.mu.Unlock()
		go c.answer(conn.(*net.UnixConn))
	}
}

const questionTime = 2 * time.Second

// answer answers one question.
func (c *controller) answer(conn *net.UnixConn) {
	defer c.serving.Done()
	defer func() {
		conn.Close()
		c.mu.Lock()
		delete(c.conns, conn)
		c.mu.Unlock()
	}()
	if !mayAsk(conn) || conn.SetDeadline(time.Now().Add(questionTime)) != nil {
		return
	}
	r := bufio.NewReaderSize(conn, 256)
	line, err := r.ReadSlice('\n')
	if err != nil {
		return
	}
	question, device, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
	switch question {
	case control.AskReport:
		_ = json.NewEncoder(conn).Encode(c.report())
	case control.AskCapture:
		_ = conn.SetDeadline(time.Time{})
		c.capture(conn, device)
	}
}

// mayAsk admits the process's user and root.
func mayAsk(conn *net.UnixConn) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	var cred *unix.Ucred
	var cerr error
	err = raw.Control(func(fd uintptr) { cred, cerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return err == nil && cerr == nil && (cred.Uid == 0 || int(cred.Uid) == syscall.Geteuid())
}

// capture sends the packets of a device until the asker has enough.
func (c *controller) capture(conn net.Conn, device string) {
	l := &liveCapture{device: device, sink: pcap.NewSink(conn, 0)}
	c.mu.Lock()
	c.captures = append(c.captures, l)
	devices := slices.Clone(c.devices)
	for _, d := range devices {
		if d.spec.name == device {
			d.capture.add(l.sink)
		}
	}
	c.mu.Unlock()
	_, _ = conn.Read(make([]byte, 1)) // nothing comes but the end
	c.mu.Lock()
	c.captures = slices.DeleteFunc(c.captures, func(o *liveCapture) bool { return o == l })
	for _, d := range devices {
		d.capture.remove(l.sink)
	}
	for _, d := range c.devices {
		d.capture.remove(l.sink)
	}
	c.mu.Unlock()
	conn.Close()
	_ = l.sink.Close()
}

// report describes the process.
func (c *controller) report() control.Report {
	comm, _ := os.ReadFile("/proc/self/comm")
	r := control.Report{PID: os.Getpid(), Comm: strings.TrimSpace(string(comm)), Devices: []control.Device{}}
	c.mu.Lock()
	devices := slices.Clone(c.devices)
	c.mu.Unlock()
	for _, d := range devices {
		r.Devices = append(r.Devices, d.describe())
	}
	control.Complete(&r)
	return r
}
