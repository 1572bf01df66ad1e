package asyncwatch

import (
	"bytes"
	"context"
	"errors"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/internal/tools/tool"
	"github.com/verbena-rdma/verbena/verbs"
)

// device is a driver through which a test raises events.
//
//conformance:fake
type device struct {
	verbs.DriverContext
	up      chan verbs.DriverContextEvents
	openErr error
}

func (d *device) Info() verbs.DriverInfo { return verbs.DriverInfo{Name: "vrb_x"} }

func (d *device) Open(up verbs.DriverContextEvents) (verbs.DriverContext, error) {
	if d.openErr != nil {
		return nil, d.openErr
	}
	d.up <- up
	return d, nil
}

func (d *device) QueryDevice() (verbs.DeviceAttr, error) {
	return verbs.DeviceAttr{PhysPortCnt: 2}, nil
}
func (d *device) NumCompVectors() int { return 1 }
func (d *device) Close() error        { return nil }

// output is a buffer that is safe for concurrent use.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

func TestV_AE_03_Watch(t *testing.T) {
	d := &device{up: make(chan verbs.DriverContextEvents, 1)}
	var out, errs output
	c, cancel := context.WithCancel(t.Context())
	status := make(chan int, 1)
	go func() { status <- watch(c, &tool.Env{Stdout: &out, Stderr: &errs}, driver.NewDevice(d)) }()
	up := <-d.up
	up.PortEvent(verbs.EventPortErr, 1)
	up.PortEvent(verbs.EventPortActive, 2)
	up.PortEvent(verbs.EventGIDChange, 1)
	up.PortEvent(verbs.EventWQFatal, 1)
	up.DeviceEvent(verbs.EventDeviceFatal)
	want := `^vrb_x: async event FD -?\d+
  event_type IBV_EVENT_PORT_ERR \(10\), port 1
  event_type IBV_EVENT_PORT_ACTIVE \(9\), port 2
  event_type IBV_EVENT_GID_CHANGE \(18\), port 1
  event_type unexpected \(19\), port 1
  event_type IBV_EVENT_DEVICE_FATAL \(8\), port 0
$`
	for begun := time.Now(); strings.Count(out.String(), "\n") < 6 && time.Since(begun) < 10*time.Second; {
		time.Sleep(time.Millisecond)
	}
	// It ends when the device is gone and all events are printed, as the program of rdma-core does.
	if s := <-status; s != 1 || !strings.Contains(errs.String(), "the device was removed") {
		t.Errorf("status %d, %s", s, errs.String())
	}
	cancel()
	// %d of an EventType must print the number, although it has a String method.
	if !regexp.MustCompile(want).MatchString(out.String()) {
		t.Errorf("%s", out.String())
	}
}

// TestEndOfTheProgram: the end of its context, which a signal causes, is no failure.
func TestEndOfTheProgram(t *testing.T) {
	d := &device{up: make(chan verbs.DriverContextEvents, 1)}
	var out, errs output
	c, cancel := context.WithCancel(t.Context())
	cancel()
	if s := watch(c, &tool.Env{Stdout: &out, Stderr: &errs}, driver.NewDevice(d)); s != 0 || errs.String() != "" {
		t.Errorf("status %d, %s", s, errs.String())
	}
}

func TestFailures(t *testing.T) {
	var out, errs output
	env := &tool.Env{Argv0: "ibv_asyncwatch", Stdout: &out, Stderr: &errs}
	d := driver.NewDevice(&device{openErr: errors.New("no way")})
	if s := watch(t.Context(), env, d); s != 1 || !strings.Contains(errs.String(), "Couldn't get context for vrb_x") {
		t.Errorf("%d, %s", s, errs.String())
	}
	if s := run(env, []string{"-d", "nosuch"}); s != 1 ||
		!strings.Contains(errs.String(), "IB device nosuch not found; there is none: run verbena doctor") {
		t.Errorf("%d, %s", s, errs.String())
	}
	if s := run(env, []string{"--help"}); s != 0 || !strings.Contains(out.String(), "-d, --ib-dev") {
		t.Errorf("%d, %s", s, out.String())
	}
	if s := run(env, []string{"-x"}); s != 1 {
		t.Errorf("%d", s)
	}
}
