package soft

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/verbena-rdma/verbena/internal/engine"
	"github.com/verbena-rdma/verbena/internal/environ"
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/link/pcap"
)

// envPcap is the environment variable that names the capture file of the process.
const envPcap = "VERBENA_PCAP"

// envSnapLen is the environment variable for the number of bytes written of each packet.
const envSnapLen = "VERBENA_PCAP_SNAPLEN"

// snapLen returns the value of envSnapLen; 0 means whole packets.
func snapLen() int {
	s := os.Getenv(envSnapLen)
	n, err := strconv.Atoi(s)
	if s != "" && s != "0" && (err != nil || n < pcap.MinSnap || n > pcap.MaxSnap) {
		captures.complain("%s=%s: must be 0 or %d to %d bytes; whole packets are captured", envSnapLen, s, pcap.MinSnap,
			pcap.MaxSnap)
		return 0
	}
	return n
}

// capture is the set of sinks that a device's packets are written to.
type capture struct {
	mu sync.Mutex // guards all fields
	// +checklocks:mu
	eng *engine.Engine // nil while the device has no link
	// +checklocks:mu
	file *pcap.Sink // the sink of the process's capture file, one of sinks; nil without one
	// +checklocks:mu
	sinks   []*pcap.Sink
	streams *streams // their taps are set too
}

// captures is the capture file of the process.
var captures captureFile

// captureFile is one file for the captures of several devices. Its Write is safe for concurrent use; each call writes
// whole blocks.
type captureFile struct {
	mu sync.Mutex
	// +checklocks:mu
	name string // value of envPcap for which file was opened
	// +checklocks:mu
	file io.Writer
	// +checklocks:mu
	ifaces uint32 // interface descriptions written
	// +checklocks:mu
	failed bool // a write has failed, and the user knows
	// +checklocks:mu
	said []string // the complaints
}

// complain tells the user what is wrong with the variables, once and not for each device.
func (c *captureFile) complain(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.said, text) {
		c.said = append(c.said, text)
		fmt.Fprintln(os.Stderr, "verbena:", text)
	}
}

// startCapture starts a capture if the environment asks for one.
func (d *device) startCapture(e *engine.Engine) {
	d.capture.mu.Lock()
	d.capture.eng = e
	d.capture.apply() // a tool may have added a sink already
	d.capture.mu.Unlock()
	name := os.Getenv(envPcap)
	if name == "" {
		return
	}
	if environ.Elevated() { // the file would be the caller's choice, and the right to write to it the program's
		captures.complain("%s: nothing is captured: the program has more rights than the user who started it; run it as "+
			"a user with these rights", envPcap)
		return
	}
	sink, err := captures.join(name, d.spec.name)
	if err != nil {
		captures.complain("%s=%s: nothing is captured: %v; name a writable file", envPcap, name, err)
		return
	}
	sink.SetSnap(snapLen())
	d.capture.mu.Lock()
	d.capture.file = sink
	d.capture.mu.Unlock()
	d.capture.add(sink)
}

// add adds a sink for the device's packets.
func (c *capture) add(s *pcap.Sink) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sinks = append(c.sinks, s)
	c.apply()
}

// remove removes a sink. Nothing is written to it after remove returns.
func (c *capture) remove(s *pcap.Sink) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sinks = slices.DeleteFunc(c.sinks, func(o *pcap.Sink) bool { return o == s })
	c.apply()
}

// apply sets the taps of the engine.
//
// +checklocks:c.mu
func (c *capture) apply() {
	if c.eng != nil {
		c.streams.setTaps(c.sinks)
	}
	switch {
	case c.eng == nil:
	case len(c.sinks) == 0:
		c.eng.SetTap(nil)
	default:
		sinks := c.sinks
		c.eng.SetTap(func(int) link.Tap {
			var taps pcap.Taps
			for _, s := range sinks {
				taps = append(taps, s.Tap())
			}
			if len(taps) == 1 {
				return taps[0]
			}
			return taps
		})
	}
}

// stop flushes and closes the capture file's sink. The engine must be closed.
func (c *capture) stop() {
	c.mu.Lock()
	file := c.file
	c.eng, c.file, c.sinks = nil, nil, nil
	c.streams.setTaps(nil)
	c.mu.Unlock()
	if file == nil {
		return
	}
	if err := file.Close(); err != nil {
		return // Write has reported it
	}
	if n := file.Dropped(); n > 0 {
		fmt.Fprintf(os.Stderr,
			"verbena: %s: incomplete capture: %d packets dropped because the file was written too slowly\n", envPcap, n)
	}
}

// join opens the file if it is not open, and returns a sink for a device.
func (c *captureFile) join(name, device string) (*pcap.Sink, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.file == nil || c.name != name {
		f, err := createCapture(name)
		if err != nil {
			return nil, err
		}
		if _, err := f.Write(pcap.AppendSection(nil)); err != nil {
			return nil, err
		}
		c.name, c.file, c.ifaces, c.failed = name, f, 0, false
	}
	if _, err := c.file.Write(pcap.AppendInterface(nil, device, fmt.Sprintf("%s (%d)", filepath.Base(os.Args[0]),
		os.Getpid()))); err != nil {
		return nil, err
	}
	c.ifaces++
	return pcap.NewSink(c, c.ifaces-1), nil
}

// Write writes blocks to the file. It reports the first error at once: many programs end without closing their devices.
func (c *captureFile) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := c.file.Write(b)
	if err != nil && !c.failed {
		c.failed = true
		fmt.Fprintf(os.Stderr, "verbena: %s: incomplete capture: %v\n", envPcap, err)
	}
	return n, err
}

// createCapture creates the file, empty. If another process writes to it, the process ID is added to the name.
func createCapture(name string) (*os.File, error) {
	pid := strconv.Itoa(os.Getpid())
	name = strings.ReplaceAll(name, "%p", pid)
	f, err := createLocked(name)
	if err == errLocked {
		ext := filepath.Ext(name)
		f, err = createLocked(strings.TrimSuffix(name, ext) + "." + pid + ext)
	}
	return f, err
}

// createLocked creates and locks a file; errLocked if another process has locked it.
func createLocked(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lockFile(f); err != nil {
		_ = f.Close()
		return nil, err
	}
	if fi, err := f.Stat(); err == nil && fi.Mode().IsRegular() {
		err = f.Truncate(0)
		if err != nil {
			_ = f.Close()
			return nil, err
		}
	}
	return f, nil
}
