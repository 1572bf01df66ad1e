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
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/link/pcap"
)

// envPcap is the environment variable that names a file for what the devices of the process send and receive.
const envPcap = "VERBENA_PCAP"

// envSnapLen is the environment variable that says how many bytes of each packet are written.
const envSnapLen = "VERBENA_PCAP_SNAPLEN"

// snapLen is what the environment says, 0 for whole packets.
func snapLen() int {
	s := os.Getenv(envSnapLen)
	n, err := strconv.Atoi(s)
	if s != "" && s != "0" && (err != nil || n < pcap.MinSnap || n > pcap.MaxSnap) {
		fmt.Fprintf(os.Stderr, "verbena: %s=%s: whole packets are captured: %d to %d bytes are possible\n", envSnapLen, s, pcap.MinSnap, pcap.MaxSnap)
		return 0
	}
	return n
}

// capture is what a device's packets are written to.
type capture struct {
	mu    sync.Mutex
	eng   *engine.Engine // nil while it has no link
	file  *pcap.Sink     // of the process's capture; one of sinks
	sinks []*pcap.Sink
}

// captures is the process's capture.
var captures captureFile

// captureFile takes whole blocks of several sinks.
type captureFile struct {
	mu     sync.Mutex
	name   string // value of envPcap that it was opened for
	file   io.Writer
	ifaces uint32
}

// startCapture begins a capture if the environment asks for one.
func (d *device) startCapture(e *engine.Engine) {
	d.capture.mu.Lock()
	d.capture.eng = e
	d.capture.apply() // a tool may have asked already
	d.capture.mu.Unlock()
	name := os.Getenv(envPcap)
	if name == "" {
		return
	}
	sink, err := captures.join(name, d.spec.name)
	if err != nil {
		fmt.Fprintf(os.Stderr, "verbena: %s=%s: nothing is captured: %v; name a file that can be written\n", envPcap, name, err)
		return
	}
	sink.SetSnap(snapLen())
	d.capture.file = sink
	d.capture.add(sink)
}

// add has the device's packets written to one more sink.
func (c *capture) add(s *pcap.Sink) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sinks = append(c.sinks, s)
	c.apply()
}

// remove ends that. Once it returns, nothing more is written.
func (c *capture) remove(s *pcap.Sink) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sinks = slices.DeleteFunc(c.sinks, func(o *pcap.Sink) bool { return o == s })
	c.apply()
}

// apply sets the taps of the engine. c.mu is held.
func (c *capture) apply() {
	switch {
	case c.eng == nil:
	case len(c.sinks) == 0:
		c.eng.SetTap(nil)
	default:
		c.eng.SetTap(func(int) link.Tap {
			var taps pcap.Taps
			for _, s := range c.sinks {
				taps = append(taps, s.Tap())
			}
			if len(taps) == 1 {
				return taps[0]
			}
			return taps
		})
	}
}

// stop writes what is left. The engine is closed.
func (c *capture) stop() {
	c.mu.Lock()
	file := c.file
	c.eng, c.file, c.sinks = nil, nil, nil
	c.mu.Unlock()
	if file == nil {
		return
	}
	if err := file.Close(); err != nil {
		fmt.Fprintf(os.Stderr, "verbena: %s: the capture is not complete: %v\n", envPcap, err)
	} else if n := file.Dropped(); n > 0 {
		fmt.Fprintf(os.Stderr, "verbena: %s: %d packets are missing: the file was written too slowly\n", envPcap, n)
	}
}

// join makes the sink of a device, and the file if there is none yet.
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
		c.name, c.file, c.ifaces = name, f, 0
	}
	if _, err := c.file.Write(pcap.AppendInterface(nil, device)); err != nil {
		return nil, err
	}
	c.ifaces++
	return pcap.NewSink(c, c.ifaces-1), nil
}

// Write writes blocks.
func (c *captureFile) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.file.Write(b)
}

// createCapture makes the file, empty, or one of its own if another process has that.
func createCapture(name string) (*os.File, error) {
	pid := strconv.Itoa(os.Getpid())
	name = strings.ReplaceAll(name, "%p", pid)
	f, err := createLocked(name)
	if err == errTaken {
		ext := filepath.Ext(name)
		f, err = createLocked(strings.TrimSuffix(name, ext) + "." + pid + ext)
	}
	return f, err
}

// createLocked makes a file that no other process has.
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
